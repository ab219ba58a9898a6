"""Detectors of transformers: of classes that they know, and of what a text asks for.

Standard library, torch and transformers only. Matching boxes to objects needs values, which a trace
has not: the loss is that of every query.
"""

import functools
import importlib

import torch
from torch_tracing.choices import Choices
from torch_transformers.families import HfSubject

_WITHOUT_MATCHING = "a loss that matches no boxes"
#: Model types that answer with classes and masks of queries.
_MASKS = ("mask2former", "maskformer", "eomt")
#: Names that a picture is searched for, each a text of its own: the classes of COCO.
_NUM_NAMES = 80


def detector(model, kind, image_size):
    """The subject of a detector; None of any other model."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    name = type(model).__name__
    if name in auto.MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES.values():
        return _Detector(model, kind, image_size)
    if name in auto.MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES.values():
        return _AskedDetector(model, kind, image_size)
    masks = {one: auto.MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES.get(one) for one in _MASKS}
    if name in masks.values():
        return _MaskDetector(model, "image", image_size)
    if model.config.model_type == "sam3":
        return _AskedSegmenter(model, "image", image_size)
    return None


class _Finite(Choices):
    """Detectors ask in training whether a layer's output is infinite: it never is."""

    def taken(self):
        """Nothing that a user would have to know."""
        return []


class _Detector(HfSubject):
    """Finds objects of its own classes."""

    main = "pixel_values"

    def __init__(self, model, kind, image_size=None):
        super().__init__(model, kind, image_size)
        height, width = self.shape[1:]
        self.taken = "pictures of %d×%d" % (height, width)
        self.choices = _Finite()

    def inputs(self, batch, _seq):
        """Pictures; no boxes."""
        return {"pixel_values": torch.empty((batch, *self.shape), device="meta")}

    def loss(self, output, inputs):
        """Cross-entropy of every query's classes, and the distance of its box, unmatched."""
        if _WITHOUT_MATCHING not in self.taken:
            self.taken = ", ".join((self.taken, _WITHOUT_MATCHING))
        boxes = output.pred_boxes
        distance = torch.nn.functional.l1_loss(boxes, torch.empty_like(boxes))
        return super().loss(output, inputs) + distance


class _MaskDetector(_Detector):
    """Draws objects of its own classes, a mask for each query (Cheng et al., arXiv:2112.01527)."""

    def loss(self, output, _inputs):
        """Of every query, unmatched: its class and its mask."""
        if _WITHOUT_MATCHING not in self.taken:
            self.taken = ", ".join((self.taken, _WITHOUT_MATCHING))
        told = output.class_queries_logits, output.masks_queries_logits
        score = torch.nn.functional.binary_cross_entropy_with_logits
        return sum(score(one, torch.empty_like(one)) for one in told)


class _AskedDetector(_Detector):
    """Finds what a text names: all names in one text (Liu et al. 2023), or a text per name.

    Sources: Grounding DINO, arXiv:2303.05499 (one text of at most 256 tokens); OWL-ViT,
    arXiv:2205.06230 (a query embedding per name).
    """

    def __init__(self, model, kind, image_size=None):
        super().__init__(model, kind, image_size)
        longest = getattr(model.config, "max_text_len", None)
        self._texts = (1, longest or model.config.text_config.max_position_embeddings)
        said = "one text of %d tokens" % self._texts[1]
        if longest is None:
            self._texts = (_NUM_NAMES, self._texts[1])
            said = "%d names of %d tokens" % self._texts
        self.taken = ", ".join((self.taken, said))

    def inputs(self, batch, seq):
        """Pictures, and the texts of each."""
        texts, tokens = self._texts
        given = super().inputs(batch, seq)
        ids = torch.empty((texts * batch, tokens), dtype=torch.int64, device="meta")
        return {**given, "input_ids": ids}


class _AskedSegmenter(_Detector):
    """Draws every object that one short text names (SAM 3, arXiv:2511.16719)."""

    def __init__(self, model, kind, image_size=None):
        super().__init__(model, kind, image_size)
        self._tokens = model.config.text_config.max_position_embeddings
        self.taken = ", ".join((self.taken, "a text of %d tokens" % self._tokens))
        patch = model.config.vision_config.backbone_config.patch_size
        model.detr_decoder._get_coords = functools.partial(_coordinates, self.shape, patch)

    def inputs(self, batch, seq):
        """Pictures, and the text of each."""
        ids = torch.empty((batch, self._tokens), dtype=torch.int64, device="meta")
        return {**super().inputs(batch, seq), "input_ids": ids}

    def loss(self, output, _inputs):
        """Of every query, unmatched: whether it is one, its box and its mask."""
        if _WITHOUT_MATCHING not in self.taken:
            self.taken = ", ".join((self.taken, _WITHOUT_MATCHING))
        told = output.pred_logits, output.pred_masks
        score = torch.nn.functional.binary_cross_entropy_with_logits
        boxes = torch.nn.functional.l1_loss(output.pred_boxes, torch.empty_like(output.pred_boxes))
        return boxes + sum(score(one, torch.empty_like(one)) for one in told)


def _coordinates(shape, patch, _height, _width, dtype, device):
    """Places of patches along both sides, of which the library reads the number from a tensor."""
    counts = [side // patch for side in shape[1:]]
    return [torch.arange(count, device=device, dtype=dtype) / count for count in counts]
