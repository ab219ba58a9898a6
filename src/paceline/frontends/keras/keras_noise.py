"""Layers of Keras that do something in training alone: masks, noise, pictures seen otherwise.

Standard library and torch only.
"""

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


def _masked(layer, x, kept):
    """``kept`` says of each dim after the batch whether the mask has its extent (-1) or one (1)."""

    def call(a, training):
        """Half of the places, drawn anew, in training."""
        if not training:
            return a
        shape = [a.shape[0]] + [1 if k == 1 else n for k, n in zip(kept, a.shape[1:])]
        return a * a.new_empty(shape).bernoulli_(0.5)

    return layer.run(call, x, Training)


def noise(is_factor):
    """Random numbers that are added, or multiplied by."""

    def call(a, training):
        if not training:
            return a
        return a * torch.randn_like(a) if is_factor else a + torch.randn_like(a)

    return lambda layer, x, *_more: layer.run(call, x, Training)


def warped(layer, x):
    """A picture seen through a random affine map, in training."""

    def call(a, training):
        """Each picture by an affine map of its own, in training."""
        if not training:
            return a
        first = channels_first(a)
        grid = F.affine_grid(a.new_empty((a.shape[0], 2, 3)), list(first.shape), False)
        return channels_last(F.grid_sample(first, grid, align_corners=False))

    return layer.run(call, x, Training)


def flipped(layer, x):
    """A picture turned over or not, in training."""

    def call(a, training):
        """Every other picture mirrored, in training."""
        if not training:
            return a
        turned = a.new_empty((a.shape[0], 1, 1, 1)).bernoulli_(0.5) > 0
        return torch.where(turned, a.flip(2), a)

    return layer.run(call, x, Training)


def shifted(layer, x):
    """A picture made brighter or more contrasty, in training."""

    def call(a, training):
        return (a * a.new_empty((a.shape[0], 1, 1, 1))).clamp(0, 255) if training else a

    return layer.run(call, x, Training)


LAYERS = {
    "Dropout": dropout, "AlphaDropout": noise(True), "GaussianDropout": noise(True),
    "GaussianNoise": noise(False), "StochasticDepth": drop_path,
    **{"SpatialDropout%dD" % n: spatial_dropout for n in (1, 2, 3)},
    "RandomFlip": flipped, "RandomContrast": shifted, "RandomBrightness": shifted,
    **dict.fromkeys(("RandomRotation", "RandomZoom", "RandomTranslation", "RandomShear"), warped),
}  # fmt: skip
