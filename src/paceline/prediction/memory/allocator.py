"""Tier two of memory: replay one pass through a model of PyTorch's caching allocator.

Requests are rounded up to 512 bytes. Those up to 1 MiB come from segments of 2 MiB, larger ones
from segments of 20 MiB, and from 10 MiB on from a segment of their own, rounded up to 2 MiB. The
smallest free block that is large enough is taken and split; neighbours merge when freed. What one
stream of kernels has freed no other takes. Where a new segment does not fit the device, segments
that are wholly free are given back first.

An optimizer makes its states in its first update, in what backward has just freed. They stay there,
so that the next step needs new segments for its largest tensors: a process holds up to 1.4 times
what is alive where these are logits of a large vocabulary and all else is computed again.

Source: c10/cuda/CUDACachingAllocator.cpp (`round_size`, `get_allocation_size`, `should_split`,
`BlockComparatorSize`, by which pools are of a stream each); torch/optim/adamw.py (`_init_group`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray, Owner
from paceline.model.lowering import Lifetimes
from paceline.prediction.memory.free_blocks import Block, FreeBlocks

_ROUND = 512
_SMALL_LIMIT = 2**20
_SMALL_SEGMENT = 2 * 2**20
_LARGE_SEGMENT = 20 * 2**20
_OWN_SEGMENT_FROM = 10 * 2**20
_LARGE_ROUND = 2 * 2**20
_NEVER = 2**61
#: Steps of other lengths before the longest, where they vary; twice as many hold a tenth more.
_NUMBERS = range(1, 17)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPeak:
    """What one pass needs of the allocator.

    Attributes:
        allocated_bytes: Peak of live blocks, rounded (``torch.cuda.max_memory_allocated``).
        reserved_bytes: Peak of segments held (``torch.cuda.max_memory_reserved``).
        fits: Whether the pass ran through within the capacity.
    """

    allocated_bytes: float
    reserved_bytes: float
    fits: bool


class _OutOfMemoryError(Exception):
    """No segment of that size fits the device."""


@dataclass(slots=True, eq=False)
class _Pool(FreeBlocks):
    """Free blocks of one size class."""

    is_small: bool = False

    def splits(self, remaining: int) -> bool:
        """Whether what is left of a block in bytes becomes a block of its own."""
        return remaining >= _ROUND if self.is_small else remaining > _SMALL_LIMIT


class _Allocator:
    """State of one replay."""

    def __init__(self, capacity_bytes: float) -> None:
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._next_address = 0
        self._capacity_bytes = capacity_bytes
        self.allocated_bytes = self.peak_bytes = 0
        self.reserved_bytes = self.peak_reserved_bytes = 0

    def pools(self, sizes: Sequence[int], streams: Sequence[int]) -> list[_Pool]:
        """Free blocks that each tensor is taken from, by its rounded size and its stream."""
        kept, keys = self._pools, zip(streams, (one <= _SMALL_LIMIT for one in sizes), strict=True)
        return [kept.get(key) or kept.setdefault(key, _Pool(is_small=key[1])) for key in keys]

    def take(self, size_bytes: int, pool: _Pool) -> Block:
        """Allocate a tensor of rounded size."""
        block = pool.take_fit(size_bytes) or self._new_segment(size_bytes)
        if pool.splits(block.size_bytes - size_bytes):
            pool.add(block.cut(size_bytes))
        self.allocated_bytes += block.size_bytes
        if self.allocated_bytes > self.peak_bytes:
            self.peak_bytes = self.allocated_bytes
        return block

    def give_back(self, block: Block, pool: _Pool) -> None:
        """Free the tensor in a block, and join the block with free neighbours."""
        self.allocated_bytes -= block.size_bytes
        pool.add(pool.joined(block))

    def _new_segment(self, size_bytes: int) -> Block:
        segment_bytes = _segment_bytes(size_bytes)
        if self.reserved_bytes + segment_bytes > self._capacity_bytes:
            self.release_free_segments()
        if self.reserved_bytes + segment_bytes > self._capacity_bytes:
            raise _OutOfMemoryError
        block = Block(segment_bytes, self._next_address, is_free=False)
        self._next_address += segment_bytes + _ROUND
        self.reserved_bytes += segment_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return block

    def release_free_segments(self) -> None:
        """Give back what is wholly free."""
        for pool in self._pools.values():
            whole = [b for b in pool.blocks.values() if b.previous is None and b.following is None]
            for block in whole:
                pool.remove(block)
                self.reserved_bytes -= block.size_bytes


def replay(
    lifetimes: Lifetimes,
    *,
    batch: float,
    seq: float = 1.0,
    capacity_bytes: float = math.inf,
    num_steps: int = 2,
    varies: bool = False,
    streams: Sequence[int] | None = None,
    flat_states: bool = False,
    first_bytes: npt.ArrayLike = (),
    keeps_first: bool = False,
) -> ReplayedPeak:
    """Run a pass through the allocator.

    Args:
        lifetimes: Storages of a lowered pass in order.
        batch: Items per device.
        seq: Sequence or past length; the longest one where lengths vary.
        capacity_bytes: What is left for segments: device memory less context and workspaces.
        num_steps: Steps; a second one meets the segments that the first has left.
        varies: Whether shorter sequences come before the longest. Segments that fitted them stay,
            too small for it: a process shows up to twice what is alive.
        streams: Stream that allocates each storage; one for all if None.
        flat_states: Whether each optimizer state is one tensor, for which no freed block is large
            enough: they lie apart, as if they were there before the first step.
        first_bytes: Tensors that are there together before all else, and gone before it.
        keeps_first: Whether their segments stay; they are given back otherwise.
    """
    streams = [0] * len(lifetimes.birth) if streams is None else streams
    lengths = _lengths(seq) if varies else [seq] * num_steps
    sizes = {length: lifetimes.bytes_at(batch, length) for length in (seq, *lengths)}
    events = {length: storage_events(lifetimes, sizes[length]) for length in lengths}
    rounded = {length: _rounded(one) for length, one in sizes.items()}
    resident = lifetimes.is_resident()
    is_state = resident & (lifetimes.owner == Owner.OPTIMIZER_STATE) & (not flat_states)
    allocator = _Allocator(capacity_bytes)
    pools = {length: allocator.pools(one, streams) for length, one in rounded.items()}
    fits = True
    try:
        _start(allocator, _rounded(np.asarray(first_bytes, dtype=np.float64)), keeps=keeps_first)
        for row in np.flatnonzero(resident & ~is_state).tolist():
            allocator.take(rounded[seq][row], pools[seq][row])
        states = np.flatnonzero(is_state).tolist()
        for length in lengths:
            before, update = _around_update(events[length], lifetimes)
            held: dict[int, Block] = {}
            _run(allocator, before, rounded[length], pools[length], held)
            while states:
                row = states.pop(0)
                allocator.take(rounded[seq][row], pools[seq][row])
            _run(allocator, update, rounded[length], pools[length], held)
            for row, block in held.items():
                allocator.give_back(block, pools[length][row])
    except _OutOfMemoryError:
        fits = False
    return ReplayedPeak(
        allocated_bytes=float(allocator.peak_bytes),
        reserved_bytes=float(allocator.peak_reserved_bytes),
        fits=fits,
    )


def _start(allocator: _Allocator, sizes: list[int], *, keeps: bool) -> None:
    """All tensors of a model at once, which ranks then split."""
    pools = allocator.pools(sizes, [0] * len(sizes))
    blocks = [allocator.take(size, pool) for size, pool in zip(sizes, pools, strict=True)]
    for block, pool in zip(blocks, pools, strict=True):
        allocator.give_back(block, pool)
    if not keeps:
        allocator.release_free_segments()


def _lengths(longest: float) -> list[float]:
    """Lengths of steps, the longest last: squares of evenly spread numbers, mixed.

    Their mean is a third of the longest, as that of texts for fine-tuning is or less.
    """
    parts = (int(f"{number:b}"[::-1], 2) / 2 ** number.bit_length() for number in _NUMBERS)
    return [*(max(round(longest * part**2), 1.0) for part in parts), longest]


def _around_update(events: list[int], lifetimes: Lifetimes) -> tuple[list[int], list[int]]:
    """Events before the first op of the optimizer allocates or frees anything, and the others."""
    birth, death = lifetimes.birth.tolist(), lifetimes.death.tolist()
    place = next(
        (
            at
            for at, row in enumerate(events)
            if (birth[row] if row >= 0 else death[~row]) >= lifetimes.update
        ),
        len(events),
    )
    return events[:place], events[place:]


def _run(
    allocator: _Allocator, events: list[int], sizes: list[int], pools: list[_Pool],
    held: dict[int, Block],
) -> None:  # fmt: skip
    """Part of a step; ``held`` has the blocks of its tensors, and is changed."""
    for row in events:
        if row >= 0:
            held[row] = allocator.take(sizes[row], pools[row])
        elif (block := held.pop(~row, None)) is not None:
            allocator.give_back(block, pools[~row])


def storage_events(lifetimes: Lifetimes, sizes: FloatArray) -> list[int]:
    """Rows as they are allocated, and their complements as they are freed, in order of time."""
    passing = np.flatnonzero((sizes > 0) & ~lifetimes.is_resident())
    birth, death = lifetimes.birth[passing], lifetimes.death[passing]
    time = np.concatenate((2 * np.maximum(birth, 0), 2 * np.minimum(death, _NEVER) + 1))
    rows = np.concatenate((passing, ~passing))
    events: list[int] = rows[np.argsort(time, kind="stable")].tolist()
    return events


def _rounded(num_bytes: FloatArray) -> list[int]:
    """Bytes that the allocator hands out for tensors of so many."""
    whole = np.maximum(num_bytes.astype(np.int64), 1)
    sizes: list[int] = (-(-whole // _ROUND) * _ROUND).tolist()
    return sizes


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _segment_bytes(size_bytes: int) -> int:
    """Bytes of the segment that serves a request of so many rounded bytes."""
    if size_bytes <= _SMALL_LIMIT:
        return _SMALL_SEGMENT
    if size_bytes < _OWN_SEGMENT_FROM:
        return _LARGE_SEGMENT
    return _round_up(size_bytes, _LARGE_ROUND)
