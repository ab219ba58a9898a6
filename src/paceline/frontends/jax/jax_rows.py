"""From a jaxpr to the rows of a trace: one per operation, loops unrolled as often as they run.

Standard library and jax only. Values are in single assignment, so a value lives from the operation
that makes it to the last that reads it. What XLA never moves by itself (reshapes, transposes,
broadcasts) is another view of the same bytes.
"""

import math

import numpy
from jax_primitives import (
    RANDOM,
    VIEWS,
    Refused,
    convolution_of,
    name_of,
    product_of,
    recurrent_of,
)  # fmt: skip

FORWARD, LOSS, BACKWARD, UPDATE = 0, 1, 2, 3
PARAMETER, GRADIENT, ACTIVATION, INPUT, BUFFER = 0, 1, 3, 4, 6
#: Where a loss is computed, in the names of operations.
LOSS_SCOPE = "paceline_loss"
_MOST_ROWS = 300_000
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_TRANSFORMS = ("jvp(", "transpose(", "vmap(", "checkpoint", "rematted_computation", "jit(")


class Value(object):
    """A view of a storage."""

    __slots__ = ("dtype", "is_parameter", "shape", "storage")

    def __init__(self, storage, shape, dtype, is_parameter=False):
        self.storage, self.shape, self.dtype = storage, tuple(shape), dtype
        self.is_parameter = is_parameter

    def seen(self, shape):
        """The same bytes in another shape."""
        return Value(self.storage, shape, self.dtype, self.is_parameter)


class Rows(object):
    """The rows of one traced pass."""

    def __init__(self):
        self.ops, self.names, self.dtypes, self.modules = [], {}, {}, {"": 0}
        self.tensor_storage, self.tensor_dtype, self.tensor_ndim, self.dims = [], [], [], []
        self.births, self.deaths, self.owners, self.trainable = [], [], [], []
        self.storage_dtype, self.storage_bytes = [], []
        self.recurrent = []
        #: Storages of numbers that follow from shapes alone, as a compiler knows them.
        self.known = set()

    def storage(self, shape, dtype, owner, birth=-1, is_trained=False):
        """A new storage, as a value."""
        self.births.append(birth)
        self.deaths.append(birth)
        self.owners.append(owner)
        self.trainable.append(int(is_trained))
        self.storage_dtype.append(self._dtype(dtype))
        self.storage_bytes.append(math.prod(shape) * _width(dtype))
        return Value(len(self.births) - 1, shape, dtype, owner == PARAMETER)

    def keep(self, values):
        """Values that outlive the pass."""
        for value in values:
            self.deaths[value.storage] = None

    def record(self, name, phase, module, inputs, outputs, attributes=()):
        """Append one operation."""
        if len(self.ops) >= _MOST_ROWS:
            raise Refused("its loops run more than %d operations" % _MOST_ROWS, "jax-loop")
        number = len(self.ops)
        for value in (*inputs, *outputs):
            if self.deaths[value.storage] is not None:
                self.deaths[value.storage] = number
        index = self.names.setdefault(name, len(self.names))
        module = self.modules.setdefault(module, len(self.modules))
        read, written = ([self._tensor(one) for one in many] for many in (inputs, outputs))
        self.ops.append([index, phase, module, read, written, list(attributes)])

    def made(self, aval):
        """A new result of the operation that is recorded next."""
        return self.storage(aval.shape, _name(aval.dtype), ACTIVATION, len(self.ops))

    def _tensor(self, value):
        self.tensor_storage.append(value.storage)
        self.tensor_dtype.append(self._dtype(value.dtype))
        self.tensor_ndim.append(len(value.shape))
        self.dims.extend(value.shape)
        return len(self.tensor_storage) - 1

    def _dtype(self, dtype):
        return self.dtypes.setdefault(dtype, len(self.dtypes))

    def topology(self):
        """What must not change with batch or length."""
        return {
            "names": list(self.names), "dtypes": list(self.dtypes),
            "element_bytes": [_width(one) for one in self.dtypes], "ops": self.ops,
            "tensor_storage": self.tensor_storage, "tensor_dtype": self.tensor_dtype,
            "tensor_ndim": self.tensor_ndim, "birth": self.births, "owner": self.owners,
            "trainable": self.trainable, "storage_dtype": self.storage_dtype,
        }  # fmt: skip

    def seen(self, number=int):
        """(topology, deaths, numbers), as a point of a trace has them.

        Args:
            number: From an extent to its number at the point.
        """
        deaths = [len(self.ops) if one is None else one for one in self.deaths]
        dims, sizes = ([number(one) for one in many] for many in (self.dims, self.storage_bytes))
        return self.topology(), deaths, {"dims": dims, "bytes": sizes}


class Walk(object):
    """One jaxpr after another into the same rows."""

    def __init__(self, rows):
        self.rows = rows

    def run(self, closed, given):
        """The outputs of a closed jaxpr for values."""
        constants = [self._constant(one) for one in closed.consts]
        return self._run(closed.jaxpr, constants, given)

    def _constant(self, one):
        dtype = _name(one.dtype if hasattr(one, "dtype") else numpy.asarray(one).dtype)
        return self.rows.storage(numpy.shape(one), dtype, BUFFER)

    def _run(self, jaxpr, constants, given, prefix=""):
        env = dict(zip(jaxpr.constvars, constants))
        env.update(zip(jaxpr.invars, given))
        for equation in jaxpr.eqns:
            read = [self._read(env, one) for one in equation.invars]
            stack = "/".join(filter(None, (prefix, str(equation.source_info.name_stack))))
            env.update(zip(equation.outvars, self._equation(equation, read, stack)))
        return [self._read(env, one) for one in jaxpr.outvars]

    def _read(self, env, one):
        if hasattr(one, "val"):
            return self.rows.storage(numpy.shape(one.val), _name(one.aval.dtype), BUFFER)
        return env[one]

    def _equation(self, equation, read, stack):
        name, params = equation.primitive.name, equation.params
        if name == "dim_as_value" or (read and all(one.storage in self.rows.known for one in read)):
            return [self._known(one.aval) for one in equation.outvars]
        if name == "scan":
            return self._scan(equation, read, stack)
        if name == "while":
            return self._while(equation, read, stack)
        if name == "cond":
            return self._cond(equation, read, stack)
        inner = next((params[key] for key in _INNER if key in params), None)
        if inner is not None:
            if str(params.get("name", "")) in RANDOM:
                return self._plain(equation, read, stack, "aten::bernoulli|")
            return self._inlined(inner, read, stack)
        if name in VIEWS:
            return [_view(read[0], one.aval) for one in equation.outvars]
        if name == "dot_general":
            return self._product(equation, read, stack)
        if name == "conv_general_dilated":
            return self._convolution(equation, read, stack)
        return self._plain(equation, read, stack, name_of(equation, read))

    def _known(self, aval):
        made = self.rows.storage(aval.shape, _name(aval.dtype), BUFFER)
        self.rows.known.add(made.storage)
        return made

    def _inlined(self, inner, read, stack):
        if hasattr(inner, "consts"):
            constants = [self._constant(one) for one in inner.consts]
            return self._run(inner.jaxpr, constants, read, stack)
        return self._run(inner, [], read, stack)

    def _plain(self, equation, read, stack, name):
        made = [self.rows.made(one.aval) for one in equation.outvars]
        inputs = [one for one in read if one.shape] or read
        self.rows.record(name, *_place(stack), inputs, made)
        if equation.primitive.name == "convert_element_type":
            made[0].is_parameter = read[0].is_parameter
        return made

    def _product(self, equation, read, stack):
        """A product in the form of a batch of matrices."""
        made = self.rows.made(equation.outvars[0].aval)
        batch, m, n, k = product_of(equation.params["dimension_numbers"], *read[:2])
        shapes = ((batch, m, k), (batch, k, n), (batch, m, n))
        name = "aten::bmm|"
        if batch == 1:
            name, shapes = "aten::mm|", tuple(one[1:] for one in shapes)
        left, right, out = (one.seen(s) for one, s in zip((*read[:2], made), shapes))
        self.rows.record(name, *_place(stack), [left, right], [out])
        return [made]

    def _convolution(self, equation, read, stack):
        made = self.rows.made(equation.outvars[0].aval)
        phase, module = _place(stack)
        found = convolution_of(equation.params, read, made, phase == BACKWARD)
        name, inputs, result, attributes = found
        self.rows.record(name, phase, module, inputs, [result], attributes)
        return [made]

    def _cond(self, equation, read, stack):
        """The branch that costs most: which is taken, data tells."""
        branches = equation.params["branches"]
        sizes = [_weight(one.jaxpr) for one in branches]
        chosen = branches[sizes.index(max(sizes))]
        return self._inlined(chosen, read[1:], stack)

    def _while(self, equation, read, stack):
        """A loop whose counter is compared with a constant."""
        params = equation.params
        count = _trips(equation)
        if count is None:
            message = "a `while_loop` of it ends when its data says so"
            raise Refused(message, "jax-loop")
        skipped = params["cond_nconsts"]
        constants = read[skipped : skipped + params["body_nconsts"]]
        carried = read[skipped + params["body_nconsts"] :]
        for _ in range(count):
            carried = self._inlined(params["body_jaxpr"], [*constants, *carried], stack)
        return carried

    def _scan(self, equation, read, stack):
        params = equation.params
        found = self._recurrent(equation, read, stack)
        if found is not None:
            return found
        first, carries = params["num_consts"], params["num_carry"]
        constants, carried = read[:first], read[first : first + carries]
        sequences = read[first + carries :]
        for _ in range(params["length"]):
            parts = [one.seen(one.shape[1:]) for one in sequences]
            made = self._inlined(params["jaxpr"], [*constants, *carried, *parts], stack)
            carried = made[:carries]
        stacked = []
        for one in equation.outvars[carries:]:
            # What each step writes is a part of one result.
            value = self.rows.made(one.aval)
            stacked.append(value)
        if stacked:
            self.rows.record("jax::stacked_in_place|", *_place(stack), [], stacked[:1])
        return [*carried, *stacked]

    def _recurrent(self, equation, read, stack):
        """A recurrent layer, as one operation; None for another scan."""
        phase, module = _place(stack)
        found = recurrent_of(equation, read, phase == BACKWARD, self.rows.recurrent)
        if found is None:
            return None
        attributes, data = found
        made = [self.rows.made(one.aval) for one in equation.outvars]
        self.rows.recurrent.append((equation.params["length"], attributes, data))
        name = "paceline::recurrent" + ("_backward" if phase == BACKWARD else "")
        others = [one for one in read if one is not data and one.shape]
        # What every step writes stands before the last states.
        written = sorted(made, key=lambda one: -len(one.shape))
        self.rows.record(name, phase, module, [data, *others], written, attributes)
        return made


def _weight(jaxpr):
    """Products and convolutions of a branch, to compare branches by."""
    total = len(jaxpr.eqns)
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "conv_general_dilated"):
            total += math.prod(equation.outvars[0].aval.shape) * 1000
        for key in _INNER:
            inner = equation.params.get(key)
            if inner is not None:
                total += _weight(getattr(inner, "jaxpr", inner))
    return total


def _trips(equation):
    """How often a counted loop runs: ``i < n`` with constants for the start and the end."""
    params = equation.params
    condition, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
    comparisons = [one for one in condition.eqns if one.primitive.name in ("lt", "le", "gt", "ge")]
    if len(condition.eqns) != 1 or len(comparisons) != 1:
        return None
    name, (left, right) = comparisons[0].primitive.name, comparisons[0].invars
    if name in ("gt", "ge"):
        left, right, name = right, left, {"gt": "lt", "ge": "le"}[name]
    outer = [*equation.invars[: params["cond_nconsts"]],
             *equation.invars[params["cond_nconsts"] + params["body_nconsts"] :]]  # fmt: skip
    places = {variable: n for n, variable in enumerate(condition.invars)}
    start = _number(outer[places[left]]) if left in places else None
    end = _number(right) if hasattr(right, "val") else None
    if end is None and right in places:
        end = _number(outer[places[right]])
    step = _step(body, places.get(left, 0) - params["cond_nconsts"], params["body_nconsts"])
    if start is None or end is None or not step:
        return None
    return max(0, math.ceil((end - start + (name == "le")) / step))


def _number(one):
    """The number of a literal; None where data tells."""
    value = getattr(one, "val", None)
    return None if value is None or numpy.size(value) != 1 else int(numpy.asarray(value))


def _step(body, place, constants):
    """What the body adds to its counter."""
    counter = body.invars[constants + place]
    for equation in body.eqns:
        is_sum = equation.primitive.name == "add" and equation.outvars[0] is body.outvars[place]
        if is_sum and counter in equation.invars:
            other = next(one for one in equation.invars if one is not counter)
            return _number(other)
    return None


def _view(value, aval):
    return Value(value.storage, aval.shape, value.dtype, value.is_parameter)


def _place(stack):
    """(phase, module) from the names that JAX gives an operation."""
    phase = BACKWARD if "transpose(" in stack else LOSS if LOSS_SCOPE in stack else FORWARD
    path = stack
    for one in _TRANSFORMS:
        path = path.replace(one, "")
    parts = [one.strip("()") for one in path.split("/")]
    return phase, ".".join(one for one in parts if one and one != LOSS_SCOPE)


def _name(dtype):
    """PyTorch's name of an element type; keys of random numbers are two words."""
    name = str(dtype)
    if name.startswith("key<"):
        return "int64"
    return {"uint32": "int32", "uint64": "int64", "uint16": "int16", "complex128": "complex64",
            "int4": "int8", "uint4": "uint8"}.get(name, name)  # fmt: skip


def _width(name):
    return {"bool": 1, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
            "complex64": 8}.get(name) or numpy.dtype(name).itemsize  # fmt: skip
