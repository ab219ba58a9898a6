"""Detectors of torchvision against its published figures, a counter, and laws."""

import warnings

import pytest
import torch
from test_flop_counter import traced_flop
from test_vision import published
from tests.sampled import sampled
from torch.utils.flop_counter import FlopCounterMode
from traced import trace_here, worker

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind, Owner, Phase, monomials
from paceline.model.lowering import lower
from paceline.model.ops.turns import turning_rows
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass

#: The library counts its detectors on one picture of this side where it is not fixed; it finds
#: nothing there, so that heads which work on what is found cannot be compared.
COUNTED_SIDE = 800


def flop_of(workload, batch=1):
    return float((workload.passes[0].graph.ops.flop @ monomials(batch, 1)[0]).sum())


@pytest.mark.parametrize(
    ("name", "side"),
    sampled(
        [
            ("fasterrcnn_resnet50_fpn", COUNTED_SIDE),
            ("fasterrcnn_resnet50_fpn_v2", COUNTED_SIDE),
            ("retinanet_resnet50_fpn", COUNTED_SIDE),
            ("retinanet_resnet50_fpn_v2", COUNTED_SIDE),
            ("fcos_resnet50_fpn", COUNTED_SIDE),
            ("ssd300_vgg16", 300),
            ("ssdlite320_mobilenet_v3_large", 320),
        ],
        "fasterrcnn_resnet50_fpn",
        "ssd300_vgg16",
    ),
)
def test_parameters_and_arithmetic_are_the_published_ones(name, side):
    workload = trace_here(f"torchvision:{name}", task="infer", image_size=side)
    assert workload.num_parameters == published(name)["num_params"]
    assert flop_of(workload) / 2e9 == pytest.approx(published(name)["_ops"], abs=0.0006)


@pytest.mark.parametrize(
    "name", sampled(["maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn"], "maskrcnn_resnet50_fpn")
)
def test_parameters_of_networks_with_more_heads_are_the_published_ones(name):
    workload = trace_here(f"torchvision:{name}", task="infer", image_size=256)
    assert workload.num_parameters == published(name)["num_params"]


@pytest.mark.parametrize(
    "name",
    sampled(
        ["fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "retinanet_resnet50_fpn_v2"],
        "fasterrcnn_resnet50_fpn",
    ),
)
def test_a_counter_of_the_step_counts_the_same(name):
    entry = f"torchvision:{name}"
    workers = [worker(one) for one in ("torch_worker", "torch_entries.subjects")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        subject = workers[1].build_subject({"entry": entry, "image_size": 256})
    subject.model.train()
    with torch.device("meta"), FlopCounterMode(display=False) as forward:
        loss = subject.call(subject.inputs(2, 1))
    with torch.device("meta"), FlopCounterMode(display=False) as backward:
        loss.backward()
    graph = trace_here(entry, image_size=256).passes[0].graph
    counted = forward.get_total_flops(), backward.get_total_flops()
    assert traced_flop(graph, 2) == counted


def test_suppression_is_a_sort_and_the_overlaps_of_all_pairs():
    """A bit per pair of candidates: 1,000 of each level, or all places of a small one."""
    graph = trace_here("torchvision:fasterrcnn_resnet50_fpn", task="infer").passes[0].graph
    is_walk = graph.ops.kind == OpKind.SCAN
    read = graph.ops.input_tensor[graph.ops.input_start[:-1][is_walk]]
    candidates = 4 * 1000 + 13 * 17 * 3
    words = graph.tensors.elements[read] @ monomials(2, 1)[0]
    assert words.tolist()[0] == 2 * candidates * -(-candidates // 64)
    assert (graph.ops.kind == OpKind.SORT).sum() >= 2


def test_what_was_assumed_is_said_and_more_boxes_cost_more():
    few, many = (
        trace_here(f"torchvision:retinanet_resnet50_fpn{s}", image_size=256)
        for s in ("", ",boxes=70")
    )
    assert "boxes=7 a picture" in few.title
    tables = [one.passes[0].graph.tensors for one in (few, many)]
    touched = [float((one.elements @ monomials(2, 1)[0]).sum()) for one in tables]
    assert touched[1] > touched[0]
    assert flop_of(few) == flop_of(many)


def test_frozen_layers_of_a_taught_backbone_get_no_gradient():
    """The stem and the first stage of ResNet-50: 7 × 7 × 3 × 64, and three blocks of 64 wide."""
    workload = trace_here("torchvision:fasterrcnn_resnet50_fpn", image_size=256)
    stores = workload.passes[0].graph.storages
    is_trained = stores.is_trainable & (stores.owner == Owner.PARAMETER)
    frozen = 9_408 + 73_728 + 2 * 69_632
    assert stores.elements[is_trained, 0].sum() == workload.num_parameters - frozen


def test_each_count_of_what_was_found_makes_the_host_wait():
    """Small, likely and kept boxes of proposals and of objects, and the levels of both poolings."""
    waits = {}
    for name in ("fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn"):
        graph = trace_here(f"torchvision:{name}", task="infer").passes[0].graph
        waits[name] = int((graph.ops.kind == OpKind.HOST_WAIT).sum())
    levels = 4
    assert waits["fasterrcnn_resnet50_fpn"] == 3 + levels + 1 + 3
    drawn = 12 * 5 * 7  # numbers of a mask, masks of a true box, true boxes
    assert waits["maskrcnn_resnet50_fpn"] == waits["fasterrcnn_resnet50_fpn"] + levels + drawn


@pytest.mark.parametrize(
    ("name", "launched"),
    sampled(
        [
            ("fasterrcnn_resnet50_fpn", 73),
            ("retinanet_resnet50_fpn", 247),
            ("fcos_resnet50_fpn", 182),
            ("ssd300_vgg16", 790),
        ],
        "fasterrcnn_resnet50_fpn",
        "fcos_resnet50_fpn",
    ),
)
def test_each_picture_more_is_launched_as_often_as_the_library_does(name, launched):
    """Counted in torchvision 0.28: operators of two pictures less those of one, without views.

    Of two stages the trace leaves out labels and levels, which follow the boxes.
    """
    ops = trace_here(f"torchvision:{name}", task="infer").passes[0].graph.ops
    turning = turning_rows(ops.kind, ops.dims)
    assert 0.55 * launched < len(turning) < 1.1 * launched


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    sampled(
        [
            ("retinanet_resnet50_fpn", 115, 25),
            ("fcos_resnet50_fpn", 61, 0),
            ("ssd300_vgg16", 84, 3),
        ],
        "retinanet_resnet50_fpn",
        "fcos_resnet50_fpn",
    ),
)
def test_losses_of_one_stage_are_launched_per_picture_as_the_library_does(name, forward, backward):
    """Counted in torchvision 0.28 as above, with seven boxes on each picture."""
    ops = trace_here(f"torchvision:{name}", image_size=256).passes[0].graph.ops
    turning = turning_rows(ops.kind, ops.dims)
    in_phase = [int((ops.phase[turning] == p).sum()) for p in (Phase.FORWARD, Phase.BACKWARD)]
    assert 0.6 * forward < in_phase[0] < 1.1 * forward
    assert 0.6 * backward <= in_phase[1] <= 1.35 * backward


@pytest.mark.parametrize(
    ("name", "forward", "waits"),
    sampled(
        [("fasterrcnn_resnet50_fpn", 140, 10), ("maskrcnn_resnet50_fpn", 155, 11)],
        "fasterrcnn_resnet50_fpn",
    ),
)
def test_training_of_two_stages_is_launched_per_picture_as_the_library_does(name, forward, waits):
    """Counted in torchvision 0.28 as above; backward passes launch nothing more per picture.

    Beside the counted waits, four numbers by which boxes are stretched are copied to the device.
    """
    ops = trace_here(f"torchvision:{name}", image_size=256).passes[0].graph.ops
    turning = turning_rows(ops.kind, ops.dims)
    assert 0.9 * forward < len(turning) < 1.1 * forward
    assert not (ops.phase[turning] == Phase.BACKWARD).any()
    assert (ops.kind[turning] == OpKind.HOST_WAIT).sum() == waits + 4


def test_pictures_of_a_batch_wait_one_after_the_other():
    """Of the waits of a picture, those of the loop over pictures come again with each."""
    workload = trace_here("torchvision:fasterrcnn_resnet50_fpn", task="infer", image_size=256)
    (one,) = (lower(p.graph, Configuration()) for p in workload.passes)
    devices = DeviceTable.from_devices([find_device(load_catalog(), "Tesla V100 SXM2 16GB")])
    found = predict_pass(one, devices, Points.of([1, 2, 8], seq=1))
    ops = workload.passes[0].graph.ops
    in_loop = int((ops.kind[turning_rows(ops.kind, ops.dims)] == OpKind.HOST_WAIT).sum())
    alone = found.num_waits[0, 0]
    assert found.num_waits[0].tolist() == [alone, alone + in_loop, alone + 7 * in_loop]
    compiled = lower(workload.passes[0].graph, Configuration(compiler="tensorrt"))
    assert predict_pass(compiled, devices, Points.of([8], seq=1)).num_waits[0, 0] == alone


def test_host_time_of_a_loop_grows_with_the_pictures():
    """Twice as many pictures add what the loop launches once more, and nothing besides."""
    workload = trace_here("torchvision:ssd300_vgg16", task="infer")
    one = lower(workload.passes[0].graph, Configuration())
    devices = DeviceTable.from_devices([find_device(load_catalog(), "Tesla V100 SXM2 16GB")])
    host_s = predict_pass(one, devices, Points.of([1, 2, 3], seq=1)).host_s[0]
    assert host_s[2] - host_s[1] == pytest.approx(host_s[1] - host_s[0], rel=1e-4)
    assert host_s[1] > 1.5 * host_s[0]


@pytest.mark.parametrize(
    ("name", "published"),
    sampled([("rf-detr-nano", 31.9e9), ("rf-detr-large", 125.6e9)], "rf-detr-nano"),
)
def test_rf_detr_has_the_operations_of_its_release(name, published):
    """rfdetr.roboflow.com, benchmarks (recalled 2026-11-22)."""
    workload = trace_here(f"hf:{name}", task="infer")
    assert workload.passes[0].graph.ops.flop.sum() == pytest.approx(published, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["train", "infer"])
def test_a_segmenter_draws_what_a_text_names(task):
    """SAM 3: nearly all its work is that of an encoder on 72×72 patches of the picture."""
    workload = trace_here("hf:sam3", task=task)
    subject = worker("torch_transformers.families").hf_subject("sam3", {})
    assert "a text of 32 tokens" in subject.taken
    encoder = sum(p.numel() for p in subject.model.vision_encoder.backbone.layers.parameters())
    flop = workload.passes[0].graph.ops.flop.sum()
    products = 2 * encoder * 72**2 * (3 if task == "train" else 1)
    assert products < flop < 1.5 * products
