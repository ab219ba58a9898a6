"""An order of samples that lie in blocks which are read whole: rows of a Parquet row group.

Blocks are permuted, joined in windows of a few, and samples are permuted within a window. Each
block is then read once per epoch, and a window is small enough to be kept. Like every order here
it is a function of seed, epoch and position; only the ends of the blocks are kept.
"""

from bisect import bisect_right
from itertools import accumulate

import torch

from ..order import permuted

#: Blocks that are mixed: as many as a reader keeps, less the one that others still finish.
_WINDOW = 3


class BlockOrder:
    """Samples by position: ``order[begin:end]`` is a list of indices.

    Args:
        block_ends: Index after the last sample of each block.
        seed: Of the run.
        epoch: Number of the epoch.
    """

    def __init__(self, block_ends, seed, epoch):
        self.seed, self.epoch = seed, epoch
        starts = [0, *block_ends[:-1]]
        mixed = permuted(torch.arange(len(block_ends)), len(block_ends), seed, epoch).tolist()
        blocks = [(starts[number], block_ends[number]) for number in mixed]
        self._windows = [blocks[n : n + _WINDOW] for n in range(0, len(blocks), _WINDOW)]
        self._ends = list(accumulate(sum(e - s for s, e in window) for window in self._windows))

    def __len__(self):
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, places):
        begin, end, _ = places.indices(len(self))
        found = []
        while begin < end:
            number = bisect_right(self._ends, begin)
            stop = min(end, self._ends[number])
            found.extend(self._of_window(number, begin, stop))
            begin = stop
        return found

    def _of_window(self, number, begin, end):
        start = self._ends[number - 1] if number else 0
        count = self._ends[number] - start
        # Each window draws its own permutation: the number of the window goes into the seed.
        inside = permuted(
            torch.arange(begin - start, end - start),
            count,
            self.seed + 7919 * (number + 1),
            self.epoch,
        )
        ends = list(accumulate(e - s for s, e in self._windows[number]))
        return [self._sample(number, ends, place) for place in inside.tolist()]

    def _sample(self, number, ends, place):
        which = bisect_right(ends, place)
        return self._windows[number][which][0] + place - (ends[which - 1] if which else 0)
