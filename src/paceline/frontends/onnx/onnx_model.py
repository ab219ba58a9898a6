"""Run the nodes of an ONNX graph as PyTorch functions on meta tensors.

Standard library and torch only. Values that follow from sizes and constants of the file alone are
known: they are tensors on the CPU, computed there and not recorded, as every engine folds them.
Everything else is on meta, and what runs there is what the recorder sees.
"""

import ast
import contextlib
import math

import torch
from onnx_file import Refused, check_shape, dtype_of, shape_of, values_of
from protobuf_wire import Malformed

#: Nodes that one pass may run, those of unrolled loops included.
_MOST_RUNS = 200_000
#: Elements of a list of numbers that is computed beforehand, and of what has more dims: whether a
#: value is known must not hang on the batch, and masks and positions are work of the device.
_MOST_KNOWN, _MOST_OF_A_TABLE = 1 << 17, 10
_DEEPEST = 40


class Model(torch.nn.Module):
    """A graph with its weights on meta.

    Attributes:
        recorder: Of the pass that runs; None while none is recorded.
        replaced: (stored, free) batch where the file has a fixed one.
    """

    def __init__(self, graph, opsets, functions, operators):
        super().__init__()
        self.recorder = None
        self.replaced = None
        self.opsets, self.functions, self.operators = opsets, functions, operators
        self._graph, self._stored, self._tensors = graph, {}, {}
        self._runs = 0
        self._plans = {}
        self._constants = {}
        for tensor in graph["initializers"]:
            self._store(tensor)
        _add_paths(self, {_path(node) for node in graph["nodes"]})
        self._index = {name: number for number, (name, _) in enumerate(self.named_modules())}

    def _store(self, tensor):
        """Register weights; keep what may be a size or a setting as a value."""
        name, shape = tensor.get("name", ""), shape_of(tensor)
        dtype = getattr(torch, dtype_of(tensor.get("dtype", 0)))
        is_weight = dtype.is_floating_point and bool(shape)
        self._stored[name] = tensor
        if not is_weight:
            values = values_of(tensor)
            if values is not None:
                self._tensors[name] = torch.tensor(values, dtype=dtype).reshape(shape)
                return
        made = torch.empty(shape, dtype=dtype, device="meta")
        path, _, leaf = name.strip("./").replace("/", ".").rpartition(".")
        holder = _holder(self, path) if path else self
        leaf = _free_name(holder, leaf or "constant")
        if is_weight:
            made = torch.nn.Parameter(made)
            holder.register_parameter(leaf, made)
        else:
            holder.register_buffer(leaf, made)
        self._tensors[name] = made

    def forward(self, *inputs):
        """Outputs of the graph, in its order."""
        self._runs = 0
        self._constants = {}
        names = [one["name"] for one in free_inputs(self._graph)]
        scope = Scope(self, dict(zip(names, inputs)), self._tensors, self.opsets)
        return tuple(scope.run(self._graph))

    def count_run(self):
        """Another node runs."""
        self._runs += 1
        if self._runs > _MOST_RUNS:
            raise Refused("its loops run more than %d nodes" % _MOST_RUNS, "onnx-loop")

    def enter(self, node):
        """Tell the recorder which module a node came from."""
        if self.recorder is not None:
            self.recorder.enter_module(self._index.get(_path(node), 0))

    def values(self, name):
        """The numbers of a stored weight, for the few that are settings; None if not there."""
        tensor = self._stored.get(name)
        values = None if tensor is None else values_of(tensor)
        if values is None:
            return None
        return torch.tensor(values).reshape(shape_of(tensor))

    def on_meta(self, tensor):
        """A known tensor as a constant of the device."""
        if tensor.is_meta:
            return tensor
        key = id(tensor)
        if key not in self._constants:
            with self.paused():
                made = torch.empty_like(tensor, device="meta")
                if self.recorder is not None:
                    self.recorder.own(made, "buffer")
            self._constants[key] = (made, tensor)
        return self._constants[key][0]

    def paused(self):
        """Nothing is recorded inside."""
        return contextlib.nullcontext() if self.recorder is None else self.recorder.paused()

    def plan(self, graph):
        """Names that are used for the last time by each node."""
        found = self._plans.get(id(graph))
        if found is None:
            found = self._plans[id(graph)] = _last_uses(graph)
        return found


class Scope(object):
    """Names of one graph, those of the graph around it included."""

    def __init__(self, model, local, outer, opsets, depth=0, references=None):
        self.model, self.local, self.outer, self.depth = model, local, outer, depth
        self.opsets, self.references = opsets, references
        if depth > _DEEPEST:
            raise Refused("its graphs or functions call each other more than %d deep" % _DEEPEST)

    def find(self, name):
        """What stands under a name."""
        if name in self.local:
            return self.local[name]
        if isinstance(self.outer, Scope):
            return self.outer.find(name)
        if name in self.outer:
            return self.outer[name]
        raise Malformed("`%s` is used before it is made, or by nobody: a cycle or a gap" % name)

    def run(self, graph):
        """Run all nodes; the values of the outputs."""
        nodes, outputs = graph["nodes"], [_name(one) for one in graph["outputs"]]
        last = self.model.plan(graph)
        for number, node in enumerate(nodes):
            self._run_node(node)
            for name in last[number]:
                self.local.pop(name, None)
        return [self.find(name) for name in outputs]

    def _run_node(self, node):
        model = self.model
        model.count_run()
        model.enter(node)
        call = Call(self, node)
        made = call.run()
        made = made if isinstance(made, tuple) else (made,)
        for name, value in zip(node["outputs"], made):
            if name:
                self.local[name] = value

    def inner(self, graph, values):
        """Outputs of a graph inside a node."""
        own = {one["name"]: _constant(one) for one in graph["initializers"]}
        names = [one["name"] for one in free_inputs(graph)]
        scope = Scope(self.model, {**own, **dict(zip(names, values))}, self, self.opsets,
                      self.depth + 1, self.references)  # fmt: skip
        return scope.run(graph)


class Call(object):
    """One node with its arguments.

    Attributes:
        inputs: Tensors, lists of them, and None for what is left out.
        op: Name of the operator.
        opset: Version that its meaning is taken from.
    """

    def __init__(self, scope, node):
        self.scope, self.model, self.node = scope, scope.model, node
        self.domain, self.op = node.get("domain", ""), node.get("op", "")
        self.domain = "" if self.domain == "ai.onnx" else self.domain
        self.opset = scope.opsets.get(self.domain, scope.opsets.get("", 0))
        self.attributes = {one.get("name"): one for one in node["attributes"]}
        self.inputs = [scope.find(name) if name else None for name in node["inputs"]]
        while self.inputs and self.inputs[-1] is None:
            self.inputs.pop()

    def run(self):
        """The outputs."""
        function = self.model.functions.get((self.domain, self.op))
        if function is not None:
            return self._of_function(function)
        operator = self.model.operators.get((self.domain, self.op))
        if operator is None:
            raise unknown(self)
        try:
            return operator(self, *self.inputs)
        except (Refused, Malformed):
            raise
        except (TypeError, ValueError, RuntimeError, IndexError, AttributeError, KeyError,
                AssertionError, OverflowError, NotImplementedError) as error:  # fmt: skip
            if getattr(error, "kind", None):
                raise
            said = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            message = "its node %s cannot be run on %s: %s"
            raise Refused(message % (self.title(), self.shapes(), said), "onnx-node") from error

    def title(self):
        """The node, as named in messages."""
        return "`%s` (%s)" % (self.node.get("name", "") or self.op, self.op)

    def shapes(self):
        """What is given, in words."""
        given = [tuple(t.shape) if isinstance(t, torch.Tensor) else t for t in self.inputs]
        return ", ".join(map(str, given)) or "nothing"

    def _of_function(self, function):
        """A function that the file itself defines."""
        local = dict.fromkeys(function["inputs"])
        local.update(zip(function["inputs"], self.inputs))
        given = {one.get("name"): one for one in function["defaults"]}
        given.update(self.attributes)
        opsets = dict(self.scope.opsets)
        opsets.update({one.get("domain", ""): one.get("version", 0) for one in function["opsets"]})
        scope = Scope(self.model, local, {}, opsets, self.scope.depth + 1, given)
        return tuple(scope.run(function))

    def attribute(self, name, default=None):
        """An attribute's number, text, list, tensor or graph."""
        one = self.attributes.get(name)
        if one is not None and one.get("reference"):
            one = (self.scope.references or {}).get(one["reference"])
        if one is None:
            return default
        for key in ("i", "f", "s", "t", "g"):
            if key in one:
                return one[key]
        return next((one[key] for key in ("ints", "floats", "strings") if one[key]), [])

    def input(self, position):
        """An input, or None where it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def known(self, position):
        """The values of an input; None where it is left out.

        Raises:
            Refused: They are not known before the model runs.
        """
        tensor = self.input(position)
        if tensor is None or not tensor.is_meta:
            return tensor
        found = self.model.values(self.node["inputs"][position])
        if found is None:
            message = "its node %s needs numbers of `%s`, which only data tells"
            raise Refused(message % (self.title(), self.node["inputs"][position]), "onnx-values")
        return found

    def ints(self, position, name=None):
        """A list of whole numbers from an attribute or, in newer opsets, from an input."""
        if name in self.attributes:
            value = self.attribute(name)
            return list(value) if isinstance(value, list) else [value]
        value = self.known(position)
        return None if value is None else [int(one) for one in value.reshape(-1).tolist()]

    def number(self, position, name=None, default=None):
        """One number from an attribute or an input."""
        if name in self.attributes:
            return self.attribute(name)
        value = self.known(position)
        return default if value is None or not value.numel() else value.reshape(-1)[0].item()

    def compute(self, function, *tensors):
        """``function`` of tensors: where all are known and small beforehand, else on meta."""
        given = [t for t in tensors if isinstance(t, torch.Tensor)]
        if not any(t.is_meta for t in given):
            with self.model.paused():
                made = function(*[_of_size(t) for t in tensors])
                if all(is_small(tuple(one.shape)) for one in _listed(made)):
                    return function(*tensors)
        # Alone, a number of Python would be no tensor.
        placed = self.placed if len(given) > 1 else self.model.on_meta
        return function(*[placed(t) for t in tensors])

    def placed(self, tensor):
        """On meta; a single known number as a number of Python."""
        if not isinstance(tensor, torch.Tensor) or tensor.is_meta:
            return tensor
        return tensor.item() if tensor.ndim == 0 else self.model.on_meta(tensor)

    def on_meta(self, tensor):
        """On meta, as a tensor."""
        return None if tensor is None else self.model.on_meta(tensor)


def unknown(call):
    """The refusal of an operator that is not known."""
    name = "%s::%s" % (call.domain, call.op) if call.domain else call.op
    return Refused("its operator `%s` is not known" % name, "onnx-op")


def free_inputs(graph):
    """Inputs that are given at each run: older files list their weights too."""
    stored = {one.get("name") for one in graph["initializers"]}
    return [one for one in graph["inputs"] if one.get("name") not in stored]


def _constant(tensor):
    """A tensor that a file holds in a node or an inner graph."""
    shape, dtype = shape_of(tensor), getattr(torch, dtype_of(tensor.get("dtype", 0)))
    values = values_of(tensor)
    if values is None:
        return torch.empty(shape, dtype=dtype, device="meta")
    return torch.tensor(values, dtype=dtype).reshape(shape)


def constant(tensor):
    """A tensor that a node holds: its values where they are few."""
    return _constant(tensor)


def _of_size(tensor):
    """Shape and type of a tensor, without its numbers."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    return torch.empty_like(tensor, device="meta")


def _listed(made):
    return made if isinstance(made, (tuple, list)) else (made,)


def is_small(shape):
    """Whether a value of that shape is computed beforehand, where all of it is known."""
    return math.prod(shape) <= (_MOST_KNOWN if len(shape) < 2 else _MOST_OF_A_TABLE)


def checked(shape, name=""):
    """A shape that is made while the graph runs."""
    check_shape(shape, name)
    return tuple(int(one) for one in shape)


def _name(one):
    return one if isinstance(one, str) else one.get("name", "")


def _last_uses(graph):
    """Names that each node uses for the last time, or makes for nobody."""
    kept = {_name(one) for one in graph["outputs"]}
    last = {}
    for number, node in enumerate(graph["nodes"]):
        for name in (*node["outputs"], *_used(node)):
            last[name] = number
    freed = [[] for _ in graph["nodes"]]
    for name, number in last.items():
        if name and name not in kept:
            freed[number].append(name)
    return freed


def _used(node):
    """Names that a node or the graphs in it use."""
    names = list(node["inputs"])
    for attribute in node["attributes"]:
        if "g" in attribute:
            names += [_name(one) for one in attribute["g"]["outputs"]]
            for inner in attribute["g"]["nodes"]:
                names += _used(inner)
    return names


def _path(node):
    """Dotted path of the module that a node came from, as its exporter noted it."""
    for note in node["notes"]:
        if note.get("key") == "pkg.torch.onnx.name_scopes":
            with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
                scopes = ast.literal_eval(note.get("value", "")[:4000])
                if len(scopes) > 1:
                    return str(scopes[-2]).split("@")[0]
    # As the older exporter named nodes: /layer1/layer1.0/conv1/Conv.
    parts = node.get("name", "").strip("/").split("/")[:-1]
    path = ""
    for part in parts:
        is_whole = path and part.startswith(path.rpartition(".")[2] + ".")
        path = path.rpartition(".")[0] if is_whole else path
        path = "%s.%s" % (path, part) if path else part
    return path


def _add_paths(root, paths):
    for path in sorted(paths):
        if path:
            _holder(root, path)


def _holder(root, path):
    """The module at a path, made where there is none."""
    for part in path.split(".")[:20]:
        children = root._modules
        if part and part not in children:
            name = part if not hasattr(root, part) else part + "_"
            if name not in children:
                root.add_module(name, torch.nn.Module())
            part = name
        root = children[part] if part else root
    return root


def _free_name(holder, leaf):
    while hasattr(holder, leaf):
        leaf += "_"
    return leaf
