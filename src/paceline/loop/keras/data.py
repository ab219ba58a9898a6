"""Data of `paceline train` for Keras models: a tuple of inputs and target for each number."""

import zipfile

import numpy as np

from paceline.loop.errors import LoopError
from paceline.loop.readers.folders import ImageFolder


class Generated:
    """Images that are made, not read: noise around one image per class, the same each time."""

    def __init__(self, count, num_classes, side):
        self.num_classes, self._count = num_classes, count
        self._shape = (side, side, 3)

    def fit_to(self, model):
        """Make images as a model reads them."""
        shape = tuple(model.input_shape[1:]) if isinstance(model.input_shape, tuple) else ()
        if shape and None not in shape:
            self._shape = shape

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        label = index % self.num_classes
        mean = np.random.default_rng(label).standard_normal(self._shape, dtype=np.float32)
        noise = np.random.default_rng([index, 1]).standard_normal(self._shape, dtype=np.float32)
        return mean + noise, label


class Arrays:
    """The arrays ``x`` and ``y`` of an ``.npz`` file."""

    def __init__(self, path):
        try:
            with np.load(path, allow_pickle=False) as file:
                self._x, self._y = file["x"], file["y"]
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise LoopError(
                "`%s` cannot be read: %s" % (path, error), "numpy.savez(path, x=inputs, y=labels)"
            ) from None
        if len(self._x) != len(self._y):
            raise LoopError(
                "`%s` has %d inputs and %d labels" % (path, len(self._x), len(self._y)),
                "give as many of each",
            )
        self.num_classes = int(self._y.max()) + 1

    def fit_to(self, model):
        """Nothing: they are as they are."""

    def __len__(self):
        return len(self._x)

    def __getitem__(self, index):
        return self._x[index], self._y[index]


class Images:
    """Images below a folder, with a folder for each class, read and resized by Keras.

    Attributes:
        num_classes: Of its labels.
    """

    def __init__(self, path, side, norm):
        self._reader, self._side, self._norm = ImageFolder(path), (side, side), norm
        self._mode = "rgb"
        self.num_classes = len(self._reader.classes or ())
        if not self.num_classes:
            raise LoopError("`%s` has no folders of classes" % path, "one folder for each class")

    def fit_to(self, model):
        """Read them at the size of a model, and in its colours."""
        side = tuple(model.input_shape[1:3])
        if None not in side:
            self._side = side
        self._mode = {1: "grayscale", 4: "rgba"}.get(model.input_shape[3], "rgb")

    def __len__(self):
        return len(self._reader)

    def __getitem__(self, index):
        import keras

        image = keras.utils.load_img(
            self._reader.name_of(index), color_mode=self._mode, target_size=self._side
        )
        pixels = keras.utils.img_to_array(image, data_format="channels_last", dtype="float32")
        if self._norm is not None:
            pixels = (pixels - np.float32(self._norm[0])) / np.float32(self._norm[1])
        return pixels, self._reader.label_of(index)
