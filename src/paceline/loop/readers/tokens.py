"""Files of token numbers, mapped: a sample is a window of them."""

import bisect
import os

import numpy as np

from ..decode import DamagedSample
from .records import NO_LABEL, Damage, Stored, UnreadableData

_KINDS = ("uint8", "uint16", "uint32", "int32", "int64")


class TokenFiles:
    """Windows of ``window`` tokens and the one after, side by side; none spans two files.

    Args:
        files: ``.npy`` of one dimension, or bare numbers of ``dtype``.
        window: Tokens of a sample.
        dtype: Of files without a header: ``uint8``, ``uint16``, ``uint32``, ``int32``, ``int64``.
        vocabulary: Tokens there are; a window with another number is damaged. None checks nothing.
    """

    kind = "tokens"

    def __init__(self, files, window, dtype=None, vocabulary=None):
        self.files, self.window, self.vocabulary = list(files), int(window), vocabulary
        self.dtype, self.damaged, self.classes = dtype, [], None
        if self.window < 1:
            raise UnreadableData("a window of %d tokens" % self.window)
        self._map()
        if not len(self) and not self.damaged:
            raise UnreadableData("no window of %d tokens in `%s`" % (self.window, self.files[0]))

    def _map(self):
        self._tokens, self._ends, self.damaged = [], [], []
        for path in self.files:
            try:
                tokens = _mapped(path, self.dtype)
            except (OSError, ValueError) as error:
                self.damaged.append(Damage(path, str(error)))
                tokens = np.zeros(0, np.uint8)
            windows = max(0, len(tokens) - 1) // self.window
            self._tokens.append(np.asarray(tokens))  # Slices of a memmap cost twice as much.
            self._ends.append((self._ends[-1] if self._ends else 0) + windows)
        kinds = {t.dtype for t in self._tokens if len(t)}
        if len(kinds) > 1:
            raise UnreadableData("token files of several types: %s" % sorted(map(str, kinds)))
        self.shape, self.dtype = (self.window + 1,), str(kinds.pop()) if kinds else self.dtype

    def __getstate__(self):
        return {n: v for n, v in self.__dict__.items() if n not in ("_tokens", "_ends")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._map()

    def __len__(self):
        return self._ends[-1]

    def read(self, index):
        """One window and the token after it."""
        file, start = self._place(index)
        tokens = self._tokens[file][start : start + self.window + 1]
        if self.vocabulary is not None and not 0 <= tokens.min() <= tokens.max() < self.vocabulary:
            raise DamagedSample("a token beyond the vocabulary of %d" % self.vocabulary)
        return Stored(tokens, NO_LABEL)

    def copy_rows(self, out, rows, indices):
        """Copy windows into rows of ``out``; only where no window can be damaged."""
        length = self.window + 1
        for row, index in zip(rows, indices):
            file, start = self._place(index)
            out[row] = self._tokens[file][start : start + length]

    @property
    def copies_rows(self):
        """Whether rows may be copied without a look at each."""
        return self.vocabulary is None

    def name_of(self, index):
        """File and first token."""
        file, start = self._place(index)
        return "%s at token %d" % (self.files[file], start)

    def _place(self, index):
        if index < self._ends[0]:
            return 0, index * self.window
        file = bisect.bisect_right(self._ends, index)
        return file, (index - (self._ends[file - 1] if file else 0)) * self.window


def _mapped(path, dtype):
    if path.endswith(".npy"):
        try:
            tokens = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # noqa: BLE001 - the header is parsed as Python, with its errors
            raise ValueError("no array: %s" % error) from None
        if tokens.ndim != 1 or str(tokens.dtype) not in _KINDS:
            raise ValueError("an array of shape %s and type %s" % (tokens.shape, tokens.dtype))
        return tokens
    if dtype is None or str(np.dtype(dtype)) not in _KINDS:
        raise UnreadableData("`%s` does not say what numbers it holds" % path, 'dtype="uint16"')
    kind, size = np.dtype(dtype), os.path.getsize(path)
    if size % kind.itemsize:
        raise ValueError("%d bytes are no whole number of %s" % (size, kind))
    return np.memmap(path, kind, mode="r") if size else np.zeros(0, kind)
