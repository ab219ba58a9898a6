"""A folder of images, with one folder per class or none."""

import os

from ..decode import LIMITS, DamagedSample
from .records import IMAGE_SUFFIXES, NO_LABEL, Stored, UnreadableData


class ImageFolder:
    """Images below a folder; the folders in it are the classes, in alphabetical order."""

    kind = "image"

    def __init__(self, path, limits=LIMITS):
        self.path, self.limits, self.damaged = path, limits, []
        self._names, self._labels = [], []
        folders = sorted(e.name for e in os.scandir(path) if e.is_dir())
        self.classes = [f for f in folders if self._add(os.path.join(path, f), f)] or None
        if self.classes is None or any(_is_image(e.name) for e in os.scandir(path)):
            self._add_flat(path)
        if not self._names:
            raise UnreadableData("no image below `%s` (%s)" % (path, " ".join(IMAGE_SUFFIXES)))

    def _add(self, folder, name):
        """Add a class; whether it has an image."""
        label, before = self._next_label(), len(self._names)
        for found in _images_below(folder):
            self._names.append(os.path.join(name, found))
            self._labels.append(label)
        return len(self._names) > before

    def _next_label(self):
        return self._labels[-1] + 1 if self._labels else 0

    def _add_flat(self, path):
        names = sorted(e.name for e in os.scandir(path) if _is_image(e.name))
        self._names.extend(names)
        self._labels.extend([NO_LABEL] * len(names))

    def __len__(self):
        return len(self._names)

    def read(self, index):
        """The stored bytes of one image and the number of its class."""
        path = self.name_of(index)
        try:
            with open(path, "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if size > self.limits.sample_bytes:
                    raise DamagedSample("%d bytes, over the limit" % size)
                return Stored(file.read(), self._labels[index])
        except OSError as error:
            raise DamagedSample(error.strerror or str(error)) from None

    def label_of(self, index):
        """Number of the class of an image."""
        return self._labels[index]

    def name_of(self, index):
        """Path of an image."""
        return os.path.join(self.path, self._names[index])


def _images_below(folder):
    """Images in a folder and in those below, sorted, relative to it."""
    found = []
    for base, folders, names in os.walk(folder):
        folders.sort()
        inner = os.path.relpath(base, folder)
        found.extend(os.path.normpath(os.path.join(inner, n)) for n in names if _is_image(n))
    return sorted(found)


def _is_image(name):
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")
