"""Replay steps of training through a model of glibc's heap, where PyTorch keeps tensors of a CPU.

Tensors are aligned to 64 bytes. Before release 2.39 such a request takes a chunk that is larger by
the alignment and gives the ends back to lists whose chunks never join their neighbours. What
a tensor left then has no room for a tensor of the same size, unless the small objects that came
into those ends have gone. So a heap holds up to twice what is alive. Which objects lie where is
chance: a replay is one draw of it. Large chunks are mapped by themselves and given back whole; what
is large grows with the largest that was given back, up to 32 MiB.

Source: glibc 2.36, malloc/malloc.c (`_int_memalign`, `_int_malloc`, `_int_free`, `sysmalloc`,
`systrim`); glibc 2.39, "malloc: Enable merging of remainders in memalign" (bug 30723);
c10/core/alignment.h (`gAlignment`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from paceline.model.graph.graph import FloatArray, Owner
from paceline.model.graph.program import OUTLIVES
from paceline.model.lowering import Lifetimes
from paceline.prediction.memory.allocator import storage_events
from paceline.prediction.memory.free_blocks import Block, FreeBlocks

_HEADER, _ROUND, _LEAST, _ALIGNMENT = 8, 16, 32, 64
_PAGE, _PAD = 4096, 128 * 1024
_MAPPED_FROM, _MAPPED_AT_MOST = 128 * 1024, 32 * 2**20
_CACHED_AT_MOST, _NUM_CACHED, _FAST_AT_MOST = 1040, 7, 128
_LARGE = 1024
_MAPPED_ADDRESS = -1
#: Objects beside a tensor, before and after it is taken: its storage, itself and its version; in a
#: forward pass also nodes of the backward pass, their edges and facts of its gradient. By calls of
#: malloc in two scripts of PyTorch 2.13 (transformer, perceptron) a forward pass leaves 15 and 9
#: for each of its tensors, of 190 bytes in the mean.
_NUM_FORWARD, _NUM_BACKWARD = (4, 8), (0, 3)
_OBJECT_BYTES = range(32, 368, 16)
#: Steps after which the peak of every script that was looked at had settled.
_NUM_STEPS = 5


@dataclass(slots=True, eq=False)
class _Heap:
    """State of one replay: the heap grows at its end, the top, and shrinks there alone."""

    joins_ends: bool
    free: FreeBlocks = field(default_factory=FreeBlocks)
    top: Block = field(default_factory=lambda: Block(0, 0, is_free=False))
    cached: dict[int, list[Block]] = field(default_factory=lambda: defaultdict(list))
    fast: list[Block] = field(default_factory=list)
    mapped_from: int = _MAPPED_FROM
    held_bytes: int = 0
    peak_bytes: int = 0

    def take_aligned(self, num_bytes: int) -> Block:
        """A tensor: a chunk at a multiple of the alignment, cut out of a larger one."""
        size_bytes = _chunk_bytes(num_bytes)
        block = self.take(size_bytes + _ALIGNMENT + _LEAST)
        if block.address == _MAPPED_ADDRESS:
            return block
        ahead = -(block.address + _ROUND) % _ALIGNMENT
        if ahead:
            body = block.cut(ahead + _ALIGNMENT * (ahead < _LEAST))
            body.is_free = False
            self._give_end(block)
            block = body
        if block.size_bytes - size_bytes >= _LEAST:
            rest = block.cut(size_bytes)
            rest.is_free = False
            self._give_end(rest)
        return block

    def take(self, size_bytes: int) -> Block:
        """A chunk of so many bytes."""
        if self.cached[size_bytes]:
            return self.cached[size_bytes].pop()
        if size_bytes >= _LARGE:
            self._join_fast()
        block = self.free.take_fit(size_bytes)
        if block is None:
            return self._take_new(size_bytes)
        if block.size_bytes - size_bytes >= _LEAST:
            self.free.add(block.cut(size_bytes))
        return block

    def give_back(self, block: Block) -> None:
        """Free a chunk; small ones wait in lists of their size, as if they were in use."""
        if block.address == _MAPPED_ADDRESS:
            self.held_bytes -= block.size_bytes
            if block.size_bytes <= _MAPPED_AT_MOST:
                self.mapped_from = max(self.mapped_from, block.size_bytes)
        elif self._is_cacheable(block):
            self.cached[block.size_bytes].append(block)
        elif block.size_bytes <= _FAST_AT_MOST:
            self.fast.append(block)
        else:
            self._join(block)

    def _give_end(self, block: Block) -> None:
        if self.joins_ends:
            self._join(block)
        else:
            self.give_back(block)

    def _is_cacheable(self, block: Block) -> bool:
        is_small = block.size_bytes <= _CACHED_AT_MOST
        return is_small and len(self.cached[block.size_bytes]) < _NUM_CACHED

    def _join_fast(self) -> None:
        blocks, self.fast = self.fast, []
        for block in blocks:
            self._join(block)

    def _join(self, block: Block) -> None:
        block = self.free.joined(block)
        if block.following is not self.top:
            self.free.add(block)
            return
        block.absorb_following()
        block.is_free = False
        self.top = block
        if block.size_bytes >= max(_PAD, 2 * self.mapped_from * (self.mapped_from > _MAPPED_FROM)):
            self._grow(-((block.size_bytes - _LEAST - _PAD - 1) // _PAGE) * _PAGE)

    def _take_new(self, size_bytes: int) -> Block:
        """From the top, which grows where it is too small, or by a map of its own."""
        if self.top.size_bytes < size_bytes + _LEAST:
            if size_bytes >= self.mapped_from:
                return self._map(size_bytes)
            self._grow(_pages(size_bytes + _PAD + _LEAST - self.top.size_bytes))
        block, self.top = self.top, self.top.cut(size_bytes)
        self.top.is_free = False
        return block

    def _map(self, size_bytes: int) -> Block:
        block = Block(_pages(size_bytes + _HEADER), _MAPPED_ADDRESS, is_free=False)
        self._hold(block.size_bytes)
        return block

    def _grow(self, num_bytes: int) -> None:
        self.top.size_bytes += num_bytes
        self._hold(num_bytes)

    def _hold(self, num_bytes: int) -> None:
        self.held_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)


def heap_peaks_bytes(
    lifetimes: Lifetimes, *, batch: int, seq: int, joins_ends: bool, num_draws: int
) -> FloatArray:
    """What a heap holds at most in training, beside what it held before the first step.

    Every second draw keeps gradients until the next backward pass begins, as where a script drops
    them after its forward pass; the others drop them at the end of the step.

    Args:
        lifetimes: Storages of a lowered step in order.
        batch: Items.
        seq: Tokens of a sequence.
        joins_ends: Whether the heap is that of release 2.39 or later.
        num_draws: Of where small objects lie.

    Returns:
        Peak of each draw, (num_draws,).
    """
    sizes = lifetimes.bytes_at(batch, seq)
    peaks = [
        _Replay(lifetimes, sizes, keeps=draw % 2 == 1, joins_ends=joins_ends, seed=draw).peak_bytes
        for draw in range(num_draws)
    ]
    return np.array(peaks, dtype=np.float64)


class _Replay:
    """Steps of one draw."""

    def __init__(
        self, lifetimes: Lifetimes, sizes: FloatArray, *, keeps: bool, joins_ends: bool, seed: int
    ) -> None:
        self._heap = _Heap(joins_ends=joins_ends)
        self._chance = random.Random(seed)
        self._sizes = sizes.astype(np.int64).tolist()
        birth, is_made = (
            lifetimes.birth,
            (lifetimes.owner == Owner.GRADIENT) & (lifetimes.birth >= 0),
        )
        self._is_kept = (is_made & keeps).tolist()
        self._is_forward = (birth < birth[is_made].min(initial=OUTLIVES)).tolist()
        self._held: dict[int, list[Block]] = {}
        self._kept: dict[int, list[Block]] = {}
        events = storage_events(lifetimes, sizes)
        is_state = lifetimes.is_resident() & (lifetimes.owner == Owner.OPTIMIZER_STATE)
        for step in range(_NUM_STEPS):
            self._run(events)
            for row in np.flatnonzero(is_state).tolist() if step == 0 else ():
                self._tensor(row)
        self.peak_bytes = self._heap.peak_bytes

    def _run(self, events: list[int]) -> None:
        for row in events:
            if row >= 0:
                if self._is_kept[row]:
                    self._drop(self._kept)
                self._held[row] = self._tensor(row)
            elif ~row in self._held and not self._is_kept[~row]:
                self._free(self._held.pop(~row))
        self._kept |= {row: self._held.pop(row) for row in [*self._held] if self._is_kept[row]}
        self._drop(self._held)

    def _drop(self, held: dict[int, list[Block]]) -> None:
        while held:
            self._free(held.pop(next(iter(held))))

    def _tensor(self, row: int) -> list[Block]:
        num_before, num_after = _NUM_FORWARD if self._is_forward[row] else _NUM_BACKWARD
        before = self._objects(num_before)
        return [self._heap.take_aligned(self._sizes[row]), *before, *self._objects(num_after)]

    def _objects(self, count: int) -> list[Block]:
        sizes = self._chance.choices(_OBJECT_BYTES, k=count)
        return [self._heap.take(size_bytes) for size_bytes in sizes]

    def _free(self, blocks: list[Block]) -> None:
        for block in blocks:
            self._heap.give_back(block)


def _chunk_bytes(num_bytes: int) -> int:
    return max(_LEAST, -(-(num_bytes + _HEADER) // _ROUND) * _ROUND)


def _pages(num_bytes: int) -> int:
    return -(-num_bytes // _PAGE) * _PAGE
