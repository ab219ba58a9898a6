"""Mixed precision as a rewrite: which storages narrow, and which casts that takes.

Parameters, gradients and optimizer state stay FP32. A matrix product reads narrow copies: of a
parameter one for the whole pass (autocast's cache), of an activation one per op, kept for the
backward op that reads it. Norms, losses and exponentials read FP32 copies of what is narrow.

Source: PyTorch documentation, "Automatic Mixed Precision package"; `aten/src/ATen/autocast_mode`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.columns import join_tables, take_rows
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import (
    NUM_DIMS,
    NUM_MONOMIALS,
    FloatArray,
    IntArray,
    OpKind,
    Owner,
    Phase,
)
from paceline.model.graph.program import (
    Accesses,
    BoolArray,
    Ops,
    Program,
)
from paceline.model.ops.registry import column, kinds_where

_WIDE_KINDS = kinds_where(lambda facts: facts.wants_wide == "yes")
_NORMS = kinds_where(lambda facts: facts.wants_wide == "but_batch_norm")
_BATCH_NORM = 0
_FP32_BYTES = 4.0


def narrowed(program: Program, *, element_bytes: float) -> Program:
    """Everything floating in the narrow format, as in inference with half weights."""
    stores = program.stores
    width = np.where(stores.is_floating, element_bytes, stores.element_bytes)
    return replace(program, stores=replace(stores, element_bytes=width))


def with_narrow_weights(program: Program, *, element_bytes: float) -> Program:
    """Weights, gradients and optimizer state in the narrow format, before autocast.

    A model that was loaded in 16 bits and trained under autocast: diffusers' and Hugging Face's
    scripts do so. Products read such weights as they are; what autocast runs in FP32 still does.
    """
    stores = program.stores
    kinds = (Owner.PARAMETER, Owner.GRADIENT, Owner.OPTIMIZER_STATE)
    is_kept = np.isin(stores.owner, kinds) & stores.is_floating
    return replace(
        program,
        stores=replace(
            stores,
            is_wide=stores.is_wide & ~is_kept,
            element_bytes=np.where(is_kept, element_bytes, stores.element_bytes),
        ),
    )


def autocast(program: Program, *, element_bytes: float) -> Program:
    """``program`` as it runs under autocast to a format of ``element_bytes``."""
    program = _with_results_as_read(program)
    stores = program.stores
    width = np.where(stores.is_floating & ~stores.is_wide, element_bytes, stores.element_bytes)
    program = replace(program, stores=replace(stores, element_bytes=width))
    program = _with_casts_of_inputs(program, element_bytes)
    return _with_casts_of_gradients(program, element_bytes).ordered()


def _with_results_as_read(program: Program) -> Program:
    """Products with weights that are widened on the way hand on the format that they read.

    They cast what enters to the format that they multiply in, and what leaves back, so that
    between layers of a prepared model, whose norms hand on FP32, everything is in FP32.

    Source: bitsandbytes, nn/modules.py, `Linear4bit.forward` (``inp_dtype``; read 2026-11-28), and
        autograd/_functions.py, `MatMul8bitLt.forward` (``output.to(A.dtype)``; recalled).
    """
    kind, stores = program.ops.kind, program.stores
    widened = program.writes.storage[kind[program.writes.op] == OpKind.DEQUANTIZE]
    if not widened.size:
        return program
    is_of_them = np.zeros(len(program.ops), dtype=bool)
    is_of_them[program.reads.op[np.isin(program.reads.storage, widened)]] = True
    passes_on = (is_of_them | ~column("is_narrow")[kind]) & (kind != OpKind.DEQUANTIZE)
    is_open = (stores.owner == Owner.ACTIVATION) & stores.is_floating
    is_wide = stores.is_wide.copy()
    read, written = program.reads.by_op(len(kind)), program.writes.by_op(len(kind))
    for op in np.flatnonzero(passes_on)[np.argsort(program.ops.position[passes_on])].tolist():
        if any(is_wide[one] and is_open[one] for one in read[op]):
            for one in written[op]:
                is_wide[one] |= is_open[one]
    return replace(program, stores=replace(stores, is_wide=is_wide))


def _with_casts_of_inputs(program: Program, element_bytes: float) -> Program:
    to_narrow, to_wide = _mismatches(program)
    reads = np.flatnonzero(to_narrow | to_wide)
    if not reads.size:
        return program
    copy, first_read = _copies(program, reads, to_wide[reads])
    source = program.reads.storage[first_read]
    num_ops, num_stores = len(program.ops), len(program.stores)
    casts = num_ops + np.arange(len(first_read))
    before = program.ops.position[program.reads.op[first_read]] - 0.5
    new_ops = _cast_ops(program, program.reads.op[first_read], before)
    last = _last_of(program, reads, copy, len(first_read))
    last = np.where(program.stores.owner[source] == Owner.PARAMETER,
                    _later(program, last, _last_forward(program)), last)  # fmt: skip
    new_stores = replace(
        take_rows(program.stores, source),
        element_bytes=np.where(to_wide[first_read], _FP32_BYTES, element_bytes),
        owner=np.full(len(source), int(Owner.ACTIVATION)),
        is_wide=to_wide[first_read],
        birth=casts,
        death=last,
    )
    elements = program.stores.elements[source]
    storage = program.reads.storage.copy()
    storage[reads] = num_stores + copy
    copies = num_stores + np.arange(len(source))
    rewired = replace(
        program,
        ops=join_tables(program.ops, new_ops),
        dims=np.concatenate((program.dims, _cast_dims(elements))),
        reads=join_tables(
            replace(program.reads, storage=storage),
            Accesses(op=casts, storage=source, elements=elements),
        ),
        writes=join_tables(program.writes, Accesses(op=casts, storage=copies, elements=elements)),
        stores=join_tables(program.stores, new_stores),
    )
    death = rewired.stores.death.copy()
    death[:num_stores] = _shortened_deaths(program, rewired)
    return replace(rewired, stores=replace(rewired.stores, death=death))


def _mismatches(program: Program) -> tuple[BoolArray, BoolArray]:
    """Reads that need a narrow copy, and reads that need a wide one."""
    kind, variant = program.ops.kind[program.reads.op], program.ops.variant[program.reads.op]
    stores, storage = program.stores, program.reads.storage
    floating, wide = stores.is_floating[storage], stores.is_wide[storage]
    is_statistic = _is_statistic(program)
    to_narrow = column("is_narrow")[kind] & floating & wide & ~is_statistic
    wants_wide = among(kind, _WIDE_KINDS) | (among(kind, _NORMS) & (variant != _BATCH_NORM))
    return to_narrow, wants_wide & floating & ~wide


def _is_statistic(program: Program) -> BoolArray:
    """Reads of what an attention kernel left in FP32 for its own backward."""
    kind = program.ops.kind
    birth = program.stores.birth[program.reads.storage]
    born_in = kind[np.clip(birth, 0, len(kind) - 1)]
    is_statistic: BoolArray = (birth >= 0) & (born_in == OpKind.ATTENTION)
    return is_statistic


def _copies(program: Program, reads: IntArray, is_wide: BoolArray) -> tuple[IntArray, IntArray]:
    """Copy that each read uses, and the first read of each copy.

    A parameter has one copy, and so has what is born in the backward pass. An activation has one
    per forward read; the backward pass uses them from the last to the first.
    """
    op, storage = program.reads.op[reads], program.reads.storage[reads]
    position = program.ops.position[op]
    is_backward = position >= program.first_backward()
    born_late = program.position_of(program.stores.birth[storage]) >= program.first_backward()
    is_single = (program.stores.owner[storage] == Owner.PARAMETER) | born_late
    group = storage * 2 + is_wide
    rank = _rank(group, is_backward, position)
    num_forward = np.bincount(group[~is_backward], minlength=int(group.max()) + 1)[group]
    mirrored = np.maximum(num_forward - 1 - rank, 0)
    occurrence = np.where(is_single, 0, np.where(is_backward, mirrored, rank))
    key = group * (int(occurrence.max()) + 1) + occurrence
    order = np.argsort(position, kind="stable")
    _, first, copy = np.unique(key[order], return_index=True, return_inverse=True)
    unsorted = np.empty_like(copy)
    unsorted[order] = copy
    return unsorted, reads[order][first]


def _rank(group: IntArray, is_backward: BoolArray, position: FloatArray) -> IntArray:
    """How many ops of the same group and direction touched it before."""
    order = np.lexsort((position, is_backward, group))
    key = group[order] * 2 + is_backward[order]
    new_op = np.r_[True, position[order][1:] != position[order][:-1]]
    starts = np.r_[True, key[1:] != key[:-1]]
    running = np.cumsum(new_op | starts)
    base = np.maximum.accumulate(np.where(starts, running, 0))
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = running - base
    return rank


def _last_of(program: Program, reads: IntArray, copy: IntArray, count: int) -> IntArray:
    op = program.reads.op[reads]
    order = np.argsort(program.ops.position[op], kind="stable")
    last = np.zeros(count, dtype=np.int64)
    last[copy[order]] = op[order]
    return last


def _last_forward(program: Program) -> int:
    forward = np.flatnonzero(program.ops.position < program.first_backward())
    return int(forward[np.argmax(program.ops.position[forward])])


def _later(program: Program, ops: IntArray, other: int) -> IntArray:
    position = program.ops.position
    return np.where(position[ops] >= position[other], ops, other)


def _shortened_deaths(before: Program, after: Program) -> IntArray:
    """A storage that died with its last use now dies with the last use that is left.

    So does one that backward alone held, which lets go of it once the whole node has run: it holds
    the copy instead.
    """
    death, last = before.stores.death, before.last_use()
    count = len(before.stores)
    remaining = after.last_use()[:count]
    is_held = before.stores.owner != Owner.ACTIVATION
    in_backward = before.ops.phase == Phase.BACKWARD
    for_backward = in_backward[last] & in_backward[np.minimum(death, len(in_backward) - 1)]
    for_backward &= (death < len(in_backward)) & (after.ops.phase[remaining] == Phase.FORWARD)
    is_free = (death == last) | for_backward
    changed = np.flatnonzero(is_free & (last >= 0) & (remaining != last) & ~is_held)
    shortened = death.copy()
    shortened[changed] = remaining[changed]
    return shortened


def _with_casts_of_gradients(program: Program, element_bytes: float) -> Program:
    """A narrow op leaves a narrow gradient, which is cast into the parameter's FP32 one."""
    ops, writes, stores = program.ops, program.writes, program.stores
    is_narrow = column("is_narrow")[ops.kind]
    is_bias_sum = (ops.kind == OpKind.REDUCE) & (ops.phase == Phase.BACKWARD)
    rows = np.flatnonzero(
        (is_narrow | is_bias_sum)[writes.op] & (stores.owner[writes.storage] == Owner.GRADIENT)
    )
    if not rows.size:
        return program
    gradient, op = writes.storage[rows], writes.op[rows]
    casts = len(ops) + np.arange(len(rows))
    copies = len(stores) + np.arange(len(rows))
    temporary = replace(
        take_rows(stores, gradient),
        element_bytes=np.full(len(rows), element_bytes),
        owner=np.full(len(rows), int(Owner.ACTIVATION)),
        is_wide=np.zeros(len(rows), dtype=bool),
        birth=op,
        death=casts,
    )
    birth = stores.birth.copy()
    born_here = birth[gradient] == op
    birth[gradient[born_here]] = casts[born_here]
    storage = writes.storage.copy()
    storage[rows] = copies
    elements = stores.elements[gradient]
    return replace(
        program,
        ops=join_tables(ops, _cast_ops(program, op, ops.position[op] + 0.5)),
        dims=np.concatenate((program.dims, _cast_dims(elements))),
        reads=join_tables(program.reads, Accesses(op=casts, storage=copies, elements=elements)),
        writes=join_tables(
            replace(writes, storage=storage),
            Accesses(op=casts, storage=gradient, elements=elements),
        ),
        stores=join_tables(replace(stores, birth=birth), temporary),
    )


def _cast_ops(program: Program, op: IntArray, position: FloatArray) -> Ops:
    count = len(op)
    return Ops(
        kind=np.full(count, int(OpKind.CAST)),
        variant=np.zeros(count, dtype=np.int64),
        phase=program.ops.phase[op],
        module=program.ops.module[op],
        flop=np.zeros((count, NUM_MONOMIALS)),
        dims=len(program.dims) + np.arange(count),
        position=position,
    )


def _cast_dims(elements: FloatArray) -> FloatArray:
    dims = np.zeros((len(elements), NUM_DIMS, NUM_MONOMIALS))
    dims[:, 0] = elements
    dims[:, 1:3, 0] = 1.0
    return dims
