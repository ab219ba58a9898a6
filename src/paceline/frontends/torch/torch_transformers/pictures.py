"""The picture that each sample of a language model that sees is trained with.

Standard library and torch only.
"""

import functools
import importlib
import inspect

import torch

#: Tokens of a question and its answer beside the picture, where no length is asked for: captions
#: have some 15, answers about pictures 100 to 400 (Liu et al., "Visual Instruction Tuning", 2023).
_TEXT = 128
#: Model types that write captions, and take no loss without an image.
_CAPTIONS = ("git",)


class Sight:
    """One picture of each sample: what it is given as, and how many tokens it becomes.

    Attributes:
        shape: Channels, height and width.
        num_tokens: Places of the sequence that the picture takes.
        usual_length: Of a sample, where none is asked for.
    """

    def __init__(self, model, shape, num_tokens):
        self.shape, self.num_tokens = shape, num_tokens
        self.usual_length = num_tokens + _TEXT
        self._names = inspect.signature(model.forward).parameters

    def taken(self):
        """What is said of it."""
        return "a picture of %d×%d in each sample, %d of its tokens, its encoder frozen" % (
            *self.shape[1:],
            self.num_tokens,
        )

    def inputs(self, batch, seq):
        """Named inputs beside tokens and labels."""
        given = {"pixel_values": torch.empty((batch, *self.shape), device="meta")}
        if "token_type_ids" in self._names:
            given["token_type_ids"] = torch.empty((batch, seq), dtype=torch.int64, device="meta")
        return given


def may_look(config):
    """Whether a language model may look at pictures; it is traced on text where it need not."""
    return bool(getattr(config, "vision_config", None)) and config.model_type not in _CAPTIONS


def sight(model, image_size=None):
    """The picture of a model whose every picture becomes the same tokens; None of all others.

    Models that cut each picture to sizes of its own are None: their ops follow the pictures. So are
    those that are trained on text too, unless a size of pictures is asked for.
    """
    if not image_size and _writes_text_alone(model.config):
        return None
    inner, config = getattr(model, "model", model), model.config.vision_config
    encode = getattr(inner, "get_image_features", None)
    side = image_size or getattr(config, "image_size", None)
    if encode is None or side is None:
        return None
    extents = tuple(side) if isinstance(side, (tuple, list)) else (side, side)
    shape = (getattr(config, "num_channels", 3), *extents)
    counts = [_num_tokens(model, encode, shape, batch) for batch in (2, 3)]
    if None in counts or counts[0] * 3 != counts[1] * 2:
        return None
    inner.get_image_features = functools.partial(_in_one, encode)
    return Sight(model, shape, counts[0] // 2)


def text_alone(config):
    """Of a model traced on text alone, the side of the square of pixels that is a token, and words.

    Models that keep the size of pictures merge patches before they enter the text (Qwen2-VL, arXiv
    2409.12191, section 2.1): 28 pixels of patches of 14 merged by two. 0 of all other models.
    """
    vision = getattr(config, "vision_config", None)
    sizes = [getattr(vision, name, None) for name in ("patch_size", "spatial_merge_size")]
    if not all(isinstance(size, int) for size in sizes):
        return 0, "text without pictures"
    pixels = sizes[0] * sizes[1]
    return pixels, (
        "text without pictures; of a picture each %d×%d pixels would be a token of it"
        % (pixels, pixels)
    )


def _writes_text_alone(config):
    """Whether the family has a class of its own that takes no pictures, as Gemma 3 has."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    text = config.get_text_config().model_type
    return text.startswith(config.model_type) and text in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def _in_one(encode, *arguments, **named):
    """What ``encode`` gives, with pictures that were taken out of one tensor in that tensor.

    A list of them would be joined again by an op that reads as many tensors as a batch has.
    """
    found = encode(*arguments, **named)
    pictures = getattr(found, "pooler_output", None)
    if isinstance(pictures, (tuple, list)) and pictures[0]._base is not None:
        whole = pictures[0]._base
        found.pooler_output = [whole.reshape(-1, whole.shape[-1])]
    return found


def _num_tokens(model, encode, shape, batch):
    """Vectors of the language model's width that a batch of pictures becomes; None if it fails."""
    width = model.config.get_text_config().hidden_size
    try:
        with torch.no_grad():
            found = encode(torch.empty((batch, *shape), device="meta"))
    except Exception:  # noqa: BLE001  A model's own words for pictures that need more than pixels.
        return None
    found = getattr(found, "pooler_output", found)
    found = found if isinstance(found, (tuple, list)) else (found,)
    if not all(isinstance(one, torch.Tensor) and one.shape[-1] == width for one in found):
        return None
    return sum(one.numel() for one in found) // width


def freeze_encoder(model):
    """Train no weight of what looks, as recipes of tuning leave it.

    Liu et al. 2023, both stages; LLaMA-Factory (`freeze_vision_tower`) and ms-swift (`freeze_vit`)
    by default. Its projector into the language model is trained.
    """
    kind = type(model.config.vision_config)
    for module in model.modules():
        if isinstance(getattr(module, "config", None), kind):
            module.requires_grad_(False)
