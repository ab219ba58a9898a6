"""From what a user's function returns to functions of shapes: Flax (nnx, linen), Equinox, plain.

Standard library, jax and the library of the model only. A model is built by `jax.eval_shape`, so
that its weights exist as shapes; only where its code reads numbers is it built as it is.
"""

import contextlib
import importlib
import inspect
import math
import sys

import jax
import jax.numpy as jnp
from jax_primitives import Refused
from jax_rows import (
    BUFFER,
    GRADIENT,
    INPUT,
    LOSS_SCOPE,
    PARAMETER,
    UPDATE,
    Rows,
    Walk,
    _name,
)  # fmt: skip

#: Optimizers by the states that optax keeps for them.
_OPTIMIZERS = (
    ("ScaleByLionState", "lion"), ("FactoredState", "adafactor"), ("ScaleByRssState", "adagrad"),
    ("ScaleByRmsState", "rmsprop"), ("ScaleByRStdDevState", "rmsprop"),
    ("ScaleByAdaDeltaState", "adadelta"), ("ScaleByAdamState", "adamw"), ("TraceState",
    "sgd-momentum"),
)  # fmt: skip
#: Arguments by which models are told that they train, and whether they mean the opposite.
_MODES = (("train", False), ("training", False), ("is_training", False), ("deterministic", True),
          ("inference", True), ("use_running_average", True))  # fmt: skip


def subject_of(request):
    """The model that ``module:name``, with or without ``jax:`` before it, names."""
    entry = request["entry"]
    entry = entry[4:] if entry.startswith("jax:") else entry
    from torch_entries.made_models import imported

    return Subject(imported(entry, request), request)


class Subject(object):
    """A model, its inputs, its loss, its optimizer.

    Attributes:
        kind: What a sample is: ``image``, ``features``, ``text`` or ``language``.
        has_seq: Whether its inputs have a length.
        shape: Of one item, None for tokens.
        taken: What was assumed, in words.
    """

    def __init__(self, made, request):
        self.taken = []
        workload, self._model = _built(made)
        self._inputs = getattr(workload, "inputs", None) or getattr(self._model, "inputs", None)
        if self._inputs is None:
            raise Refused("the inputs of the model cannot be guessed", "no-inputs")
        self.has_seq = _num_arguments(self._inputs) > 1
        self._loss = getattr(workload, "loss", None)
        self._optimizer = getattr(workload, "optimizer", None)
        first = jax.tree.leaves(self.inputs(2, 16))[0]
        self._functions = _functions_of(self._model, workload, self.inputs(2, 16))
        self.num_parameters = sum(
            math.prod(one.shape) for one in jax.tree.leaves(self._functions.parameters)
        )
        self.kind = getattr(workload, "kind", None) or self._guessed_kind(first)
        is_sized = jnp.issubdtype(first.dtype, jnp.floating) and not self.has_seq
        self.shape = list(first.shape[1:]) if is_sized else None
        sizes = first.shape[1:-1] if len(first.shape) > 3 else first.shape[1:]
        self.described = "×".join(map(str, sizes)) if is_sized else "tokens"

    def _guessed_kind(self, first):
        if jnp.issubdtype(first.dtype, jnp.floating):
            return "image" if len(first.shape) == 4 else "features"
        out = jax.eval_shape(
            lambda p, s, x: self._functions.call(p, s, x, False)[0],
            self._functions.parameters, self._functions.state, self.inputs(2, 16),
        )  # fmt: skip
        ndim = max(len(one.shape) for one in jax.tree.leaves(out))
        return "language" if self.has_seq and ndim == 3 else "text"

    def inputs(self, batch, seq):
        """Shapes of a batch."""
        given = (batch, seq) if self.has_seq else (batch,)
        made = jax.eval_shape(lambda: _arrays(self._inputs(*given)))
        return made if isinstance(made, tuple) else (made,)

    def rows(self, task, batch, seq):
        """The rows of one execution."""
        return self.rows_of(task, self.inputs(batch, seq))

    def rows_of(self, task, inputs):
        """The rows of one execution on inputs of such shapes."""
        rows, functions = Rows(), self._functions
        trains = task == "train"
        leaves = [
            _placed(rows, functions.parameters, PARAMETER, trains),
            _placed(rows, functions.state, BUFFER, trains),
            _placed(rows, inputs, INPUT, trains),
        ]
        flat = [one for tree in leaves for one in tree]
        if task == "infer":
            closed = jax.make_jaxpr(lambda p, s, x: functions.call(p, s, x, False)[0])(
                functions.parameters, functions.state, inputs
            )
            rows.keep(Walk(rows).run(closed, flat))
            rows.keep([*leaves[0], *leaves[1], *leaves[2]])
            return rows
        closed, _ = jax.make_jaxpr(jax.value_and_grad(self._mean_loss), return_shape=True)(
            functions.parameters, functions.state, inputs
        )
        made = Walk(rows).run(closed, flat)
        gradients = made[1:]
        for one in gradients:
            if rows.owners[one.storage] not in (PARAMETER, INPUT):
                rows.owners[one.storage] = GRADIENT
        updated = leaves[0]
        name = "paceline::optimizer|" + self._optimizer_name()
        rows.record(name, UPDATE, "", [*updated, *gradients], updated)
        rows.keep([*flat, *made])
        return rows

    def _mean_loss(self, parameters, state, inputs):
        output, labels = self._functions.call(parameters, state, inputs, True)
        with jax.named_scope(LOSS_SCOPE):
            if self._loss is not None:
                value = self._loss(output, inputs if len(inputs) > 1 else inputs[0])
                return jnp.mean(value)
            return _usual_loss(output, labels)

    def _optimizer_name(self):
        """Of an optax transformation by its states; empty where the job's is meant."""
        given = self._optimizer
        if given is None or isinstance(given, str):
            return given or ""
        state = jax.eval_shape(given.init, self._functions.parameters)
        kinds = {type(one).__name__ for one in _nodes(state)}
        return next((name for kind, name in _OPTIMIZERS if kind in kinds), "sgd")


def _nodes(tree):
    """Every tuple of a nested state."""
    found = [tree]
    if isinstance(tree, (tuple, list)):
        for one in tree:
            found += _nodes(one)
    elif isinstance(tree, dict):
        for one in tree.values():
            found += _nodes(one)
    elif hasattr(tree, "inner_state"):
        found += _nodes(tree.inner_state)
    return found


def _usual_loss(output, _labels):
    """Mean cross-entropy of every tensor of scores."""
    total = 0.0
    for scores in jax.tree.leaves(output):
        if not jnp.issubdtype(scores.dtype, jnp.floating):
            continue
        rows = scores.reshape(-1, scores.shape[-1]) if scores.ndim else scores.reshape(1, 1)
        labels = jnp.zeros((rows.shape[0],), jnp.int32)
        logs = jax.nn.log_softmax(rows)
        total = total - jnp.take_along_axis(logs, labels[:, None], 1).mean()
    return total


class _Functions(object):
    """What a model of a library does, as a function of parameters, state and inputs."""

    def __init__(self, parameters, state, call):
        self.parameters, self.state = parameters, state
        self._call = call

    def call(self, parameters, state, inputs, trains):
        """(output, what the model did not take)."""
        return self._call(parameters, state, inputs, trains), None


def _functions_of(model, workload, inputs):
    packages = {one.__module__ for one in type(model).__mro__}
    if any(one.startswith("flax.nnx") for one in packages):
        return _of_nnx(model)
    if any(one.startswith("flax.linen") for one in packages):
        return _of_linen(model, inputs)
    if any(one.startswith("equinox") for one in packages):
        return _of_equinox(model, workload)
    parameters = getattr(workload, "params", getattr(workload, "parameters", None))
    parameters = parameters() if callable(parameters) else parameters
    shapes = {} if parameters is None else jax.eval_shape(lambda: _arrays(parameters))

    def call(given, _state, batch, _trains):
        return model(given, *batch) if parameters is not None else model(*batch)

    return _Functions(shapes, {}, call)


def _of_nnx(model):
    from flax import nnx

    def modes(trains):
        """The model as it trains or rests, in parts."""
        twin = nnx.clone(model) if hasattr(nnx, "clone") else model
        (twin.train if trains else twin.eval)()
        return nnx.split(twin, nnx.Param, ...)

    kept = {trains: modes(trains)[0] for trains in (False, True)}
    _, parameters, state = modes(True)

    def call(given, rest, batch, trains):
        whole = nnx.merge(kept[trains], given, rest, copy=True)
        return whole(*_taken(type(whole).__call__, batch, 1))

    # Parameters and states are trees of arrays; keys of random numbers stay what they are.
    return _Functions(parameters, state, call)


def _of_linen(model, inputs):
    positional = _taken(type(model).__call__, inputs, 1)
    keys = {name: jax.random.key(n) for n, name in enumerate(("params", "dropout", "noise"))}
    variables = jax.eval_shape(
        lambda *x: model.init(keys, *x, **_mode(type(model).__call__, False)), *positional
    )
    variables = dict(variables)
    parameters = variables.pop("params", {})

    def call(given, state, batch, trains):
        named = _mode(type(model).__call__, trains)
        everything = {"params": given, **state}
        taken = _taken(type(model).__call__, batch, 1)
        if not trains:
            return model.apply(everything, *taken, **named)
        rngs = {name: key for name, key in keys.items() if name != "params"}
        return model.apply(everything, *taken, rngs=rngs, mutable=list(state), **named)[0]

    return _Functions(parameters, variables, call)


def _of_equinox(model, workload):
    import equinox

    state = getattr(workload, "state", None)
    # A model made by `eval_shape` has shapes in the place of arrays.
    is_number = lambda one: isinstance(one, jax.ShapeDtypeStruct) or equinox.is_array(one)  # noqa: E731
    parameters, rest = equinox.partition(
        model, lambda one: is_number(one) and jnp.issubdtype(one.dtype, jnp.inexact)
    )
    states, _ = equinox.partition(state, is_number) if state is not None else ({}, None)

    def call(given, kept, batch, trains):
        whole = equinox.combine(given, rest)
        whole = equinox.nn.inference_mode(whole, value=not trains)
        forward = type(model).__call__
        taken, names = _taken(forward, batch, 1), inspect.signature(forward).parameters
        named = {}
        if "key" in names:
            named["key"] = jax.random.key(0)
        if state is not None:
            held = equinox.combine(kept, equinox.partition(state, is_number)[1])
            mapped = jax.vmap(lambda *x: whole(*x, held, **named), axis_name="batch",
                              out_axes=(0, None))  # fmt: skip
            return mapped(*taken)[0]
        return jax.vmap(lambda *x: whole(*x, **named))(*taken)

    return _Functions(parameters, states, call)


def _mode(forward, trains):
    """The argument by which a model is told that it trains, where it has one."""
    names = inspect.signature(forward).parameters
    return {name: trains != is_opposite for name, is_opposite in _MODES if name in names}


def _taken(forward, batch, skipped):
    """As many of the inputs as the model takes: what is left is for the loss."""
    parameters = list(inspect.signature(forward).parameters.values())[skipped:]
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return batch
    settings = {name for name, _ in _MODES} | {"key", "state", "rngs"}
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY,
              one.POSITIONAL_OR_KEYWORD) and one.name not in settings]  # fmt: skip
    needed = [one for one in places if one.default is one.empty]
    return batch[: max(len(needed), 1)] if len(needed) < len(batch) else batch[: len(places)]


class _Plain(object):
    """What a function returned, as an object with attributes."""

    def __init__(self, **given):
        self.__dict__.update(given)


def _built(made):
    """(workload, model) of what a user's name stands for."""
    if _is_model(made):
        return _Plain(), made
    if callable(made) and not isinstance(made, dict):
        made = _by_shapes(made)
    if isinstance(made, dict):
        made = _Plain(**made)
    if isinstance(made, (tuple, list)) and made and _is_model(made[0]):
        made = _with_second(*made)
    if _is_model(made):
        return _Plain(), made
    model = getattr(made, "model", None)
    if model is None:
        model = getattr(made, "function", None)
    if model is None:
        raise Refused("it gives %s, not a model" % type(made).__name__, "no-model")
    return made, model


def _with_second(model, second=None, *_more):
    """A model with what comes after it: an example batch, or the state of one of Equinox."""
    if _packages(second) & {"equinox"} or second is None:
        return _Plain(model=model, state=second)
    leaves = jax.tree.leaves(second)
    wrong = next((one for one in leaves if not getattr(one, "shape", ())), None)
    if not leaves or wrong is not None or isinstance(second, dict):
        said = "beside the model it gives %s, not an example batch: an array, or a tuple of arrays"
        raise Refused(said % (repr(second)[:60]), "no-inputs")
    shaped = jax.ShapeDtypeStruct

    def inputs(batch):
        """The second input with another batch wherever it has the first one."""
        sizes = {leaves[0].shape[0]: batch}
        return jax.tree.map(
            lambda x: shaped((sizes.get(x.shape[0], x.shape[0]), *x.shape[1:]), x.dtype), second
        )

    return _Plain(model=model, inputs=inputs)


def _packages(made):
    return {one.__module__.partition(".")[0] for one in type(made).__mro__}


def _is_model(made):
    return bool(_packages(made) & {"flax", "equinox"})


def _by_shapes(function):
    """Call a function; where it returns nothing but a model, its weights exist as shapes only."""
    if not isinstance(function, type):
        for library, name in (("flax", "nnx"), ("equinox", "")):
            if library not in sys.modules:
                continue
            module = importlib.import_module("%s.%s" % (library, name) if name else library)
            shapes = getattr(module, "filter_eval_shape", None) or module.eval_shape
            with contextlib.suppress(Exception):
                made = shapes(function)
                if _is_model(made) and _is_right(made, library):
                    return made
    return function()


def _is_right(made, library):
    return any(one.__module__.startswith(library) for one in type(made).__mro__)


def _arrays(value):
    """Shapes and arrays as arrays."""
    return jax.tree.map(
        lambda one: jnp.zeros(one.shape, one.dtype) if hasattr(one, "dtype") else jnp.asarray(one),
        value, is_leaf=lambda one: isinstance(one, jax.ShapeDtypeStruct),
    )  # fmt: skip


def _placed(rows, tree, owner, trains):
    made = []
    for one in jax.tree.leaves(tree):
        is_trained = owner == PARAMETER and trains
        made.append(rows.storage(one.shape, _name(one.dtype), owner, -1, is_trained))
    return made


def _num_arguments(function):
    parameters = inspect.signature(function).parameters.values()
    return sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)
