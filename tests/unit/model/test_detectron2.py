"""Networks of detectron2's names: each is another, and unknown ones are refused."""

import pytest
from traced import trace_here, worker

from paceline.model.graph.graph import monomials


def traced(name):
    return trace_here(f"detectron2:{name}", task="infer", image_size=256)


def flop_of(workload):
    return float((workload.passes[0].graph.ops.flop @ monomials(1, 1)[0]).sum())


def test_folder_and_schedule_do_not_change_the_network():
    plain, whole = (traced(n) for n in ("rpn_R_50_FPN", "COCO-Detection/rpn_R_50_FPN_1x"))
    assert flop_of(plain) == flop_of(whole)
    assert plain.num_parameters == whole.num_parameters


def test_a_deeper_backbone_and_more_heads_ask_for_more():
    names = ("rpn_R_50_FPN", "faster_rcnn_R_50_FPN", "mask_rcnn_R_50_FPN", "mask_rcnn_R_101_FPN")
    sizes = [traced(name).num_parameters for name in names]
    assert sizes == sorted(set(sizes))


def test_the_heads_of_a_dilated_network_hold_most_of_its_parameters():
    """A dense layer of 7 × 7 × 2,048 by 1,024, where a pyramid has 256 channels."""
    dilated, pyramid = (traced(f"faster_rcnn_R_50_{neck}") for neck in ("DC5", "FPN"))
    assert dilated.num_parameters - pyramid.num_parameters > 7 * 7 * (2048 - 256) * 1024


@pytest.mark.parametrize("name", ["cascade_mask_rcnn_R_50_FPN", "retinanet_R_50_C4", "yolo"])
def test_another_network_is_refused_with_those_that_are_known(name):
    with pytest.raises(worker("torch_entries.subjects").RequestError, match="X_101_32x8d with FPN"):
        traced(name)
