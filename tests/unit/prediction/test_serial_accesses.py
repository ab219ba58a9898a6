"""Kernels that wait for their threads: resizing with one per pixel, and a walk over boxes."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.row_times import row_times
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.scoring.naming.source_levels import as_published

DEVICES = DeviceTable.from_devices([find_device(load_catalog(), "RTX 3090")])


class Resize(torch.nn.Module):
    """What EfficientFormerV2 does to its attention: 1,024 channels from 7×7 to 14×14."""

    def __init__(self, size=14, mode="bilinear"):
        super().__init__()
        self.size, self.mode = size, mode
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return functional.interpolate(x * self.weight, self.size, mode=self.mode)


class Program:
    """A model with its input."""

    def __init__(self, channels=1024, **settings):
        self.model = Resize(**settings)
        self.inputs = lambda batch: (torch.ones(batch, channels, 7, 7),)


def step_s(batch, channels=1024, size=14, mode="bilinear", program=None, **configuration):
    program = program or Program(channels, size=size, mode=mode)
    workload = load_workload(program, task="infer")
    lowered = lower(workload.passes[0].graph, Configuration(precision="fp16", **configuration))
    points = Points(batch=np.array([batch], float), seq=np.array([1.0]))
    published = as_published(builtin_calibration())
    return float(predict_pass(lowered, DEVICES, points, calibration=published).device_s[0, 0])


def test_an_eager_resize_takes_what_published_steps_lose_to_it():
    """754 ms eager and 54 compiled: efficientformerv2_s0 resizes twice at a batch of 1,024."""
    eager = step_s(1024, channels_last=False)
    lost = eager - step_s(1024, channels_last=False, compiler="compiled")
    assert lost == pytest.approx((0.754 - 0.054) / 2, rel=0.1)


@pytest.mark.parametrize(
    "setting", [{"channels_last": True}, {"compiler": "compiled"}, {"mode": "nearest"}]
)
def test_a_thread_per_element_does_not_wait(setting):
    assert step_s(64, **{"channels_last": False} | setting) < step_s(64, channels_last=False) / 5


class Turned(Resize):
    """Resizes what products wrote channels last and a copy turned, as attention in pictures is."""

    def forward(self, x):
        turned = (x * self.weight).flatten(2).transpose(1, 2).contiguous()
        back = turned.transpose(1, 2).contiguous().unflatten(2, (7, 7))
        return functional.interpolate(back + 1, self.size, mode=self.mode)


def test_a_copied_picture_is_stored_plane_after_plane_whatever_the_model_stores():
    program = Program()
    program.model = Turned()
    first, last = (step_s(64, channels_last=is_last, program=program) for is_last in (False, True))
    assert last == pytest.approx(first, rel=0.02)


class OfTokens(Resize):
    """Resizes a view of tokens, whose channels lie together."""

    def forward(self, x):
        tokens = (x * self.weight).flatten(2).transpose(1, 2).contiguous()
        return functional.interpolate(
            tokens.transpose(1, 2).unflatten(2, (7, 7)), self.size, mode=self.mode
        )


def test_a_view_of_tokens_is_stored_channels_last_whatever_the_model_stores():
    program = Program()
    program.model = OfTokens()
    first, last = (step_s(64, channels_last=is_last, program=program) for is_last in (False, True))
    assert first == pytest.approx(last, rel=0.02)
    assert first < step_s(64, channels_last=False) / 5


def test_cubic_resizing_waits_in_either_layout():
    one, other = (step_s(64, mode="bicubic", channels_last=last) for last in (True, False))
    assert one == pytest.approx(other, rel=0.02)


def test_turns_follow_planes_and_not_how_they_are_named():
    items = step_s(512, channels_last=False) / step_s(256, channels_last=False)
    channels = step_s(256, 2048, channels_last=False) / step_s(256, channels_last=False)
    assert items == pytest.approx(2.0, rel=0.05)
    assert channels == pytest.approx(items, rel=0.05)


def test_a_large_picture_is_bound_by_its_bytes():
    """512 × 512 pixels keep the whole device busy: turns hide behind memory."""
    sizes = {last: step_s(16, channels=64, size=512, channels_last=last) for last in (True, False)}
    assert sizes[False] == pytest.approx(sizes[True], rel=0.1)


def walk_s(device="H100 SXM5 80GB", batch=1, **configuration):
    """Seconds of the walks of suppression in a pass of a detector."""
    workload = load_workload("torchvision:fasterrcnn_resnet50_fpn", task="train")
    lowered = lower(workload.passes[0].graph, Configuration(precision="fp32", **configuration))
    costs, points = lowered.costs, Points(batch=np.array([batch], float), seq=np.array([1.0]))
    devices = DeviceTable.from_devices([find_device(load_catalog(), device)])
    times = row_times(lowered, evaluate_shapes(costs, points), devices, builtin_calibration())
    (row,) = np.flatnonzero(costs.kind == OpKind.SCAN)
    return float(times.device_s[0, 0, row])


def test_a_walk_over_boxes_takes_what_was_recorded():
    """4.1 ms a picture on an H200 and 3.8 on an H100 (benchmarks/gpu_asked.jsonl)."""
    assert 3.8e-3 < walk_s("H200 SXM") < 4.2e-3
    assert walk_s("H200 SXM") == pytest.approx(walk_s("H100 SXM5 80GB"), rel=0.02)


@pytest.mark.parametrize("compiler", ["compiled", "tensorrt"])
def test_a_walk_stays_what_it_is_where_a_compiler_leaves_the_kernel(compiler):
    is_left = compiler == "compiled"
    assert (walk_s(compiler=compiler) > 0.9 * walk_s()) == is_left


def test_pictures_are_walked_one_after_the_other():
    assert walk_s(batch=4) == pytest.approx(4 * walk_s(batch=1), rel=0.02)
