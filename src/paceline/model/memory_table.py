"""Live bytes over a pass, and the few moments that can be its peak."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from paceline.columns import take_rows
from paceline.model.belonging import is_weight_copy
from paceline.model.graph.block_names import blocks_of_ops, flow_of_blocks, is_numbered, own_blocks
from paceline.model.graph.costs import GatheredShares, MemoryTable
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import (
    NUM_MONOMIALS,
    FloatArray,
    IntArray,
    Owner,
    Phase,
    monomials,
)
from paceline.model.graph.program import OUTLIVES, BoolArray, Program
from paceline.model.standing import Standing

_NUM_OWNERS = len(Owner)
_NUM_LARGEST = 8
#: Monomials in which the length stands.
_WITH_LENGTH = (2, 3, 4, 5, 7, 8)
#: Points at which the peak is looked for: every batch and length up to 32, then in steps of 19 %.
_GRID = distinct(np.concatenate((np.arange(1, 33), np.round(2 ** np.arange(5, 21, 0.25)))))
_BATCHES = monomials(_GRID, 1.0)
#: Small and large points.
_PROBES = monomials([1, 64, 1, 64], [1, 1, 2048, 2048])
#: Points at which the fullest moments of parts are looked for, long sequences among them.
_PART_PROBES = monomials([1, 64, 1, 64, 1, 1], [1, 1, 2048, 2048, 8192, 65536])
#: What may be sharded or offloaded away when the peak is asked for: nothing, or some of these.
_REMOVED: tuple[tuple[Owner, ...], ...] = (
    (),
    (Owner.GRADIENT,),
    (Owner.PARAMETER, Owner.GRADIENT, Owner.OPTIMIZER_STATE, Owner.MASTER_WEIGHT),
)


def live_bytes(program: Program, chosen: BoolArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Bytes alive during each op, by owner, and the number of storages alive.

    Args:
        program: Ordered, so that ops are numbered as they run.
        chosen: Storages that count; all by default.

    Returns:
        Bytes, (num_ops, num_owners, 9), and counts, (num_ops,).
    """
    stores, num_ops = program.stores, len(program.ops)
    if chosen is not None:
        stores = take_rows(stores, chosen)
    start = np.clip(stores.birth, 0, num_ops)
    end = np.where(stores.death == OUTLIVES, num_ops, np.clip(stores.death + 1, 0, num_ops))
    end = np.maximum(end, start)
    num_bytes = stores.num_bytes()
    cell = np.concatenate((start, end)) * _NUM_OWNERS + np.tile(stores.owner, 2)
    size = (num_ops + 1) * _NUM_OWNERS
    live = np.zeros((num_ops + 1, _NUM_OWNERS, NUM_MONOMIALS))
    for index in _used_columns(num_bytes).tolist():
        column = num_bytes[:, index]
        changes = np.bincount(cell, np.concatenate((column, -column)), size)
        live[:, :, index] = np.cumsum(changes.reshape(num_ops + 1, _NUM_OWNERS), axis=0)
    count = np.cumsum(np.bincount(start, minlength=num_ops + 1)
                      - np.bincount(end, minlength=num_ops + 1))  # fmt: skip
    return live[:num_ops], count[:num_ops].astype(np.float64)


def memory_table(
    program: Program, part: IntArray | None = None, standing: Standing | None = None
) -> MemoryTable:
    """The candidate peaks of an ordered program.

    Args:
        program: What runs.
        part: Part of each op, (num_ops,), if the fullest moments of each part are to be kept, which
            the peak is one of, instead of those that are the peak of the whole somewhere.
        standing: Which layers stand for others; none where it is the whole model. Moments of the
            last that are stood for come at the end.
    """
    stores, op = program.stores, np.arange(len(program.ops))
    passing = np.flatnonzero((stores.birth >= 0) | (stores.death != OUTLIVES))
    counts = np.ones(len(stores)) if standing is None else standing.storage_counts
    by_owner, num_allocations = _alive(program, np.ones(len(stores), dtype=np.bool_), standing)
    copies = _alive(program, is_weight_copy(program), standing)[0].sum(axis=1)
    if standing is not None:
        op = np.concatenate((op, standing.ops))
        if part is not None:
            part = np.concatenate((part, part[standing.ops] + int(part.max(initial=0)) + 1))
    rows = _possible_peaks(by_owner) if part is None else _fullest(by_owner, part)
    return MemoryTable(
        by_owner=by_owner[rows],
        op=op[rows].astype(np.int32),
        weight_copies=copies[rows],
        largest_bytes=_largest(stores.num_bytes()[passing], counts[passing]),
        num_allocations=num_allocations[rows],
        gathered=_gathered(program, op[rows], standing),
    )


def _alive(
    program: Program, chosen: BoolArray, standing: Standing | None
) -> tuple[FloatArray, FloatArray]:
    """As `live_bytes`, of the whole model; the last layers that others stand for at the end."""
    found = live_bytes(program, chosen)
    if standing is None:
        return found
    earlier, later = (live_bytes(program, chosen & (standing.group == one)) for one in (-1, 1))
    by_owner, count = (standing.at_ends(*one) for one in zip(found, earlier, later, strict=True))
    return by_owner, count


def _gathered(program: Program, rows: IntArray, standing: Standing | None) -> GatheredShares:
    """Shares of the weights in the unit that runs at some ops and in the one that comes next."""
    ops = program.ops
    names = flow_of_blocks(program.modules, ops.module[ops.phase == Phase.FORWARD])
    share = _weight_shares(program, names, standing)
    is_beside, is_each = ~np.array([is_numbered(name) for name in names]), np.array([[1], [0]])
    unit = np.pad(share * (is_each | ~is_beside), ((0, 0), (1, 2)))
    kept = share[is_beside].sum() * (1 - is_each)
    # Backward goes from the last block to the first, and leaves the root's gradients whole.
    last_read = _weight_shares(program, names, standing, is_last=True) * is_beside
    left = np.cumsum(last_read[::-1])[::-1]
    phase, here = ops.phase[rows], own_blocks(program.modules, ops.module[rows], names)
    is_backward = phase == Phase.BACKWARD
    is_inside = (here >= 0) & (is_backward | (phase == Phase.FORWARD))
    running, following = unit[:, here + 1], unit[:, here + np.where(is_backward, 0, 2)]
    return GatheredShares(
        weights=(kept + (running + following) * is_inside) * (phase != Phase.OPTIMIZER),
        gradients=(np.append(left, left[0])[here] * (1 - is_each) + running * is_inside)
        * is_backward,
    )


def _weight_shares(
    program: Program, names: tuple[str, ...], standing: Standing | None, *, is_last: bool = False
) -> FloatArray:
    """Share of all weights that each block is the first to read, or forward's last, (num_blocks,).

    The gradients of a table that embedding and head share come with the head.
    """
    stores, reads, num_ops = program.stores, program.reads, len(program.ops)
    home = np.full(len(stores), num_ops)
    np.minimum.at(home, reads.storage, reads.op)
    if is_last:
        passes = program.ops.phase[reads.op] == Phase.FORWARD
        last = np.full(len(stores), -1)
        np.maximum.at(last, reads.storage[passes], reads.op[passes])
        home = np.where(last >= 0, last, home)
    held = (stores.owner == Owner.PARAMETER) & (home < num_ops)
    block = blocks_of_ops(program.modules, program.ops.module, names)
    num_bytes = stores.num_bytes()[held, 0]
    weights = np.bincount(block[home[held]], num_bytes, len(names))
    counts = 1 if standing is None else standing.storage_counts[held]
    return np.asarray(weights / max(float((num_bytes * counts).sum()), 1.0))


def _possible_peaks(by_owner: FloatArray) -> IntArray:
    """Moments that are the maximum at some point, whatever is sharded away."""
    found = [np.zeros(0, dtype=np.int64)]
    columns = _used_columns(by_owner.reshape(-1, NUM_MONOMIALS))
    of_owner = [np.ascontiguousarray(by_owner[:, owner, columns].T) for owner in Owner]
    for removed in _REMOVED:
        total = np.sum([of_owner[owner] for owner in Owner if owner not in removed], axis=0)
        candidates = _local_maxima(total)
        found.append(candidates[_maxima_on_grid(total[:, candidates], columns)])
    return distinct(np.concatenate(found))


def _used_columns(values: FloatArray) -> IntArray:
    """Monomials of which any row has some, (num_used,)."""
    return np.flatnonzero([values[:, index].any() for index in range(values.shape[1])])


def _fullest(by_owner: FloatArray, part: IntArray) -> IntArray:
    """Fullest moments of each part, of everything and of what is not state, at a few points."""
    found = []
    for removed in (_REMOVED[0], _REMOVED[-1]):
        kept = [owner for owner in Owner if owner not in removed]
        for live in (by_owner[:, kept].sum(axis=1) @ _PART_PROBES.T).T:
            rising = np.argsort(live, kind="stable")
            fullest = np.full(int(part.max(initial=0)) + 1, -1)
            fullest[part[rising]] = rising
            found.append(fullest[fullest >= 0])
    return distinct(np.concatenate(found))


def _local_maxima(total: FloatArray) -> IntArray:
    """Drop moments next to one that is nowhere smaller; ``total`` is (num_columns, num_ops)."""
    change = np.diff(total, axis=1)
    rises, falls = (change >= 0).all(axis=0), (change <= 0).all(axis=0)
    keep = np.ones(total.shape[1], dtype=bool)
    keep[:-1] &= ~rises
    keep[1:] &= ~(falls & ~rises)
    return np.flatnonzero(keep)


def _maxima_on_grid(total: FloatArray, columns: IntArray) -> IntArray:
    used = total.any(axis=1)
    has_length = np.isin(columns[used], _WITH_LENGTH).any()
    grid = (_plane() if has_length else _BATCHES)[:, columns[used]]
    total = total[used]
    # Most moments have less of everything than one of the fullest: they are the peak nowhere.
    open_, corners = np.arange(total.shape[1]), grid[[0, len(grid) // 2, -1]]
    for fullest in np.argmax(corners @ total, axis=1).tolist():
        has_more = (total[:, open_] > total[:, [fullest]]).any(axis=0)
        open_ = open_[has_more | (open_ == fullest)]
    return distinct(open_[np.argmax(grid @ total[:, open_], axis=1)])


@cache
def _plane() -> FloatArray:
    coarse = _GRID[::3]
    batch, seq = np.meshgrid(coarse, coarse)
    return monomials(batch.ravel(), seq.ravel())


def _largest(num_bytes: FloatArray, counts: npt.NDArray[np.number]) -> FloatArray:
    """The storages that are largest at small and at large points, each as often as it stands."""
    order = np.argsort(-(num_bytes @ _PROBES.T), axis=0, kind="stable")
    before = np.cumsum(counts[order], axis=0) - counts[order]
    kept: FloatArray = num_bytes[distinct(order[before < _NUM_LARGEST])]
    return kept
