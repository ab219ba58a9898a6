"""Layers of Keras that do something in training alone: masks, noise, pictures seen otherwise.

Standard library and torch only.
"""

from functools import partial

import torch
import torch.nn.functional as F
from keras_context import refused
from rebuilt_operators import channels_first, channels_last
from rebuilt_program import Training


def dropout(layer, x, *_more):
    """A mask of each number."""
    rate = layer.get("rate", 0.5)
    if not isinstance(rate, (int, float)) or not 0 <= rate <= 1:
        raise refused("layer `%s` (Dropout) has `rate` of %s" % (layer.name, rate))
    if layer.get("noise_shape"):
        return _masked(layer, x, [n if n == 1 else -1 for n in layer.get("noise_shape")][1:])
    return layer.run(F.dropout, x, float(rate), Training)


def spatial_dropout(layer, x):
    """A mask of each channel."""
    return _masked(layer, x, [1] * (len(x.shape) - 2) + [-1])


def drop_path(layer, x, *_more):
    """A mask of each item."""
    return _masked(layer, x, [1] * (len(x.shape) - 1))


def _in_training(layer, x, change):
    """What ``change`` makes of the input in training; else the input."""
    return layer.run(lambda a, training: change(a) if training else a, x, Training)


def _masked(layer, x, kept):
    """``kept`` says of each dim after the batch whether the mask has its extent (-1) or one (1)."""

    def masked(a):
        """Half of the places, drawn anew."""
        shape = [a.shape[0]] + [1 if k == 1 else n for k, n in zip(kept, a.shape[1:])]
        return a * a.new_empty(shape).bernoulli_(0.5)

    return _in_training(layer, x, masked)


def noise(combine, layer, x, *_more):
    """Random numbers that are added, or multiplied by."""
    return _in_training(layer, x, lambda a: combine(a, torch.randn_like(a)))


def warped(layer, x):
    """A picture seen through a random affine map, in training."""

    def seen(a):
        """Each picture by a map of its own."""
        first = channels_first(a)
        grid = F.affine_grid(a.new_empty((a.shape[0], 2, 3)), list(first.shape), False)
        return channels_last(F.grid_sample(first, grid, align_corners=False))

    return _in_training(layer, x, seen)


def flipped(layer, x):
    """A picture turned over or not, in training."""

    def turned(a):
        """Every other picture mirrored."""
        is_turned = a.new_empty((a.shape[0], 1, 1, 1)).bernoulli_(0.5) > 0
        return torch.where(is_turned, a.flip(2), a)

    return _in_training(layer, x, turned)


def shifted(layer, x):
    """A picture made brighter or more contrasty, in training."""
    return _in_training(layer, x, lambda a: (a * a.new_empty((a.shape[0], 1, 1, 1))).clamp(0, 255))


LAYERS = {
    "Dropout": dropout, "AlphaDropout": partial(noise, torch.mul),
    "GaussianDropout": partial(noise, torch.mul),
    "GaussianNoise": partial(noise, torch.add), "StochasticDepth": drop_path,
    **{"SpatialDropout%dD" % n: spatial_dropout for n in (1, 2, 3)},
    "RandomFlip": flipped, "RandomContrast": shifted, "RandomBrightness": shifted,
    **dict.fromkeys(("RandomRotation", "RandomZoom", "RandomTranslation", "RandomShear"), warped),
}  # fmt: skip
