"""Detectors of torchvision, with the library's own networks, anchors and numbers.

Standard library, torch and torchvision only.
"""

import contextlib
import math

import torch
from torch_detection.detectors import (
    BoxHead,
    Choices,
    DetectionSubject,
    KeypointHead,
    MaskHead,
    OneStage,
    Proposer,
    RegionHeads,
    TwoStage,
)
from torch_networks import zoo

#: The loss of classes, by the beginning of a name.
_FOCUS = {"retinanet": "focal", "fcos": "centred", "ssd": "mined"}

#: Objects that a detector finds for one that is there, at its own threshold: about 40 a picture
#: where the pictures of COCO have seven (result files of detectors on its validation pictures
#: hold some 200,000 boxes of 5,000 pictures; recalled).
_FOUND_OF_A_TRUE_BOX = 5


def torchvision_detector(name, given, image_size, sizes, build):
    """The subject of a detector; ``sizes`` are the stated ones, ``given`` replaces them."""
    model = build(lambda: _library_model(name))
    focus = next((focus for start, focus in _FOCUS.items() if name.startswith(start)), None)
    boxes = given.get("boxes", sizes["boxes"])
    if focus is None:
        network = _two_stage(model, sizes["picture"], _FOUND_OF_A_TRUE_BOX * boxes)
    else:
        network = _one_stage(model, focus)
    height, width = _picture_size(model.transform, image_size, sizes["picture"])
    height, width = given.get("height", height), given.get("width", width)
    return DetectionSubject(network, height, width, boxes, said(network, boxes))


def said(network, boxes):
    """What stands for what depends on data, as printed."""
    after = getattr(network.choices, "after", None)
    counts = ["boxes=%d a picture" % boxes]
    if after is not None:
        counts.append("%d proposals in training and %d in inference" % tuple(after))
    counts.append("at most %d found" % network.choices.found)
    mask = getattr(getattr(network, "heads", None), "mask", None)
    if mask is not None and mask.picture is not None:
        counts.append("%d masks drawn" % min(mask.num_drawn, network.choices.found))
    return ", ".join(counts)


def _library_model(name):
    """The detector of the published weights, frozen where the library freezes a taught one.

    The library decides by the weights that are asked for; none are loaded.
    """
    with _no_weights():
        return zoo.import_torchvision().models.get_model_builder(name)(weights="DEFAULT")


@contextlib.contextmanager
def _no_weights():
    weights = zoo.import_torchvision().models.WeightsEnum
    kept = weights.get_state_dict, torch.nn.Module.load_state_dict
    weights.get_state_dict = lambda *_, **__: {}
    torch.nn.Module.load_state_dict = lambda *_, **__: None
    try:
        yield
    finally:
        weights.get_state_dict, torch.nn.Module.load_state_dict = kept


def _picture_size(transform, image_size, picture):
    """Height and width of the batch that the library's own resizing makes of a picture."""
    if image_size:
        return image_size, image_size
    if transform.fixed_size is not None:
        width, height = transform.fixed_size
        return height, width
    short, long = sorted(picture)
    scale = min(transform.min_size[-1] / short, transform.max_size / long)
    step = transform.size_divisible
    return tuple(step * math.ceil(int(scale * side) / step) for side in picture)


def _two_stage(model, picture, num_drawn):
    rpn, heads = model.rpn, model.roi_heads
    choices = Choices(
        before=_pair(rpn._pre_nms_top_n), after=_pair(rpn._post_nms_top_n),
        places=rpn.fg_bg_sampler.batch_size_per_image,
        regions=heads.fg_bg_sampler.batch_size_per_image,
        fitting=int(
            heads.fg_bg_sampler.batch_size_per_image * heads.fg_bg_sampler.positive_fraction
        ),
        found=heads.detections_per_img,
    )  # fmt: skip
    proposer = Proposer(rpn.head, rpn.anchor_generator.num_anchors_per_location(), choices)
    mask = None
    if heads.has_mask():
        mask = MaskHead(heads.mask_head, heads.mask_predictor, picture, num_drawn)
    keypoint = None
    if heads.has_keypoint():
        keypoint = KeypointHead(heads.keypoint_head, heads.keypoint_predictor)
    box = BoxHead(heads.box_head, heads.box_predictor)
    side = heads.box_roi_pool.output_size[0]
    pooled = len(model.backbone.fpn.inner_blocks)
    regions = RegionHeads(choices, side, box, mask=mask, keypoint=keypoint)
    return TwoStage(model.backbone, proposer, regions, choices, pooled, resizes=True)


def _pair(numbers):
    return numbers["training"], numbers["testing"]


def _one_stage(model, focus):
    nums = model.anchor_generator.num_anchors_per_location()
    choices = Choices(
        before=model.topk_candidates, after=None, places=getattr(model, "neg_to_pos_ratio", None),
        regions=None, fitting=None, found=model.detections_per_img,
    )  # fmt: skip
    return OneStage(model.backbone, model.head, nums, focus, choices)
