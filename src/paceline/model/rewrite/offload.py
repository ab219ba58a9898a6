"""Keep optimizer state, or saved activations, in host memory between uses.

Source: Ren et al., "ZeRO-Offload", 2021 (arXiv:2101.06840); PyTorch's `save_on_cpu` hooks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.model.graph.distinct import among
from paceline.model.graph.graph import IntArray, OpKind, Owner
from paceline.model.graph.polynomial import constant
from paceline.model.graph.program import OUTLIVES, Program
from paceline.model.rewrite.draft import Draft, row_dims


def with_optimizer_on_host(program: Program) -> Program:
    """The update runs on the host: gradients go down, parameters come up, no state stays."""
    stores = program.stores
    is_state = among(stores.owner, (Owner.OPTIMIZER_STATE, Owner.MASTER_WEIGHT))
    is_update = program.ops.kind == OpKind.OPTIMIZER
    born_there = np.isin(stores.birth, np.flatnonzero(is_update))
    gone = is_state | (born_there & (stores.owner == Owner.WORKSPACE))
    elements = np.where(gone[:, None], 0.0, stores.elements)
    reads = program.reads
    is_gradient = stores.owner[reads.storage] == Owner.GRADIENT
    writes = program.writes
    is_parameter = stores.owner[writes.storage] == Owner.PARAMETER
    kind = np.where(is_update, int(OpKind.HOST_COPY), program.ops.kind)
    return replace(
        program,
        ops=replace(program.ops, kind=kind),
        reads=reads.kept(~is_update[reads.op] | is_gradient),
        writes=writes.kept(~is_update[writes.op] | is_parameter),
        stores=replace(stores, elements=elements),
    )


def with_activations_on_host(program: Program) -> Program:
    """Each saved activation is copied out after its forward use and in before its backward use."""
    early = program.ops.position < program.first_backward()
    saved, last_early, first_late = _saved(program, early)
    if not saved.size:
        return program
    size = program.stores.elements[saved]
    draft = Draft(program)
    width = program.stores.element_bytes[saved]
    returned = draft.stores(size, is_wide=False)
    dims = row_dims(size, constant(np.ones(len(saved))), 1.0)
    draft.ops(OpKind.HOST_COPY, last_early, 0.4, dims=dims, reads=[(saved, size)], writes=[])
    draft.ops(OpKind.HOST_COPY, first_late, -0.4, dims=dims, reads=[], writes=[(returned, size)])
    twin = np.arange(len(program.stores))
    twin[saved] = returned
    is_late = ~early[program.reads.op]
    moved = np.where(is_late, twin[program.reads.storage], program.reads.storage)
    joined = draft.joined()
    storage = joined.reads.storage.copy()
    storage[: len(moved)] = moved
    return _with_lives(
        replace(joined, reads=replace(joined.reads, storage=storage)), saved, returned, width
    )


def _saved(program: Program, early: np.ndarray) -> tuple[IntArray, IntArray, IntArray]:
    """(storage, last forward op, first backward op) of the activations kept for backward.

    Masks and the like are written in forward and read in backward alone.
    """
    reads, writes = program.reads, program.writes
    op, storage = np.append(reads.op, writes.op), np.append(reads.storage, writes.storage)
    order = np.argsort(program.ops.position[op], kind="stable")
    last, first = np.full(len(program.stores), -1), np.full(len(program.stores), -1)
    before, after = order[early[op[order]]], order[~early[op[order]]][::-1]
    last[storage[before]] = op[before]
    first[storage[after]] = op[after]
    is_saved = (last >= 0) & (first >= 0) & (program.stores.owner == Owner.ACTIVATION)
    is_saved &= program.stores.death != OUTLIVES
    rows = np.flatnonzero(is_saved)
    return rows, last[rows], first[rows]


def _with_lives(
    program: Program, saved: IntArray, returned: IntArray, width: np.ndarray
) -> Program:
    stores = program.stores
    first, last = program.first_and_last_use()
    birth, death, element_bytes = (
        stores.birth.copy(), stores.death.copy(), stores.element_bytes.copy(),
    )  # fmt: skip
    death[saved] = last[saved]
    birth[returned], death[returned] = first[returned], last[returned]
    element_bytes[returned] = width
    changed = replace(stores, birth=birth, death=death, element_bytes=element_bytes)
    return replace(program, stores=changed).ordered()
