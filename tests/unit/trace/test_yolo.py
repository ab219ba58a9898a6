"""YOLOv8 and YOLO11: parameters and operations that their release publishes.

ultralytics, docs/en/models/yolov8.md and yolo11.md and the summaries of their layers (recalled):
pictures of 640×640, operations of multiply-adds counted as two.
"""

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from traced import trace_here, worker  # noqa: E402

PUBLISHED = {
    "yolov8n": (3_157_200, 8.7e9), "yolov8s": (11_166_560, 28.6e9),
    "yolov8m": (25_902_640, 78.9e9), "yolov8l": (43_691_520, 165.2e9),
    "yolov8x": (68_229_648, 257.8e9), "yolo11n": (2_624_080, 6.5e9),
    "yolo11s": (9_458_752, 21.5e9), "yolo11m": (20_114_688, 68.0e9),
    "yolo11l": (25_372_160, 86.9e9), "yolo11x": (56_966_176, 194.9e9),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_detector_has_the_parameters_and_operations_of_its_release(name):
    with torch.device("meta"):
        job = worker("published_yolo")._MODELS[name]()
        model, pictures = job.model.eval(), job.inputs(1)
    parameters, flop = PUBLISHED[name]
    assert sum(p.numel() for p in model.parameters()) == parameters
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        assert model(pictures).shape == (1, 84, 8400)
    assert counter.get_total_flops() == pytest.approx(flop, rel=0.02)


@pytest.mark.parametrize("task", ["train", "infer"])
def test_a_detector_is_traced_by_its_bare_name_as_pictures(task):
    workload = trace_here("published_yolo:yolo11n", task=task)
    assert workload.sample_unit == "images"
    assert workload.num_parameters == PUBLISHED["yolo11n"][0]
