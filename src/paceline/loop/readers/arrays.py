"""Samples in memory: arrays, a data set of the user's own, and made-up ones for trials."""

import numpy as np

from ..decode import DamagedSample
from .records import NO_LABEL, Stored, UnreadableData


class Arrays:
    """Rows of an array, or of ``(samples, labels)``."""

    kind, classes, damaged = "array", None, ()

    def __init__(self, arrays):
        parts = arrays if isinstance(arrays, tuple) else (arrays,)
        self._samples = np.asarray(parts[0])
        self._labels = np.asarray(parts[1]) if len(parts) > 1 else None
        if len(parts) > 2 or self._samples.ndim < 1 or self._samples.dtype.hasobject:
            raise UnreadableData("arrays are `samples` or `(samples, labels)`, of numbers")
        if self._labels is not None and len(self._labels) != len(self._samples):
            told = (len(self._samples), len(self._labels))
            raise UnreadableData("%d samples and %d labels" % told)
        self.shape, self.dtype = self._samples.shape[1:], str(self._samples.dtype)

    def __len__(self):
        return len(self._samples)

    def read(self, index):
        """One row and its label."""
        label = NO_LABEL if self._labels is None else int(self._labels[index])
        return Stored(self._samples[index], label)

    def name_of(self, index):
        """Its number."""
        return "row %d" % index


class Dataset:
    """A map-style data set of the user's: its Python holds the GIL, so it runs in processes."""

    kind, classes, damaged = "python", None, ()

    def __init__(self, data):
        self._data = data
        first = self.read(0)
        self.shape, self.dtype = first.data.shape, str(first.data.dtype)

    def __len__(self):
        return len(self._data)

    def read(self, index):
        """What the data set returns: ``sample`` or ``(sample, label)``."""
        found = self._data[index]
        sample, label = found if isinstance(found, tuple) else (found, NO_LABEL)
        array = np.asarray(sample)
        if array.dtype.hasobject:
            raise DamagedSample("a %s, which is no array" % type(sample).__name__)
        return Stored(array, int(label))

    def name_of(self, index):
        """Its number."""
        return "sample %d" % index


class Synthetic:
    """Made-up bytes: ``num_samples`` of ``shape``, the same for the same index."""

    kind, classes, damaged, dtype = "array", None, (), "uint8"

    def __init__(self, num_samples, shape=(224, 224, 3), num_classes=1000):
        self._num, self.shape, self._classes = int(num_samples), tuple(shape), int(num_classes)
        self._pool = np.random.default_rng(0).integers(0, 256, int(np.prod(shape)) + 4096, np.uint8)

    def __len__(self):
        return self._num

    def read(self, index):
        """A window of random bytes; its label is the index modulo the classes."""
        start, size = index * 64 % 4096, int(np.prod(self.shape))
        return Stored(self._pool[start : start + size].reshape(self.shape), index % self._classes)

    def name_of(self, index):
        """Its number."""
        return "made-up sample %d" % index
