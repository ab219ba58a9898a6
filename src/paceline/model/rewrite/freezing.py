"""Freeze modules: no gradients for their parameters, no work and no memory that only those needed.

A backward op stays if something it writes is still needed: a gradient of a trainable parameter, or
what a needed op reads. Activations that were kept only for removed ops die in the forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import IntArray, OpKind, Owner, Phase
from paceline.model.graph.program import OUTLIVES, BoolArray, Program
from paceline.model.ops.registry import kinds_where
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
