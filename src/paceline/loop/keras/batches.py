"""Batches of an epoch from any position on, as Keras reads them: their order is arithmetic."""

import keras
import numpy as np

from paceline.loop import order
from paceline.loop.errors import LoopError


class Samples:
    """Arrays with samples first, or whatever gives a tuple for an index.

    Args:
        parts: Inputs, targets and weights, each an array or a structure of arrays; None for those
            that are not there.

    Raises:
        LoopError: They differ in length.
    """

    def __init__(self, *parts):
        parts = [one for one in parts if one is not None]
        self._is_map = len(parts) == 1 and not keras.tree.is_nested(parts[0])
        self._is_map = self._is_map and not hasattr(parts[0], "shape")
        self._parts = parts if self._is_map else keras.tree.map_structure(np.asarray, parts)
        sizes = {len(one) for one in keras.tree.flatten(self._parts)}
        if len(sizes) != 1:
            raise LoopError(
                "inputs and targets have %s samples" % sorted(sizes), "give as many of each"
            )
        (self._count,) = sizes

    def __len__(self):
        return self._count

    def at(self, indices):
        """The batch of these samples, as arrays."""
        if self._is_map:
            rows = zip(*(self._parts[0][int(one)] for one in indices))
            return tuple(np.stack([np.asarray(one) for one in row]) for row in rows)
        return tuple(keras.tree.map_structure(lambda one: one[indices], self._parts))


class Batches(keras.utils.PyDataset):
    """Whole batches of an epoch, from a position on; the rest that makes no batch is left out.

    Attributes:
        epoch: Number of the epoch that is read.
        start: Position at which it begins.
        batch_size: Samples of a batch, over all replicas.
        seed: Of the order.
    """

    def __init__(self, samples, batch_size, seed, is_shuffled, share=(0, 1)):
        super().__init__()
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.epoch = self.start = 0
        self._share, self._is_shuffled = share, is_shuffled

    def __len__(self):
        return max(0, len(self.samples) - self.start) // self.batch_size

    def __getitem__(self, index):
        first = self.start + index * self.batch_size
        begin, end = order.share_of(self.batch_size, *self._share)
        places = np.arange(first + begin, first + end)
        if self._is_shuffled:
            places = order.permuted(places, len(self.samples), self.seed, self.epoch)
        return self.samples.at(places)
