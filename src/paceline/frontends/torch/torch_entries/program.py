"""Programs of ``torch.export``: from a ``.pt2`` file or an object of this process.

Standard library and torch only. Such a file is code: it is loaded in a worker, when it is named,
without unpickling anything but tensors and without running the guards it carries.
"""

import functools
import warnings

import torch
from torch_entries.building import on_meta_twin
from torch_entries.subjects import RequestError, Subject

#: Checks that say nothing about shapes, and hold for another device than meta.
_CHECKS = ("aten::_assert_tensor_metadata", "aten::_assert_async")


def load_program(path):
    """The program of a file."""
    plain = torch.load
    torch.load = functools.partial(_load_tensors, plain)
    try:
        return torch.export.load(path)
    except FileNotFoundError:
        raise RequestError("no-file", "no file at `%s`" % path) from None
    except Exception as error:  # Readers of zip, JSON and schemas each have errors of their own.
        message = "`%s` cannot be loaded as an exported program: %s" % (path, error)
        raise RequestError("no-program", message) from error
    finally:
        torch.load = plain


def _load_tensors(load, *args, **kwargs):
    kwargs["weights_only"] = True
    return load(*args, **kwargs)


class ProgramSubject(Subject):
    """An exported program: its inputs say which extents are free."""

    def __init__(self, program):
        self._wanted = _user_inputs(program)
        self._batch, self._length = _symbols(self._wanted)
        first = next(value for value in self._wanted if isinstance(value, torch.Tensor))
        kind = _kind(first, program, self._length is not None)
        shape = None if self._length is not None else tuple(int(n) for n in first.shape[1:])
        super().__init__(_Interpreted(program), kind, shape, has_seq=self._length is not None)

    def inputs(self, batch, seq):
        """Uninitialised inputs, in the order of the program."""
        sizes = {self._batch: batch, self._length: seq}
        return tuple(_sized(value, sizes) for value in self._wanted)

    def loss(self, output, inputs):
        """What the program returns, where that is one number; else as of other models."""
        first = output[0] if isinstance(output, (tuple, list)) and output else output
        if isinstance(first, torch.Tensor) and first.ndim == 0 and first.requires_grad:
            return first
        return super().loss(output, inputs)

    def _step(self, recorder, inputs):
        self.model.recorder = recorder
        super()._step(recorder, inputs)

    def _forward(self, recorder, inputs):
        self.model.recorder = recorder
        super()._forward(recorder, inputs)


class _Interpreted(torch.nn.Module):
    """A program run node by node, each in the module that it came from."""

    def __init__(self, program):
        super().__init__()
        with warnings.catch_warnings():
            # PyTorch's own code for copies of a graph module uses what it has deprecated.
            warnings.simplefilter("ignore")
            twin = _meta_twin(program)
        for name, child in twin.named_children():
            self.add_module(name, child)
        for name, parameter in twin.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        for name, buffer in twin.named_buffers(recurse=False):
            self.register_buffer(name, buffer)
        self.recorder = None
        self._program = [twin]
        paths = {_path(node) for node in twin.graph.nodes}
        for path in sorted(paths - {name for name, _ in self.named_modules()}):
            _add_empty(self, path)
        self._index = {name: number for number, (name, _) in enumerate(self.named_modules())}

    def forward(self, *inputs):
        """Flat outputs of flat inputs."""
        return _Run(self._program[0], self._index, self.recorder).run(
            *inputs, enable_io_processing=False
        )


class _Run(torch.fx.Interpreter):
    """Tell the recorder which module each node came from."""

    def __init__(self, module, index, recorder):
        super().__init__(module)
        self._index, self._recorder = index, recorder

    def run_node(self, node):
        """One node."""
        if self._recorder is not None and node.op == "call_function":
            self._recorder.enter_module(self._index[_path(node)])
        return super().run_node(node)


def _meta_twin(program):
    graph_module = _unlifted(program)
    for node in list(graph_module.graph.nodes):
        _put_on_meta(graph_module.graph, node)
    graph_module.recompile()
    return on_meta_twin(graph_module)


def _unlifted(program):
    try:
        return program.module(check_guards=False)
    except TypeError:
        return program.module()


def _put_on_meta(graph, node):
    if node.op != "call_function":
        return
    if getattr(getattr(node.target, "_schema", None), "name", "") in _CHECKS:
        graph.erase_node(node)
        return
    if node.kwargs.get("device") is not None:
        node.kwargs = dict(node.kwargs, device=torch.device("meta"))
    is_device = [isinstance(argument, torch.device) for argument in node.args]
    if any(is_device):
        meta = torch.device("meta")
        pairs = zip(node.args, is_device)
        node.args = tuple(meta if is_one else argument for argument, is_one in pairs)


def _path(node):
    """Dotted path of the innermost module that a node came from."""
    stack = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""
    # A module that is called twice has its calls numbered: ``layer@1``.
    return path.split("@")[0].replace("L['self']", "").lstrip(".")


def _add_empty(root, path):
    """A module without parameters, so that its ops have a place."""
    parent, _, name = path.rpartition(".")
    try:
        holder = root.get_submodule(parent)
    except AttributeError:
        _add_empty(root, parent)
        holder = root.get_submodule(parent)
    if name and name not in dict(holder.named_children()):
        holder.add_module(name, torch.nn.Module())


def _user_inputs(program):
    """What stands for each input: a fake tensor with free extents, or a constant."""
    names = set(program.graph_signature.user_inputs)
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in names]
    values = [node.meta.get("val") for node in nodes]
    if not any(isinstance(value, torch.Tensor) and value.ndim for value in values):
        raise RequestError("no-inputs", "the exported program takes no tensor")
    return values


def _symbols(values):
    """Names of the free extents: the batch, and the length or None."""
    tensors = [value for value in values if isinstance(value, torch.Tensor) and value.ndim]
    found = []
    for tensor in sorted(tensors, key=lambda t: not isinstance(t.shape[0], torch.SymInt)):
        for extent in tensor.shape:
            if isinstance(extent, torch.SymInt):
                found += sorted(map(str, extent.node.expr.free_symbols))
    names = list(dict.fromkeys(found))
    if not names or not isinstance(tensors[0].shape[0], torch.SymInt):
        raise RequestError("static", "its batch is fixed")
    if len(names) > 2:
        raise RequestError("static", "it has %d free extents" % len(names))
    return names[0], names[1] if len(names) == 2 else None


def _sized(value, sizes):
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty([_extent(n, sizes) for n in value.shape], dtype=value.dtype, device="meta")


def _extent(extent, sizes):
    if not isinstance(extent, torch.SymInt):
        return int(extent)
    expression = extent.node.expr
    return int(expression.subs({s: sizes[str(s)] for s in expression.free_symbols}))


def _kind(first, program, has_length):
    if first.is_floating_point():
        return "image" if first.ndim == 4 else "features"
    outputs = next(node for node in program.graph.nodes if node.op == "output").args[0]
    value = outputs[0].meta.get("val") if outputs and hasattr(outputs[0], "meta") else None
    is_per_token = isinstance(value, torch.Tensor) and value.ndim == 3
    return "language" if has_length and is_per_token else "text"
