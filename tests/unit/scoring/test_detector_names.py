"""Names of detectors mean the network that they say, or none."""

import pytest

from paceline.scoring.naming.models import UnresolvedRowError, resolve_model
from paceline.scoring.rows import parse_row


def entry(name: str) -> str:
    row = {"framework": "detectron2", "precision": "fp32", "gpu": "V100", "batch_per_gpu": "2"}
    return resolve_model(parse_row(row | {"model": name, "task": "train"})).entry


@pytest.mark.parametrize(
    "name",
    [
        "Misc/mask_rcnn_R_50_FPN_1x_dconv_c3-c5",
        "Misc/cascade_mask_rcnn_R_50_FPN_3x",
        "Misc/mask_rcnn_R_50_FPN_3x_gn",
        "PascalVOC-Detection/faster_rcnn_R_50_C4",
    ],
)
def test_another_backbone_or_head_than_a_traced_one_is_refused(name: str) -> None:
    with pytest.raises(UnresolvedRowError, match="backbone or its heads"):
        entry(name)


@pytest.mark.parametrize(
    "name",
    [
        "COCO-Detection/faster_rcnn_R_50_C4_1x",
        "COCO-Detection/retinanet_R_101_FPN_3x",
        "COCO-Detection/rpn_R_50_FPN_1x",
        "COCO-InstanceSegmentation/mask_rcnn_X_101_32x8d_FPN_3x",
    ],
)
def test_a_baseline_of_detectron2_is_the_network_of_its_name(name: str) -> None:
    assert entry(name) == "detectron2:" + name.partition("/")[2][: -len("_1x")]


def test_a_plain_name_means_the_usual_backbone() -> None:
    assert entry("MaskRCNN") == entry("Mask R-CNN") == "published:mask_rcnn"
