"""Models of Keras from their settings: sequential, functional, nested in each other.

Standard library and torch only. No code of a file is run: classes are looked up in tables.
"""

import keras_layers
import keras_noise
import keras_operations
import keras_sequences
import torch
from keras_context import Layer, refused
from rebuilt_program import FREE_BATCH, FREE_LENGTH, Program, Value

LAYERS = {**keras_layers.LAYERS, **keras_noise.LAYERS, **keras_sequences.LAYERS}
MODELS = ("Functional", "Model", "Sequential")
_MOST_LAYERS, _MOST_NESTED = 20_000, 20
#: Side of pictures whose extents a model leaves open.
_SIDE = 224


class Building:
    """A model that is being translated.

    Attributes:
        program: What it is translated into.
        side: Of square pictures, where one is asked for.
        taken: Extents that the model leaves open, in words.
    """

    def __init__(self, side=None):
        self.program, self.side, self.taken = Program(), side, []
        self._num_layers = self._depth = 0
        self.is_resized = False

    def outermost(self, serialized):
        """The outputs of a whole model, whose inputs are the program's."""
        kind, config = self.checked(serialized)
        if kind not in MODELS:
            raise refused("a `%s` is no model of layers" % kind)
        own = Layer(self, kind, config, "", config.get("trainable", True))
        try:
            return _Model(own, serialized).with_own_inputs()
        except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
            # What a layer can say of itself is said where it is called; this is what joins them.
            raise refused("its layers are joined in no way of Keras's (%s)" % error) from error

    def checked(self, serialized):
        """(class, settings) of what Keras wrote down, if it is of the library.

        Raises:
            RequestError: It is code of a user's own.
        """
        if not isinstance(serialized, dict) or not isinstance(serialized.get("config"), dict):
            raise refused("a layer of it has no settings")
        self._num_layers += 1
        if self._num_layers > _MOST_LAYERS:
            raise refused("it has more than %d layers" % _MOST_LAYERS)
        kind, config = str(serialized.get("class_name")), serialized["config"]
        kind = kind.rpartition(">")[2] if kind.startswith("Keras>") else kind
        name = config.get("name") or kind
        if kind == "Lambda":
            raise refused("layer `%s` is a Lambda: code in a file is not run" % name)
        module = str(serialized.get("module") or "keras")
        if ">" in kind or module.partition(".")[0] not in ("keras", "tf_keras", "builtins"):
            said = "layer `%s` is of a class of its own (`%s`): only its code says what it does"
            raise refused(said % (name, kind))
        return kind, config

    def opened(self, shape, dtype):
        """An input of the program: its first extent is the batch, one more may be a length."""
        if not isinstance(shape, (list, tuple)) or not 1 <= len(shape) <= 8:
            raise refused("an input of it has the shape %s" % (shape,))
        item = list(shape[1:])
        if any(n is not None and (not isinstance(n, int) or not 0 < n < 2**31) for n in item):
            raise refused("an input of it has the shape %s" % (shape,))
        if len(item) == 3:
            item = self._picture(item)
        elif item.count(None) == 1:
            item[item.index(None)] = FREE_LENGTH
        elif None in item:
            raise refused("an input of it leaves %d extents open" % item.count(None))
        kind = torch.int64 if str(dtype).startswith(("int", "uint", "bool")) else torch.float32
        if str(dtype) == "string":
            raise refused("an input of it is text, which is turned to numbers by code")
        return self.program.input((FREE_BATCH, *item), kind)

    def _picture(self, item):
        """Height and width as asked for, or of a usual size where they are left open."""
        first = 1 if item[0] in (1, 3) and item[2] not in (1, 3) else 0
        extents = item[first : first + 2]
        if self.side and (None in extents or extents[0] == extents[1]):
            extents, self.is_resized = [self.side] * 2, True
        elif None in extents:
            extents = [_SIDE if n is None else n for n in extents]
            self.taken.append("pictures of %d×%d" % tuple(extents))
        item[first : first + 2] = extents
        if None in item:
            raise refused("an input of it leaves its channels open")
        return item

    def called(self, layer, inputs, named):
        """What a layer gives."""
        if layer.kind in MODELS:
            return layer.once("model", lambda: _Model(layer, None)).on(inputs)
        function = LAYERS.get(layer.kind)
        if function is None:
            raise refused("layer `%s` is a `%s`, which is not read yet" % (layer.name, layer.kind))
        return _tried(function, layer, inputs, _telling(named))

    def operated(self, layer, inputs, named):
        """What an operation of ``keras.ops`` gives."""
        function = keras_operations.OPERATIONS.get(layer.kind)
        if function is None:
            said = "operation `%s` is a `keras.ops` `%s`, which is not read yet"
            raise refused(said % (layer.name, layer.kind))
        return _tried(function, layer, inputs, named)


def _telling(named):
    """Named arguments that change what is computed."""
    return {"is_causal": True} if named.get("use_causal_mask") else {}


def _tried(function, layer, inputs, named):
    try:
        return function(layer, *inputs, **named)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, OverflowError,
            NotImplementedError, KeyError) as error:  # fmt: skip
        shapes = ", ".join("×".join(map(str, one.shape[1:])) for one in inputs if _is_tensor(one))
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        said = "layer `%s` (%s) cannot take items of %s: %s"
        raise refused(said % (layer.name, layer.kind, shapes or "this kind", reason)) from error


def _is_tensor(value):
    return isinstance(value, Value) and hasattr(value.sample, "shape")


class _Model:
    """A model within a model, or the outermost one."""

    def __init__(self, layer, serialized):
        self._own, self._building = layer, layer.building
        self._serialized = serialized or {}
        listed = layer.get("layers")
        if not isinstance(listed, list) or not listed:
            raise refused("model `%s` has no layers" % layer.name)
        self._nodes, self._is_operation = {}, {}
        self.layers = {}
        for number, one in enumerate(listed):
            self._add(one, number)

    def _add(self, serialized, number):
        kind, config = self._building.checked(serialized)
        name = str(serialized.get("name") or config.get("name") or "%s%d" % (kind, number))
        if name in self.layers:
            raise refused("two of its layers are called `%s`" % name)
        path = ".".join(filter(None, (self._own.path, name.replace(".", "_").replace("/", "_"))))
        is_trained = self._own.is_trained
        self.layers[name] = Layer(self._building, kind, {**config, "name": name}, path, is_trained)
        module = str(serialized.get("module") or "")
        self._is_operation[name] = ".ops" in module
        self._nodes[name] = serialized.get("inbound_nodes") or []

    @property
    def _is_sequential(self):
        return self._own.kind == "Sequential"

    def with_own_inputs(self):
        """The outputs, of inputs that the program opens."""
        if not self._is_sequential:
            places = _places(self._own.get("input_layers"))
            inputs = [self._opened(name) for name, _, _ in places]
            return self.on(inputs)
        first = next(iter(self.layers.values()))
        if first.kind == "InputLayer":
            return self.on([self._opened(first.name)])
        shape = _first_shape(self._serialized, self._own, first)
        dtype = "int32" if first.kind == "Embedding" else "float32"
        return self.on([self._building.opened(shape, dtype)])

    def _opened(self, name):
        layer = self.layers.get(name)
        if layer is None or layer.kind != "InputLayer":
            raise refused("its input `%s` is no input layer" % name)
        shape = layer.get("batch_shape") or layer.get("batch_input_shape")
        return self._building.opened(shape, layer.get("dtype", "float32"))

    def on(self, inputs):
        """The outputs: one value, or several in the model's structure."""
        building = self._building
        building._depth += 1
        if building._depth > _MOST_NESTED:
            raise refused("its models are nested more than %d deep" % _MOST_NESTED)
        try:
            return self._in_turn(inputs) if self._is_sequential else self._as_graph(inputs)
        finally:
            building._depth -= 1

    def _in_turn(self, inputs):
        made = inputs[0] if len(inputs) == 1 else inputs
        for layer in self.layers.values():
            if layer.kind != "InputLayer":
                made = self._building.called(layer, _as_list(made), {})
        return made

    def _as_graph(self, inputs):
        places = _places(self._own.get("input_layers"))
        if len(places) != len(inputs):
            said = "model `%s` takes %d inputs and is given %d"
            raise refused(said % (self._own.name, len(places), len(inputs)))
        known = {(name, 0, 0): value for (name, _, _), value in zip(places, inputs)}
        waiting = _Waiting(self._nodes, known, self.layers)
        for name, number, node in waiting.ready():
            positional, named = _arguments(node, known)
            layer = self.layers[name]
            is_operation = self._is_operation[name]
            call = self._building.operated if is_operation else self._building.called
            made = call(layer, positional, named)
            for place, value in enumerate(_as_list(made)):
                known[name, number, place] = value
            waiting.done(name, number)
        outputs = _places(self._own.get("output_layers"))
        values = [known[place] if place in known else _unknown(place) for place in outputs]
        is_one = len(values) == 1
        return values[0] if is_one else values


def _unknown(place):
    raise refused("its output `%s` is made by no layer that its inputs reach" % (place[0],))


class _Waiting:
    """Nodes of a functional model, each as soon as what it reads is there."""

    def __init__(self, nodes, known, layers):
        self._left, self._readers, self._ready = {}, {}, []
        for name, calls in nodes.items():
            for number, node in enumerate(calls):
                if layers[name].kind == "InputLayer":
                    continue
                read = {(one[0], one[1]) for one in _read_by(node)}
                missing = read - {(one[0], one[1]) for one in known}
                self._left[name, number] = (node, missing)
                for one in missing:
                    self._readers.setdefault(one, []).append((name, number))
                if not missing:
                    self._ready.append((name, number))

    def ready(self):
        """(layer, number of its call, node), while there are any."""
        while self._ready:
            name, number = self._ready.pop(0)
            yield name, number, self._left[name, number][0]

    def done(self, name, number):
        """What waited for a call may go on."""
        for one in self._readers.get((name, number), ()):
            missing = self._left[one][1]
            missing.discard((name, number))
            if not missing:
                self._ready.append(one)


def _first_shape(serialized, own, first):
    """The shape of a sequential model without an input layer."""
    build = serialized.get("build_config") if isinstance(serialized, dict) else None
    shapes = (
        first.get("batch_input_shape"), own.get("build_input_shape"),
        (build or {}).get("input_shape"),
    )  # fmt: skip
    found = next((shape for shape in shapes if shape), None)
    if found is None:
        raise refused(
            "it was never built: nothing says what it takes (add `keras.Input(shape)` as its first)"
        )
    return found


def _places(given):
    """(layer, call, output) of each tensor that a model names, in any nesting."""
    if isinstance(given, dict):
        return [place for one in given.values() for place in _places(one)]
    if not isinstance(given, (list, tuple)):
        raise refused("it does not say what its inputs and outputs are")
    if len(given) == 3 and isinstance(given[0], str) and isinstance(given[1], int):
        return [(given[0], given[1], given[2])]
    return [place for one in given for place in _places(one)]


def _history(value):
    """The place of a tensor in the arguments of a call; None of all else."""
    if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
        history = (value.get("config") or {}).get("keras_history")
        if isinstance(history, (list, tuple)) and len(history) == 3:
            return (str(history[0]), history[1], history[2])
        raise refused("a tensor of it comes from nowhere")
    return None


def _read_by(node):
    """Places of all tensors that a call reads."""
    if isinstance(node, (list, tuple)):
        return [(str(one[0]), one[1], one[2]) for one in _old_style(node)]
    return _tensors([node.get("args"), node.get("kwargs")]) if isinstance(node, dict) else []


def _tensors(value):
    place = _history(value)
    if place is not None:
        return [place]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [place for one in value for place in _tensors(one)]
    return []


def _old_style(node):
    """Of Keras 2: a list of [layer, call, output, named arguments]."""
    good = all(isinstance(one, (list, tuple)) and len(one) >= 3 for one in node)
    if not good:
        raise refused("a call of it cannot be read")
    return node


def _arguments(node, known):
    """(positional, named) arguments of a call, lists of tensors spread out."""
    if isinstance(node, (list, tuple)):
        return [_value(known, (str(a[0]), a[1], a[2])) for a in _old_style(node)], {}
    args, named = node.get("args") or [], node.get("kwargs") or {}
    positional = []
    for one in args:
        value = _resolved(one, known)
        spreads = isinstance(value, list) and any(isinstance(v, Value) for v in value)
        positional += value if spreads else [value]
    named = {key: _resolved(one, known) for key, one in named.items()}
    for key in ("value", "key", "inputs", "x1", "x2", "x"):
        if isinstance(named.get(key), Value):
            positional.append(named.pop(key))
    return [one for one in positional if one is not None], named


def _resolved(value, known):
    place = _history(value)
    if place is not None:
        return _value(known, place)
    return [_resolved(one, known) for one in value] if isinstance(value, (list, tuple)) else value


def _value(known, place):
    if place not in known:
        raise refused("a layer of it reads what `%s` does not give" % (place[0],))
    return known[place]


def _as_list(made):
    return list(made) if isinstance(made, (list, tuple)) else [made]
