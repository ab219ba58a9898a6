"""Detectors of detectron2's model zoo, from the blocks of torchvision.

Standard library, torch and torchvision only. ``detectron2:COCO-Detection/faster_rcnn_R_50_C4_1x``
is the network of that configuration; the folder and the schedule may be left out.
"""

import json
import os
import re

import torch.nn.functional as F
from torch import nn
from torch_detection.detectors import (
    BoxHead,
    Choices,
    DetectionSubject,
    KeypointHead,
    MaskHead,
    OneStage,
    Proposer,
    RegionHeads,
    StatedProposals,
    TwoStage,
)
from torch_detection.torchvision_detectors import said
from torch_entries.building import build
from torch_entries.subjects import RequestError
from torch_entries.vision import check_settings, parsed, stated_sizes
from torch_networks import zoo

_NAME = re.compile(
    r"(?:.*/)?(faster_rcnn|mask_rcnn|keypoint_rcnn|fast_rcnn|rpn|retinanet)"
    r"_(R_50|R_101|X_101_32x8d)_(FPN|C4|DC5)(?:_[13]x)?"
)
_RESNETS = {"R_50": "resnet50", "R_101": "resnet101", "X_101_32x8d": "resnext101_32x8d"}
#: Channels of the features that boxes are taken from.
_WIDTHS = {"FPN": 256, "C4": 1024, "DC5": 2048}


def detectron2_subject(text, request):
    """The subject of a configuration's name; ``boxes=``, ``height=`` and ``width=`` may follow."""
    name, given = parsed(text)
    check_settings(given, ("boxes", "height", "width"))
    match = _NAME.fullmatch(name)
    if match is None or (match[1] == "retinanet" and match[3] != "FPN"):
        message = "of detectron2, %s on %s with %s are traced"
        kinds = "Faster, Mask, Keypoint and Fast R-CNN, RPN and RetinaNet"
        known = kinds, ", ".join(_RESNETS), ", ".join(_WIDTHS)
        raise RequestError("bad-request", message % known)
    facts = _facts()
    network = build(lambda: _network(*match.groups(), facts))
    height, width = facts["pictures"][request["task"]]
    if request.get("image_size"):
        height = width = request["image_size"]
    boxes = given.get("boxes", stated_sizes()["detection"]["boxes"])
    return DetectionSubject(
        network, given.get("height", height), given.get("width", width), boxes,
        said(network, boxes),
    )  # fmt: skip


def _facts():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "detectron2_sizes.json")
    with open(path) as file:
        return json.load(file)


def _network(kind, depth, neck, facts):
    detection = zoo.import_torchvision().models.detection
    body = _body(depth, neck)
    if kind == "retinanet":
        head = detection.retinanet.RetinaNetHead(256, facts["anchors"][kind], facts["classes"])
        choices = _choices(kind, facts)
        nums = [facts["anchors"][kind]] * 5
        return OneStage(_pyramid(body, 2), head, nums, "focal", choices, loss_by_picture=False)
    backbone = _pyramid(body, 1) if neck == "FPN" else _one_level(body, neck)
    levels, width = (5, 256) if neck == "FPN" else (1, _WIDTHS[neck])
    if kind == "fast_rcnn":
        choices = _choices("stated", facts)
        proposer = StatedProposals(choices)
    else:
        choices, num = _choices(neck, facts), facts["anchors"][neck]
        proposer = Proposer(detection.rpn.RPNHead(width, num), [num] * levels, choices)
    classes = 1 if kind == "keypoint_rcnn" else facts["classes"]
    heads = None if kind == "rpn" else _heads(kind, neck, body, choices, classes)
    return TwoStage(backbone, proposer, heads, choices, min(levels, 4))


def _choices(kind, facts):
    return Choices(**facts["kept"][kind], **facts["choices"])


class _FrozenNorm(zoo.import_torchvision().ops.FrozenBatchNorm2d):
    """Normalised with what was seen before: one kernel where nothing is taught, else plain ops.

    Source: facebookresearch/detectron2, detectron2/layers/batch_norm.py, `FrozenBatchNorm2d`.
    """

    def forward(self, x):
        """Trained as it is; without gradients by the fused op that inference runs."""
        if x.requires_grad:
            return super().forward(x)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training=False
        )


def _body(depth, neck):
    """A ResNet whose stem and first stage are not taught.

    Of the plain ones the first convolution of a block strides, as in the weights they start from
    (``STRIDE_IN_1X1``).
    """
    make = getattr(zoo.import_torchvision().models, _RESNETS[depth])
    dilated = [False, False, neck == "DC5"]
    body = make(weights=None, norm_layer=_FrozenNorm, replace_stride_with_dilation=dilated)
    for part in (body.conv1, body.layer1):
        part.requires_grad_(False)
    for block in body.modules() if depth.startswith("R") else ():
        if getattr(block, "conv2", None) is not None and block.conv2.stride == (2, 2):
            block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)
    return body


def _pyramid(body, first):
    """A feature pyramid from a stage on: with a pooled level, or RetinaNet's two convolutions."""
    detection = zoo.import_torchvision().models.detection.backbone_utils
    levels = zoo.import_torchvision().ops.feature_pyramid_network
    stages = range(first, 5)
    top = levels.LastLevelMaxPool() if first == 1 else levels.LastLevelP6P7(2048, 256)
    names = {"layer%d" % stage: str(stage) for stage in stages}
    widths = [128 * 2**stage for stage in stages]
    return detection.BackboneWithFPN(body, names, widths, 256, top)


def _one_level(body, neck):
    stage = "layer3" if neck == "C4" else "layer4"
    getter = zoo.import_torchvision().models._utils.IntermediateLayerGetter
    return getter(body, {stage: "0"})


def _heads(kind, neck, body, choices, classes):
    detection = zoo.import_torchvision().models.detection
    rcnn, width = detection.faster_rcnn, _WIDTHS[neck]
    shared = body.layer4 if neck == "C4" else None
    if shared is None:
        flat = rcnn.TwoMLPHead(width * 7 * 7, 1024)
    else:
        width = 2048
        flat = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    box = BoxHead(flat, rcnn.FastRCNNPredictor(1024 if shared is None else width, classes + 1))
    mask = keypoint = None
    if kind == "mask_rcnn":
        convolutions = detection.mask_rcnn.MaskRCNNHeads(width, (256,) * 4, 1)
        before = nn.Identity() if shared else convolutions
        made = detection.mask_rcnn.MaskRCNNPredictor(width if shared else 256, 256, classes)
        mask = MaskHead(before, made)
    if kind == "keypoint_rcnn":
        keypoint = KeypointHead(
            detection.keypoint_rcnn.KeypointRCNNHeads(width, (512,) * 8),
            detection.keypoint_rcnn.KeypointRCNNPredictor(512, 17),
        )
    side = 7 if shared is None else 14
    return RegionHeads(choices, side, box, shared=shared, mask=mask, keypoint=keypoint)
