"""A model as a list of operators: (operator, inputs, attributes), run as torch functions on meta.

Standard library and torch only. A front end translates: it declares inputs and parameters, and
calls `Program.run` for one operator after another. Each is run once at once, on meta tensors of a
small batch, so that a translation may look at the ``shape`` of what it has. `Program.model` then
runs the same operators at any batch and length. What follows the batch must therefore be read from
tensors when an operator runs, never be written down as a number by the translation.
"""

import torch
from torch_entries.request_errors import RequestError
from torch_tracing.stand_ins import Canonical

#: Batch and length that a translation sees: no extents that models usually have.
BATCH, LENGTH = 3, 11
#: Stands in a shape for the extents that are free.
FREE_BATCH, FREE_LENGTH = "batch", "length"
MOST_OPERATORS = 50_000
MOST_ELEMENTS = 10**14


class Training:
    """Stands among attributes for whether the model is being trained."""


class Value:
    """What an operator gives: a tensor, or a number known without running.

    Attributes:
        sample: Of `BATCH` items of `LENGTH`.
    """

    __slots__ = ("index", "sample")

    def __init__(self, index, sample):
        self.index, self.sample = index, sample

    @property
    def shape(self):
        """Extents of the sample."""
        return tuple(self.sample.shape)


class _Operator:
    """One operator with what it reads, and the places of what it gives."""

    __slots__ = ("attributes", "drops", "function", "inputs", "outputs", "scope")

    def __init__(self, function, inputs, attributes, scope):
        self.function, self.inputs, self.attributes = function, inputs, attributes
        self.scope, self.outputs, self.drops = scope, None, ()


class _Scope(torch.nn.Module):
    """A module of the rebuilt model: holds parameters, and runs the operators that are its own."""

    def forward(self, function, inputs, attributes):
        """One operator."""
        return function(*inputs, **attributes)


class Program:
    """Operators in the order in which they run.

    Attributes:
        inputs: (value, shape with `FREE_BATCH` and `FREE_LENGTH`, dtype) of each input.
        root: Modules that hold the parameters, by the paths that operators were given.
    """

    def __init__(self):
        self.inputs = []
        self.root = _Scope()
        self._operators = []
        self._scopes = {"": self.root}
        self._num_values = 0
        self._num_elements = 0

    def input(self, shape, dtype=torch.float32):
        """An input of the model."""
        value = self._value(sized(shape, dtype, BATCH, LENGTH))
        self.inputs.append((value, tuple(shape), dtype))
        return value

    def parameter(self, path, name, shape, is_trained=True):
        """A weight of the module at ``path`` (names joined by dots)."""
        tensor = torch.nn.Parameter(self._empty(shape), requires_grad=is_trained)
        self.scope(path).register_parameter(name.replace(".", "_"), tensor)
        return tensor

    def buffer(self, path, name, shape):
        """A tensor of the module at ``path`` that no gradient reaches."""
        tensor = self._empty(shape)
        self.scope(path).register_buffer(name.replace(".", "_"), tensor)
        return tensor

    def scope(self, path):
        """The module at a path."""
        if path not in self._scopes:
            parent, _, name = path.rpartition(".")
            scope = self._scopes[path] = _Scope()
            holder = self.scope(parent)
            taken = name in holder._modules or hasattr(holder, name) or not name
            holder.add_module(name + "_" if taken else name, scope)
        return self._scopes[path]

    def run(self, function, *inputs, path="", **attributes):
        """What ``function`` gives of its inputs, as a `Value` or a tuple of them.

        Args:
            function: Of torch, or of tensors.
            inputs: Values, parameters, numbers, or lists of them.
            path: The module that it belongs to.
            attributes: Named arguments; `Training` for whether the model is being trained.
        """
        operator = _Operator(function, inputs, attributes, self.scope(path))
        if len(self._operators) >= MOST_OPERATORS:
            raise RequestError("bad-model", "it has more than %d operators" % MOST_OPERATORS)
        with torch.no_grad(), Canonical(_Unrecorded()):
            made = function(
                *_resolved(inputs, lambda value: value.sample), **_named(attributes, True)
            )
        self._operators.append(operator)
        operator.outputs = _placed(made, self._value)
        return operator.outputs

    def model(self, outputs):
        """The module that runs the operators, and gives ``outputs``: a value, or some in a list."""
        return RebuiltModel(self.root, self._operators, [one[0] for one in self.inputs], outputs)

    def _value(self, sample):
        self._num_values += 1
        return Value(self._num_values - 1, sample)

    def _empty(self, shape):
        elements = 1
        for extent in shape:
            elements *= int(extent)
        self._num_elements += elements
        if any(int(n) < 1 for n in shape) or self._num_elements > MOST_ELEMENTS:
            said = "it has a weight of %s elements" % "×".join(str(n) for n in shape)
            raise RequestError("bad-model", said)
        return torch.empty([int(n) for n in shape], device="meta")


class RebuiltModel(torch.nn.Module):
    """A program as a module: what nothing reads any more is given up at once."""

    def __init__(self, root, operators, inputs, outputs):
        super().__init__()
        for name, child in root.named_children():
            self.add_module(name, child)
        for name, parameter in root.named_parameters(recurse=False):
            self.register_parameter(name, parameter)
        self._inputs, self._outputs = inputs, outputs
        self._operators = _needed(operators, outputs)

    def forward(self, *inputs):
        """The outputs.

        Raises:
            RequestError: The operators fit each other at the batch of a translation alone.
        """
        known = {value.index: tensor for value, tensor in zip(self._inputs, inputs)}
        batch = inputs[0].shape[0]
        del inputs
        try:
            return self._run(known)
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            at = "its layers do not fit each other at batch %d: %s" % (batch, said[:300])
            raise RequestError("bad-model", at) from error

    def _run(self, known):
        for one in self._operators:
            read = _resolved(one.inputs, lambda value: known[value.index])
            made = one.scope(one.function, read, _named(one.attributes, self.training))
            _keep(known, one.outputs, made)
            del read, made
            for index in one.drops:
                known.pop(index, None)
        return _resolved(self._outputs, lambda value: known[value.index])


def sized(shape, dtype, batch, length):
    """An uninitialised tensor on meta."""
    free = {FREE_BATCH: batch, FREE_LENGTH: length}
    return torch.empty([free.get(n, n) for n in shape], dtype=dtype, device="meta")


class _Unrecorded:
    """What stand-ins are given while a translation looks at shapes."""

    def paused(self):
        """Nothing is recorded anyway."""
        return torch.no_grad()

    def record(self, *_what):
        """Nothing."""


def _resolved(structure, of_value):
    if isinstance(structure, Value):
        return of_value(structure)
    if isinstance(structure, (list, tuple)):
        return type(structure)(_resolved(one, of_value) for one in structure)
    return structure


def _named(attributes, is_training):
    return {key: is_training if one is Training else one for key, one in attributes.items()}


def _placed(made, new):
    if isinstance(made, (list, tuple)) and any(isinstance(one, torch.Tensor) for one in made):
        return tuple(_placed(one, new) for one in made)
    return new(made)


def _keep(known, places, made):
    if isinstance(places, Value):
        known[places.index] = made
        return
    for place, one in zip(places, made):
        _keep(known, place, one)


def _needed(operators, outputs):
    """The operators that the outputs need, with what is given up after each."""
    alive, needed = set(_indices(outputs)), []
    kept = frozenset(alive)
    for one in reversed(operators):
        made = set(_indices(one.outputs))
        if not made & alive:
            continue
        read = set(_indices(one.inputs))
        one.drops = tuple(((read - alive) | (made - alive)) - kept)
        alive |= read
        needed.append(one)
    return needed[::-1]


def _indices(structure):
    if isinstance(structure, Value):
        return [structure.index]
    if isinstance(structure, (list, tuple)):
        return [index for one in structure for index in _indices(one)]
    return []
