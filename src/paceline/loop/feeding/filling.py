"""One sample into its row of a batch: read, decode or run the user's Python, and copy."""

import random
import time
from collections import namedtuple

import numpy as np

from ..decode import DamagedSample, decode, pixels_of
from ..order import seed_of
from ..readers.records import NO_LABEL

#: Where the time of some samples went: seconds of the clock and of the core, by stage; and of the
#: core around the stages, for the queue of batches.
Spent = namedtuple(
    "Spent", ["samples", "read_s", "read_cpu_s", "work_s", "work_cpu_s", "around_cpu_s"],
    defaults=[0.0],
)  # fmt: skip
NOTHING = Spent(0, 0.0, 0.0, 0.0, 0.0)

_PROBED = 100


class Filler:
    """Fills rows from a reader.

    Args:
        reader: Of ``readers``.
        recipe: What is sent of an image; None where samples are arrays.
        limits: Of type ``decode.Limits``.
        transform: The user's function of the decoded pixels or array, to an array; or None.
        seed: Of the run: a sample draws the same random numbers whoever reads it.

    Attributes:
        shape, dtype: Of one row.
    """

    def __init__(self, reader, recipe, limits, transform=None, seed=0):
        self.reader, self.recipe, self.limits = reader, recipe, limits
        self.transform, self.seed = transform, seed
        self.is_python = transform is not None or reader.kind == "python"
        if transform is not None:
            self.shape, self.dtype = self._probe()
        elif reader.kind == "image":
            self.shape, self.dtype = (recipe.size, recipe.size, 3), "uint8"
        else:
            self.shape, self.dtype = tuple(reader.shape), reader.dtype

    def fill(self, inputs, labels, rows, indices, epoch):
        """Fill some rows; return ``(row, reason)`` of those that are damaged, and the time spent.

        Args:
            inputs: Array of the batch that is written.
            labels: Of the batch, likewise.
            rows: Rows to fill.
            indices: The sample of each row.
            epoch: For the random numbers of a sample.
        """
        if self.transform is None and getattr(self.reader, "copies_rows", False):
            return [], self._copied(inputs, labels, rows, indices)
        damaged, read_s, read_cpu_s = [], 0.0, 0.0
        began, began_cpu = time.perf_counter(), time.thread_time()
        for row, index in zip(rows, indices):
            start, start_cpu = time.perf_counter(), time.thread_time()
            try:
                stored = self.reader.read(index)
                read_s += time.perf_counter() - start
                read_cpu_s += time.thread_time() - start_cpu
                labels[row] = stored.label
                self._place(stored.data, inputs[row], index, epoch)
            except DamagedSample as error:
                damaged.append((row, str(error)))
        all_s, all_cpu_s = time.perf_counter() - began, time.thread_time() - began_cpu
        return damaged, Spent(
            len(indices), read_s, read_cpu_s, all_s - read_s, all_cpu_s - read_cpu_s
        )

    def _copied(self, inputs, labels, rows, indices):
        """Rows that need nothing but to be copied: in one call, and timed as reading."""
        start, start_cpu = time.perf_counter(), time.thread_time()
        self.reader.copy_rows(inputs, rows, indices)
        labels[rows.start : rows.stop] = NO_LABEL
        cpu_s = time.thread_time() - start_cpu
        return Spent(len(indices), time.perf_counter() - start, cpu_s, 0.0, 0.0)

    def fill_any(self, inputs, labels, epoch):
        """Fill the first row with some sample that can be read, for a rank that has none."""
        for index in range(min(_PROBED, len(self.reader))):
            if not self.fill(inputs, labels, range(1), [index], epoch)[0]:
                return index
        raise DamagedSample("none of the first %d samples can be read" % _PROBED)

    def _place(self, data, out, index, epoch):
        if self.transform is not None:
            data = self._transformed(data, index, epoch)
        elif self.reader.kind == "image":
            draw = (
                random.Random(seed_of(self.seed, epoch, index)) if self.recipe.is_random else None
            )
            decode(data, self.recipe, out, draw, self.limits)
            return
        if data.shape != out.shape:
            raise DamagedSample("its shape is %s, not %s" % (data.shape, out.shape))
        np.copyto(out, data, casting="same_kind")

    def _transformed(self, data, index, epoch):
        """What the user's function makes of a sample, its random numbers seeded for it alone."""
        if self.reader.kind == "image":
            from ..decode import _turned

            pixels, orientation = pixels_of(data, None, self.limits)
            data = _turned(pixels, orientation) if orientation > 1 else pixels
        seed = seed_of(self.seed, epoch, index)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        return np.asarray(self.transform(data))

    def _probe(self):
        """Shape and type of what the user's function returns, from the first whole sample."""
        for index in range(min(_PROBED, len(self.reader))):
            try:
                found = self._transformed(self.reader.read(index).data, index, 0)
            except DamagedSample:
                continue
            return found.shape, str(found.dtype)
        raise DamagedSample("none of the first %d samples can be read" % _PROBED)


def added(first, second):
    """Time of both."""
    return Spent(*(a + b for a, b in zip(first, second)))
