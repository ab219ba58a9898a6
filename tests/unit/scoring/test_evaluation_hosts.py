"""What a published evaluation spends on its host stands beside the network's time."""

import pytest

from paceline.scoring.evaluation_hosts import evaluation_host_s


def test_masks_are_pasted_picture_by_picture():
    """Published: 23 pictures a second alone and 31 at a batch of 8, AMP on an A100."""
    one, eight = (
        evaluation_host_s("published:mask_rcnn", "PyTorch 1.6", "infer", batch)
        for batch in (1.0, 8.0)
    )
    assert eight == pytest.approx(8 * one)
    assert one < 1 / 23
    assert eight < 8 / 31


def test_one_call_suppresses_the_boxes_of_a_batch():
    """Published: 50 ms for 2 pictures and 52 ms for 8."""
    two, eight = (
        evaluation_host_s("published_images:efficientdet_d0", "TensorFlow2", "infer", batch)
        for batch in (2.0, 8.0)
    )
    assert two < eight < 1.2 * two < 0.05


@pytest.mark.parametrize(
    ("entry", "framework", "task"),
    [
        ("published:mask_rcnn", "PyTorch", "train"),
        ("published:mask_rcnn", "MXNet", "infer"),
        ("resnet50", "PyTorch", "infer"),
    ],
)
def test_all_else_is_timed_without_it(entry, framework, task):
    assert evaluation_host_s(entry, framework, task, 8.0) == 0.0
