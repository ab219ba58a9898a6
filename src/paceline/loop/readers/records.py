"""What all readers share: a sample as stored, and samples that lie in files at known places."""

import os
import threading
from array import array
from collections import namedtuple

from ..decode import LIMITS, DamagedSample
from ..errors import LoopError

#: ``data`` of a sample (bytes of an image, or an array), and its label; -1 where there is none.
Stored = namedtuple("Stored", ["data", "label"])
#: Something that could not be read, by name, and why.
Damage = namedtuple("Damage", ["name", "reason"])

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".ppm")
NO_LABEL = -1
#: Files kept open; a process may usually have 1,024.
_KEPT_OPEN = 256


READABLE = (
    "it reads folders of images, .tar shards, Parquet, Arrow, LMDB, token files and NumPy arrays"
)


class UnreadableData(LoopError):
    """There is nothing that can be read where data was expected."""

    def __init__(self, message, hint=READABLE):
        LoopError.__init__(self, message, hint)


class Spans:
    """Samples at places of files: read with one ``pread``, which leaves the GIL to others."""

    kind = "image"

    def __init__(self, files, limits=LIMITS):
        self.files, self.limits, self.damaged, self.classes = files, limits, [], None
        self._file, self._start, self._size = array("i"), array("q"), array("q")
        self._open, self._lock = {}, threading.Lock()

    def __len__(self):
        return len(self._start)

    def __getstate__(self):
        return {n: v for n, v in self.__dict__.items() if n not in ("_open", "_lock")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._open, self._lock = {}, threading.Lock()

    def __del__(self):
        for descriptor in self.__dict__.get("_open", {}).values():
            os.close(descriptor)

    def add(self, file, start, size):
        """Note where one more sample is."""
        self._file.append(file)
        self._start.append(start)
        self._size.append(size)

    def read(self, index):
        """The stored bytes of one sample and its label."""
        file, start, size = self._file[index], self._start[index], self._size[index]
        return Stored(self.bytes_at(file, start, size), self.label_of(index))

    def label_of(self, index):
        """Its label; -1 where none is stored."""
        return NO_LABEL

    def name_of(self, index):
        """Where a sample is, for a message."""
        return "%s at byte %d" % (self.files[self._file[index]], self._start[index])

    def bytes_at(self, file, start, size):
        """So many bytes of a file, all of them or an error."""
        if size > self.limits.sample_bytes:
            raise DamagedSample("%d bytes, over the limit of %d" % (size, self.limits.sample_bytes))
        try:
            found = self._pread(file, start, size)
        except OSError as error:
            raise DamagedSample(str(error)) from None
        if len(found) < size:
            raise DamagedSample("%d of %d bytes are there" % (len(found), size))
        return found

    def _pread(self, file, start, size):
        """From a descriptor that stays open, or from one of its own beyond so many."""
        with self._lock:
            if file not in self._open and len(self._open) < _KEPT_OPEN:
                self._open[file] = os.open(self.files[file], os.O_RDONLY)
            descriptor = self._open.get(file)
        if descriptor is not None:
            return os.pread(descriptor, size, start)
        with open(self.files[file], "rb", buffering=0) as opened:
            return os.pread(opened.fileno(), size, start)
