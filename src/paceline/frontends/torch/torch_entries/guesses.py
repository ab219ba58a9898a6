"""What a model eats, where nobody says: from its first layer, at the first size that it takes.

Standard library and torch only.
"""

import torch
from torch import nn

#: Sides of pictures, samples of signals, and frames, heights and widths of volumes: usual first.
_SIDES = (224, 32, 28, 64, 96, 128, 256, 299, 384, 512)
_SAMPLES = (16000, 8000, 4096, 1024, 784, 512, 256, 128)
#: Channels of what is seen, those of colours among them, and the least side of a picture.
_CHANNELS, _COLOURS, _LEAST_SIDE = (1, 3, 4), 3, 16
_VOLUMES = ((16, 112, 112), (64, 64, 64), (32, 32, 32), (128, 128, 128))


class Guess:
    """A kind of input and what one item of it is.

    Attributes:
        kind: ``image``, ``features`` or ``text``.
        shape: Shape of one item; None for tokens, and of one step where there is a length.
        taken: Sizes that the model does not say, in words; empty where there are none.
        has_steps: Whether items are sequences of vectors.
        steps_first: Whether their steps come before the batch.
    """

    def __init__(self, kind, shape, taken="", has_steps=False, steps_first=False):
        self.kind, self.shape, self.taken = kind, shape, taken
        self.has_steps, self.steps_first = has_steps, steps_first


def guessed(model, image_size=None):
    """What the first layer that tells says; None where none does."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            return _pictures(model, module.in_channels, image_size)
        if isinstance(module, nn.Conv1d):
            return _fitted(model, "features", module.in_channels, [(n,) for n in _SAMPLES])
        if isinstance(module, nn.Conv3d):
            return _fitted(model, "image", module.in_channels, _VOLUMES)
        if isinstance(module, nn.Embedding):
            return Guess("text", None)
        if isinstance(module, nn.RNNBase):
            shape = (module.input_size,)
            return Guess("features", shape, has_steps=True, steps_first=not module.batch_first)
        if isinstance(module, nn.Linear):
            return Guess("features", (module.in_features,))
    return None


def _pictures(model, channels, image_size):
    """Pictures of the size asked for or that the model knows; else of the first that it takes."""
    known = image_size or getattr(model, "image_size", None)
    if known:
        return Guess("image", (channels, known, known))
    guess = _fitted(model, "image", channels, [(side, side) for side in _SIDES])
    if guess.shape[1:] == (_SIDES[0], _SIDES[0]):
        guess.taken = ""
    return guess


def _fitted(model, kind, channels, sizes):
    """The first of some sizes that the model takes, else the first of all."""
    size = next((size for size in sizes if _takes(model, (channels, *size))), sizes[0])
    return Guess(kind, (channels, *size), "items of " + "×".join(map(str, (channels, *size))))


def _takes(model, shape):
    was_training = model.training
    try:
        with torch.no_grad():
            model.eval()(torch.empty((2, *shape), device="meta"))
    except Exception:  # noqa: BLE001  A user's forward; how it fails says nothing, that it does all.
        return False
    finally:
        model.train(was_training)
    return True


def extents_words(tensors):
    """What inputs of four or five extents are, by the first that has numbers; empty for others.

    Three channels of five extents are those of a clip's frames, before or behind their number.
    Several pictures of one size make one sample, such as the three of a triplet.
    """
    alike = [tuple(int(n) for n in one.shape[1:]) for one in tensors if one.is_floating_point()]
    sizes = alike[0] if alike else ()
    extents = "×".join(map(str, sizes[-2:]))
    if len(sizes) == 3 and sizes[0] in _CHANNELS and min(sizes[1:]) >= _LEAST_SIDE:
        number = alike.count(sizes)
        return ("%d " % number if number > 1 else "") + "pictures of " + extents
    if len(sizes) != 4:
        return ""
    if _COLOURS in sizes[:2]:
        num_frames = sizes[1] if sizes[0] == _COLOURS else sizes[0]
        return "%d frames of %s" % (num_frames, extents)
    is_volume = sizes[0] in _CHANNELS and min(sizes[1:]) >= _LEAST_SIDE
    return "volumes of " + "×".join(map(str, sizes[1:])) if is_volume else ""
