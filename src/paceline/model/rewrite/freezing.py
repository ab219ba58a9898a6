"""Freeze modules, or all beside a prefix: no gradients, nor work and memory that only those need.

A backward op stays if something it writes is still needed: a gradient of a trainable parameter, or
what a needed op reads. Activations that were kept only for removed ops die in the forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from paceline.columns import join_tables
from paceline.errors import InvalidInputError
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, IntArray, OpKind, Owner, Phase
from paceline.model.graph.polynomial import constant
from paceline.model.graph.program import OUTLIVES, Accesses, BoolArray, Program
from paceline.model.ops.registry import kinds_where
from paceline.model.rewrite.draft import Draft, matmul_dims
from paceline.model.rewrite.optimizer import optimizer_by_variant
from paceline.values import dataclass

#: Before a pattern of what stays trained.
EXCEPT = "except:"
#: Backward ops that compute those gradients that are asked for.
_MASKED = kinds_where(lambda facts: facts.masks_gradients)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Updates:
    """What optimizer ops update, one row per parameter.

    Attributes:
        op: Optimizer op, (num_parameters,).
        parameter: Storage of each parameter.
        gradient: Storage of its gradient.
        state: Storages of its state, (num_parameters, states per parameter).
    """

    op: IntArray
    parameter: IntArray
    gradient: IntArray
    state: IntArray


def updates_of(program: Program, op: int) -> Updates:
    """The parameters, gradients and states of one optimizer op, in its order."""
    read = program.reads.storage[program.reads.op == op]
    owner = program.stores.owner[read]
    parameters = read[owner == Owner.PARAMETER]
    gradients = read[len(parameters) : 2 * len(parameters)]
    num_states = len(read) // len(parameters) - 2 if len(parameters) else 0
    states = read[2 * len(parameters) :].reshape(num_states, len(parameters)).T
    return Updates(
        op=np.full(len(parameters), op), parameter=parameters, gradient=gradients, state=states
    )


def frozen(program: Program, patterns: Sequence[str]) -> Program:
    """``program`` with the modules that match a pattern frozen.

    Args:
        program: Of a training step; ordered.
        patterns: Of dotted module paths (``features``, ``layers.*``); a pattern holds for what is
            below a module too. One after ``except:`` names what stays trained, of the others or,
            without others, of everything: ``except:fc`` trains a head.

    Raises:
        InvalidInputError: A pattern matches no module with parameters, or nothing is left to train.
    """
    chosen = _matching_parameters(program, patterns)
    return without_gradients(program, chosen)


def stays_trained(program: Program, patterns: Sequence[str]) -> BoolArray:
    """Parameters that stay trained beside adapters, a mask over storages.

    Args:
        program: Of a training step; ordered.
        patterns: As of `frozen`; those after ``except:`` count. An embedding that is tied to the
            head has one name of the two, so that not each of them has to match.

    Raises:
        InvalidInputError: None matches a module with parameters.
    """
    module = _module_of_parameter(program)
    kept = [pattern.removeprefix(EXCEPT) for pattern in patterns if pattern.startswith(EXCEPT)]
    hits = np.array([matches(path, kept) for path in program.modules])
    if kept and not (hits[module[module >= 0]]).any():
        _of_pattern(program, module, kept[0])
    found: BoolArray = (module >= 0) & hits[np.maximum(module, 0)]
    return found


def without_gradients(program: Program, parameters: BoolArray) -> Program:
    """``program`` with some parameters (a mask over storages) no longer trained."""
    updates = [updates_of(program, op) for op in _optimizer_ops(program)]
    stores = program.stores
    trained = stores.is_trainable & ~parameters & (stores.owner == Owner.PARAMETER)
    if not trained.any():
        raise InvalidInputError("nothing is left to train", hint="freeze fewer modules")
    gone = np.zeros(len(stores), dtype=bool)
    for one in updates:
        is_gone = parameters[one.parameter]
        gone[one.gradient[is_gone]] = True
        gone[one.state[is_gone].ravel()] = True
    was_needed = _needed(program, np.zeros_like(gone))
    program = _without_updates(program, gone, parameters)
    return _without_dead_ops(program, gone, was_needed)


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a module, or one above it, matches a pattern.

    >>> matches("features.3", ["features"]), matches("classifier.6", ["features.*"])
    (True, False)
    """
    return any(fnmatchcase(path, p) or fnmatchcase(path, f"{p}.*") for p in patterns)


def _module_of_parameter(program: Program) -> IntArray:
    """Module of the first op that reads each parameter; -1 for all other storages."""
    module = np.full(len(program.stores), -1)
    is_forward = program.ops.phase[program.reads.op] == Phase.FORWARD
    rows = np.flatnonzero(is_forward)[::-1]
    module[program.reads.storage[rows]] = program.ops.module[program.reads.op[rows]]
    return np.where(program.stores.owner == Owner.PARAMETER, module, -1)


def _matching_parameters(program: Program, patterns: Sequence[str]) -> BoolArray:
    """Parameters of what the plain patterns name, less what those after ``except:`` name."""
    module = _module_of_parameter(program)
    kept = [pattern.removeprefix(EXCEPT) for pattern in patterns if pattern.startswith(EXCEPT)]
    named = [pattern for pattern in patterns if not pattern.startswith(EXCEPT)]
    chosen = module >= 0
    if named:
        chosen = np.any([_of_pattern(program, module, one) for one in named], axis=0)
    for one in kept:
        chosen = chosen & ~_of_pattern(program, module, one)
    return chosen


def _of_pattern(program: Program, module: IntArray, pattern: str) -> BoolArray:
    hits = np.array([matches(path, [pattern]) for path in program.modules])
    found: BoolArray = (module >= 0) & hits[np.maximum(module, 0)]
    if not found.any():
        raise InvalidInputError(
            f"no module with parameters matches `{pattern}`",
            hint=f"the outermost modules are {_outermost(program)}; several patterns are joined "
            "by `|`",
        )
    return found


def _outermost(program: Program) -> str:
    names = dict.fromkeys(path.partition(".")[0] for path in program.modules if path)
    return ", ".join(f"`{name}`" for name in list(names)[:12])


def _optimizer_ops(program: Program) -> list[int]:
    ops: list[int] = np.flatnonzero(program.ops.kind == OpKind.OPTIMIZER).tolist()
    return ops


def _without_updates(program: Program, gone: BoolArray, parameters: BoolArray) -> Program:
    """Optimizer ops no longer touch what is gone, nor the parameters that stay as they are."""
    is_update = program.ops.kind == OpKind.OPTIMIZER
    untouched = gone | parameters
    stores = program.stores
    elements = np.where(gone[:, None], 0.0, stores.elements)
    owner = np.where(gone & (stores.owner == Owner.GRADIENT), int(Owner.ACTIVATION), stores.owner)
    trainable = stores.is_trainable & ~parameters
    program = replace(
        program,
        reads=program.reads.kept(~(is_update[program.reads.op] & untouched[program.reads.storage])),
        writes=program.writes.kept(
            ~(is_update[program.writes.op] & untouched[program.writes.storage])
        ),
        stores=replace(stores, elements=elements, owner=owner, is_trainable=trainable),
    )
    return replace(program, dims=_update_dims(program))


def _update_dims(program: Program) -> np.ndarray:
    dims = program.dims.copy()
    for op in _optimizer_ops(program):
        one = updates_of(program, op)
        row = program.ops.dims[op]
        num_elements = program.stores.elements[one.parameter, 0].sum()
        dims[row, :3, 0] = num_elements, len(one.parameter), one.state.size
    return dims


def _without_dead_ops(program: Program, gone: BoolArray, was_needed: BoolArray) -> Program:
    """Remove ops that nothing needs any more; storages die with the last use that is left."""
    last = program.last_use()
    is_released = (program.stores.death == last) & (program.stores.owner == Owner.ACTIVATION)
    was_held = _is_held(program, last)
    needed = _needed(program, gone)
    program = _asked_for(program, needed, gone)
    dead = was_needed & ~needed
    dead |= _only_kept(program, dead) | _updates_nothing(program)
    program = program.without_ops(np.flatnonzero(dead))
    used = program.last_use()
    is_let_go = was_held & ~_is_held(program, used)
    end = np.where(is_let_go, end_of_calls(program, used), used)
    death = np.where((is_released | is_let_go) & (used >= 0), end, program.stores.death)
    is_unused = (used < 0) & (program.stores.owner == Owner.ACTIVATION) & (is_released | is_let_go)
    elements = np.where(is_unused[:, None], 0.0, program.stores.elements)
    return replace(program, stores=replace(program.stores, death=death, elements=elements))


def end_of_calls(program: Program, used: IntArray) -> IntArray:
    """The last op until which a caller holds each storage, ``used`` where none does.

    What is passed into a module is an argument of the call until it returns: of the outermost call
    around the last use that the storage was made outside of. What a module joins of several others
    it has a name for (as each layer of a DenseNet), until its own call returns.

    Args:
        program: Ordered.
        used: Last op that touches each storage; -1 where none does.
    """
    num_forward = int(np.searchsorted(program.ops.position, program.first_backward()))
    birth = program.stores.birth
    inside = np.flatnonzero((birth >= 0) & (used >= 0) & (used < num_forward))
    end, kept, left = used.copy(), used.copy(), inside
    named = inside[_joins(program)[birth[inside]]]
    for run in _calls(program, num_forward):
        last = np.full(run.max(initial=-1) + 1, -1)
        last[run[run >= 0]] = np.flatnonzero(run >= 0)
        of_use, of_birth = run[used[left]], run[birth[left]]
        is_passed = (of_use >= 0) & (of_use != of_birth)
        end[left[is_passed]] = last[of_use[is_passed]]
        left = left[~is_passed]
        named = named[(run[birth[named]] >= 0) & (run[birth[named]] == run[used[named]])]
        kept[named] = last[run[birth[named]]]
    return np.maximum(end, kept)


def _joins(program: Program) -> BoolArray:
    """Ops that copy several storages into one."""
    num_reads = np.bincount(program.reads.op, minlength=len(program.ops))
    return np.asarray((program.ops.kind == OpKind.COPY) & (num_reads > 1))


def _calls(program: Program, num_forward: int) -> Iterator[IntArray]:
    """Per depth of modules, outermost first, which call each forward op is in; -1 for none."""
    paths = [path.split(".") if path else [] for path in program.modules]
    module = program.ops.module[:num_forward]
    is_new = np.ones(num_forward, dtype=bool)
    is_new[1:] = False
    for depth in range(1, max(map(len, paths), default=0) + 1):
        number: dict[str, int] = {}
        known = [number.setdefault(".".join(path[:depth]), len(number)) if len(path) >= depth
                 else -1 for path in paths]  # fmt: skip
        at_depth = np.array(known, dtype=np.int64)[module]
        is_new[1:] |= at_depth[1:] != at_depth[:-1]
        yield np.where(at_depth >= 0, np.cumsum(is_new) - 1, -1)


def _is_held(program: Program, last: IntArray) -> BoolArray:
    """Activations that the backward pass holds, as it reads them last."""
    is_late = program.ops.position[np.maximum(last, 0)] >= program.first_backward()
    stores = program.stores
    is_passing = (stores.owner == Owner.ACTIVATION) & (stores.death != OUTLIVES)
    return np.asarray(is_late & (last >= 0) & is_passing)


def _asked_for(program: Program, needed: BoolArray, gone: BoolArray) -> Program:
    """Backward ops with a mask of outputs compute those that are needed, and no others."""
    is_masked = needed & among(program.ops.kind, _MASKED)
    op, storage = program.writes.op, program.writes.storage
    is_read = np.zeros(len(program.stores), dtype=bool)
    is_read[program.reads.storage[needed[program.reads.op]]] = True
    is_wanted = is_read | ((program.stores.owner != Owner.ACTIVATION) & ~gone)
    return replace(program, writes=program.writes.kept(~is_masked[op] | is_wanted[storage]))


def _updates_nothing(program: Program) -> BoolArray:
    """Optimizer ops all of whose parameters are frozen."""
    num_reads = np.bincount(program.reads.op, minlength=len(program.ops))
    return np.asarray((program.ops.kind == OpKind.OPTIMIZER) & (num_reads == 0))


def _only_kept(program: Program, dead: BoolArray) -> BoolArray:
    """Forward ops that only wrote what some ``dead`` op of the backward pass read: copies."""
    num_ops, num_stores = len(program.ops), len(program.stores)
    is_read, was_kept = np.zeros(num_stores, dtype=bool), np.zeros(num_stores, dtype=bool)
    is_read[program.reads.storage[~dead[program.reads.op]]] = True
    was_kept[program.reads.storage[dead[program.reads.op]]] = True
    is_spare = was_kept & ~is_read & (program.stores.owner == Owner.ACTIVATION)
    is_spare &= program.stores.death != OUTLIVES
    writes = program.writes
    num_writes = np.bincount(writes.op, minlength=num_ops)
    num_spare = np.bincount(writes.op[is_spare[writes.storage]], minlength=num_ops)
    is_copy = (program.ops.kind == OpKind.COPY) & (program.ops.phase == Phase.FORWARD)
    return np.asarray(is_copy & (num_writes > 0) & (num_spare == num_writes))


def _needed(program: Program, gone: BoolArray) -> BoolArray:
    """Ops that stay: all but backward ops of which nothing that is written is needed."""
    num_ops = len(program.ops)
    reads, writes = program.reads.by_op(num_ops), program.writes.by_op(num_ops)
    is_backward = program.ops.phase == Phase.BACKWARD
    first = int(is_backward.argmax()) if is_backward.any() else num_ops
    can_go = is_backward.tolist()
    wanted = ((program.stores.owner != Owner.ACTIVATION) & ~gone).tolist()
    needed = np.ones(num_ops, dtype=bool)
    # No op before the first that can go decides about one.
    for op in range(num_ops - 1, first - 1, -1):
        if can_go[op] and True not in [wanted[storage] for storage in writes[op]]:
            needed[op] = False
            continue
        for storage in reads[op]:
            wanted[storage] = True
    return needed


def with_updates_of(program: Program, parameters: IntArray, gradients: IntArray) -> Program:
    """The (first) optimizer op also updates new parameters, and keeps state for them."""
    op = int(np.flatnonzero(program.ops.kind == OpKind.OPTIMIZER)[0])
    old = updates_of(program, op)
    num_states = optimizer_by_variant(int(program.ops.variant[op])).states_per_element
    draft = Draft(program)
    width = program.stores.element_bytes[old.state[0]] if old.state.size else np.zeros(0)
    states = [
        draft.states(program.stores.elements[parameters], element_bytes=float(width[n]))
        for n in range(num_states)
    ]
    program = draft.joined()
    joined = Updates(
        op=old.op,
        parameter=np.concatenate((old.parameter, parameters)),
        gradient=np.concatenate((old.gradient, gradients)),
        state=np.concatenate((old.state, np.stack(states, axis=1)))
        if states
        else np.zeros((len(old.parameter) + len(parameters), 0), dtype=np.int64),
    )
    return _with_update(program, op, joined)


def _with_update(program: Program, op: int, one: Updates) -> Program:
    state = one.state.T.ravel()
    read = np.concatenate((one.parameter, one.gradient, state))
    written = np.concatenate((one.parameter, state))
    death = program.stores.death.copy()
    death[one.gradient] = OUTLIVES
    return replace(
        program,
        reads=join_tables(program.reads.kept(program.reads.op != op), _touching(program, op, read)),
        writes=join_tables(
            program.writes.kept(program.writes.op != op), _touching(program, op, written)
        ),
        stores=replace(program.stores, death=death),
    )


def _touching(program: Program, op: int, storages: IntArray) -> Accesses:
    return Accesses(
        op=np.full(len(storages), op), storage=storages, elements=program.stores.elements[storages]
    )


def with_projected_prefix(program: Program, *, tokens: int) -> Program:
    """``program`` with a prefix of so many virtual tokens, and everything else frozen.

    What attention reads of them is not counted: a few keys beside those of a sequence.

    Each layer's attention sees these before a sequence. Two dense layers, the first as wide as the
    model, make keys and values of all layers from a table of one row for each: a billion parameters
    at a width of 4,096 and 28 layers, however few tokens.

    Args:
        program: Of a training step, attention as one op; ordered.
        tokens: Rows of the prefix.

    Source:
        huggingface/peft 0.21.2, tuners/prefix_tuning/model.py, ``PrefixEncoder`` with
        ``prefix_projection`` (read 2026-11-28); the same of P-tuning v2 in THUDM/ChatGLM-6B,
        modeling_chatglm.py.

    Raises:
        InvalidInputError: The model has no attention whose backward pass is one op.
    """
    attends, returns = (
        np.flatnonzero(program.ops.kind == kind)
        for kind in (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD)
    )
    if not attends.size or not returns.size:
        raise InvalidInputError(
            "a prefix needs layers of attention, and this model has none that is one op",
            hint="take --rewrite lora_rank=16 instead",
        )
    sizes = _Sizes.of(program, attends, tokens)
    draft, is_base = Draft(program), program.stores.owner == Owner.PARAMETER
    elements = np.concatenate((sizes.table, sizes.first, sizes.second))
    parameters, gradients = draft.parameters(elements), draft.gradients(elements)
    hidden = _draft_forward(draft, attends, parameters, sizes)
    _draft_backward(draft, returns, (parameters, gradients, hidden), sizes)
    adapted = with_updates_of(draft.joined(), parameters, gradients)
    is_base = np.pad(is_base & program.stores.is_trainable, (0, len(adapted.stores) - len(is_base)))
    return without_gradients(adapted.ordered(), is_base)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sizes:
    """Of a prefix for L layers; the second dense layer is told by what it makes of each.

    Attributes:
        tokens: Rows of the table, (1, 9).
        width: Of the model, (1, 9).
        keys: Elements of a token's key and value in each layer, (L, 9).
        table: Elements of the table, (1, 9).
        first: Of the first dense layer with its bias, (1, 9).
        second: Of the second, (L, 9).
        made: Keys and values of all tokens, (L, 9).
    """

    tokens: FloatArray
    width: FloatArray
    keys: FloatArray
    table: FloatArray
    first: FloatArray
    second: FloatArray
    made: FloatArray

    @classmethod
    def of(cls, program: Program, attends: IntArray, tokens: int) -> _Sizes:
        """As wide as what the last product reads of each token."""
        products = (program.ops.kind == OpKind.MATMUL) & (program.ops.phase == Phase.FORWARD)
        width = float(program.dims[program.ops.dims[np.flatnonzero(products)[-1]], 3, 0])
        dims = program.dims[program.ops.dims[attends]][:, :, 0]
        keys = 2.0 * dims[:, 2] * dims[:, 5]
        return cls(
            tokens=_alone(tokens), width=_alone(width), keys=constant(keys),
            table=_alone(tokens * width), first=_alone((width + 1.0) * width),
            second=constant((width + 1.0) * keys), made=constant(tokens * keys),
        )  # fmt: skip

    def repeated(self, one: FloatArray) -> FloatArray:
        """The same for each layer."""
        return np.repeat(one, len(self.keys), axis=0)


def _alone(size: float) -> FloatArray:
    return constant(np.array([size]))


def _draft_forward(
    draft: Draft, attends: IntArray, parameters: IntArray, sizes: _Sizes
) -> IntArray:
    """Keys and values of each layer before it attends; what the first dense layer makes."""
    one, every = _alone(1.0), np.zeros_like(attends)
    hidden = draft.stores(sizes.table, is_wide=False)
    prefix = draft.stores(sizes.made, is_wide=False)
    draft.ops(
        OpKind.MATMUL, np.zeros(1, dtype=np.int64), -0.1,
        dims=matmul_dims(one, sizes.tokens, sizes.width, sizes.width),
        reads=[(parameters[:1], sizes.table), (parameters[1:2], sizes.first)],
        writes=[(hidden, sizes.table)],
    )  # fmt: skip
    once, tokens, width = map(sizes.repeated, (one, sizes.tokens, sizes.width))
    dims = matmul_dims(once, tokens, sizes.keys, width)
    draft.ops(
        OpKind.MATMUL, attends, -0.1, dims=dims,
        reads=[(hidden[every], sizes.repeated(sizes.table)), (parameters[2:], sizes.second)],
        writes=[(prefix, sizes.made)],
    )  # fmt: skip
    return hidden


def _draft_backward(
    draft: Draft, returns: IntArray, stores: tuple[IntArray, IntArray, IntArray], sizes: _Sizes
) -> None:
    """Gradients of what each layer was given; then those of the first dense layer and the table."""
    parameters, gradients, hidden = stores
    one, every = _alone(1.0), np.zeros_like(returns)
    tokens, width = sizes.repeated(sizes.tokens), sizes.repeated(sizes.width)
    to_hidden, table = draft.stores(sizes.table, is_wide=False), sizes.repeated(sizes.table)
    seen = (draft.program.written(returns, 1), sizes.made)
    draft.ops(
        OpKind.MATMUL, returns, 0.1,
        dims=matmul_dims(sizes.repeated(one), width, sizes.keys, tokens),
        reads=[(hidden[every], table), seen], writes=[(gradients[2:], sizes.second)],
    )  # fmt: skip
    draft.ops(
        OpKind.MATMUL, returns, 0.2,
        dims=matmul_dims(sizes.repeated(one), tokens, width, sizes.keys),
        reads=[seen, (parameters[2:], sizes.second)], writes=[(to_hidden[every], table)],
    )  # fmt: skip
    for offset, result, size in ((0.3, gradients[1:2], sizes.first),
                                 (0.4, gradients[:1], sizes.table)):  # fmt: skip
        draft.ops(
            OpKind.MATMUL, returns[-1:], offset,
            dims=matmul_dims(one, sizes.width, sizes.width, sizes.tokens),
            reads=[(to_hidden, sizes.table), (parameters[1:2], sizes.first)],
            writes=[(result, size)],
        )  # fmt: skip
