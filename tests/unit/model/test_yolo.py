"""YOLOv5 and YOLOv8 to YOLO26: parameters and operations that their releases publish.

ultralytics, docs/en/models/yolov5.md to yolo26.md, docs/macros/yolo-det-perf.md and the summaries
in ultralytics/cfg/models (read 2026-11-22; those of YOLOv5, YOLOv8 to YOLO12 at all digits
recalled): operations of multiply-adds counted as two, without products of attention.
"""

import re

import pytest

torch = pytest.importorskip("torch")

from tests.sampled import sampled  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402
from traced import trace_here, worker  # noqa: E402

#: Parameters as trained, and operations of inference.
PUBLISHED = {
    "yolov5n": (1_872_157, 4.5e9), "yolov5s": (7_235_389, 16.5e9),
    "yolov5m": (21_190_557, 49.0e9), "yolov5l": (46_563_709, 109.1e9),
    "yolov5x": (86_749_405, 205.7e9), "yolov8n": (3_157_200, 8.7e9),
    "yolov8s": (11_166_560, 28.6e9), "yolov8m": (25_902_640, 78.9e9),
    "yolov8l": (43_691_520, 165.2e9), "yolov8x": (68_229_648, 257.8e9),
    "yolov9s": (7_318_368, 26.7e9), "yolov9m": (20_216_160, 76.8e9),
    "yolov9c": (25_590_912, 102.8e9), "yolov9e": (58_206_592, 192.5e9),
    "yolov10n": (2_775_520, 6.7e9), "yolov10s": (8_128_272, 21.6e9),
    "yolo11n": (2_624_080, 6.5e9), "yolo11s": (9_458_752, 21.5e9),
    "yolo11m": (20_114_688, 68.0e9), "yolo11l": (25_372_160, 86.9e9),
    "yolo11x": (56_966_176, 194.9e9), "yolo12n": (2_602_288, 6.5e9),
    "yolo12s": (9_284_096, 21.4e9), "yolo12m": (20_199_168, 67.5e9),
    "yolo12l": (26_450_784, 88.9e9), "yolo12x": (59_210_784, 199.0e9),
}  # fmt: skip
#: Millions of parameters as tables have them, merged as they are run.
IN_MILLIONS = {
    "yolov5nu": (2.6, 7.7e9), "yolov5su": (9.1, 24.0e9), "yolov5mu": (25.1, 64.2e9),
    "yolov5lu": (53.2, 135.0e9), "yolov5xu": (97.2, 246.4e9),
    "yolov10n": (2.3, 6.7e9), "yolov10s": (7.2, 21.6e9), "yolov10m": (15.4, 59.1e9),
    "yolov10b": (19.1, 92.0e9), "yolov10l": (24.4, 120.3e9), "yolov10x": (29.5, 160.4e9),
    "yolo26n": (2.4, 5.4e9), "yolo26s": (9.5, 20.7e9), "yolo26m": (20.4, 68.2e9),
    "yolo26l": (24.8, 86.4e9), "yolo26x": (55.7, 193.9e9),
    "yolov8n-pose": (3.3, 9.2e9), "yolov8m-pose": (26.4, 81.0e9), "yolov8x-pose": (69.4, 263.2e9),
    "yolov8s-obb": (11.4, 76.3e9), "yolov8l-obb": (44.5, 433.8e9), "yolov8x-obb": (69.5, 676.7e9),
    "yolo11n-seg": (2.9, 9.7e9), "yolo11s-seg": (10.1, 33.0e9), "yolo11m-seg": (22.4, 113.2e9),
    "yolo11l-seg": (27.6, 132.2e9), "yolo11x-seg": (62.1, 296.4e9),
    "yolo11n-pose": (2.9, 7.4e9), "yolo11s-pose": (9.9, 23.1e9), "yolo11m-pose": (20.9, 71.4e9),
    "yolo11l-pose": (26.1, 90.3e9), "yolo11x-pose": (58.8, 202.8e9),
    "yolo11n-obb": (2.7, 16.8e9), "yolo11s-obb": (9.7, 57.1e9), "yolo11m-obb": (20.9, 182.8e9),
    "yolo11l-obb": (26.1, 231.2e9), "yolo11x-obb": (58.8, 519.1e9),
}  # fmt: skip
#: Operations of training's forward pass in the summaries of YOLOv9, norms counted with them.
TRAINED = {
    "yolov9t": (2_128_720, 8.5e9), "yolov9s": (7_318_368, 27.6e9), "yolov9m": (20_216_160, 77.9e9),
    "yolov9c": (25_590_912, 104.0e9), "yolov9e": (58_206_592, 193.0e9),
}  # fmt: skip
#: As published, with the classifier's product counted at every one of 49 places.
CLASSES = {
    "yolo11n-cls": (2.8, 0.5e9), "yolo11s-cls": (6.7, 1.6e9), "yolo11m-cls": (11.6, 4.9e9),
    "yolo11l-cls": (14.1, 6.2e9), "yolo11x-cls": (29.6, 13.6e9),
}  # fmt: skip
#: As published, with a transposed convolution counted four times.
MASKS = {
    "yolov8n-seg": (3.4, 12.6e9), "yolov8s-seg": (11.8, 42.6e9), "yolov8m-seg": (27.3, 110.2e9),
    "yolov8l-seg": (46.0, 220.5e9), "yolov8x-seg": (71.8, 344.1e9),
}  # fmt: skip


#: A release, its size, and what it draws.
_SIZE = re.compile(r"(yolo(?:v\d+|\d+))[a-z]u?(-\w+)?")


def _first_of_each(names):
    """Of each release its first size; others, which differ in two factors, are slow."""
    first = {_SIZE.fullmatch(name).groups(): name for name in reversed(names)}
    return sampled(names, *first.values())


def _model(name, is_training=False):
    with torch.device("meta"):
        job = worker("torch_networks.published_yolo")._MODELS[name]()
        return job.model.train(is_training), job.inputs(1)


def _normed(data, _mean, _variance, weight, *_rest, **_named):
    """A norm multiplies nothing that is counted; the counter takes it apart at great length."""
    assert data.shape[1] == len(weight)
    return data


def _flop(model, pictures):
    """Of all but attention, and what the model gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "batch_norm", _normed)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            told = model(pictures)
    counted = counter.get_flop_counts()["Global"]
    return sum(flop for op, flop in counted.items() if "bmm" not in str(op)), told


def _num_parameters(module):
    return sum(p.numel() for p in module.parameters())


def _num_merged(model):
    """As it is run: norms and added convolutions merged, without a head for training alone."""
    summed = worker("torch_networks.yolo_blocks").Summed
    apart = [m.parts[1] for m in model.modules() if isinstance(m, summed)]
    apart += [model.head.many] if hasattr(model.head, "many") else []
    left_out = {id(p) for module in apart for p in module.parameters()}
    norms = [m.bias for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    left_out |= {id(bias) for bias in norms}
    return sum(p.numel() for p in model.parameters() if id(p) not in left_out)


@pytest.mark.parametrize("name", _first_of_each(PUBLISHED))
def test_a_detector_has_the_parameters_and_operations_of_its_release(name):
    model, pictures = _model(name)
    parameters, published = PUBLISHED[name]
    assert _num_parameters(model) == parameters
    flop, told = _flop(model, pictures)
    assert told.shape == ((1, 25200, 85) if name.startswith("yolov5") else (1, 84, 8400))
    assert flop == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize("name", _first_of_each(IN_MILLIONS))
def test_what_runs_in_inference_has_the_parameters_and_operations_of_tables(name):
    model, pictures = _model(name)
    parameters_m, published = IN_MILLIONS[name]
    assert _num_merged(model) / 1e6 == pytest.approx(parameters_m, rel=2e-3, abs=0.051)
    assert _flop(model, pictures)[0] == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize("name", _first_of_each(TRAINED))
def test_merged_convolutions_are_two_in_training(name):
    model, pictures = _model(name, is_training=True)
    assert _num_parameters(model) == TRAINED[name][0]
    trained, _ = _flop(model, pictures)
    assert trained == pytest.approx(TRAINED[name][1], rel=0.03)
    assert _flop(model.eval(), pictures)[0] < trained


@pytest.mark.parametrize("name", sampled(["yolov10n", "yolo26n"], "yolo26n"))
def test_a_head_that_teaches_is_left_out_of_inference(name):
    model, pictures = _model(name, is_training=True)
    many, one = _flop(model, pictures)[1]
    assert many.shape == one.shape == (1, sum(model.head.one.parts), 8400)
    assert _flop(model.eval(), pictures)[1].shape == (1, 84, 8400)


@pytest.mark.parametrize("name", _first_of_each(CLASSES))
def test_a_classifier_has_the_parameters_and_operations_of_its_release(name):
    model, pictures = _model(name)
    parameters_m, published = CLASSES[name]
    assert _num_merged(model) / 1e6 == pytest.approx(parameters_m, rel=2e-3, abs=0.051)
    counted = _flop(model, pictures)[0] + 48 * 2 * model.head.told.weight.numel()
    assert counted == pytest.approx(published, rel=0.03)


@pytest.mark.parametrize("name", _first_of_each(MASKS))
def test_a_drawer_of_masks_has_the_parameters_and_operations_of_its_release(name):
    model, pictures = _model(name)
    parameters_m, published = MASKS[name]
    assert _num_merged(model) / 1e6 == pytest.approx(parameters_m, rel=2e-3, abs=0.051)
    flop, (told, masks) = _flop(model, pictures)
    assert told.shape == (1, 116, 8400)
    assert masks.shape == (1, 32, 160, 160)
    transposed = model.head.masks[1].weight.numel() * 2 * 80 * 80
    assert flop + 3 * transposed == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    ("name", "task"),
    sampled([
        ("yolov5n", "infer"), ("yolov9t", "train"), ("yolov10n", "train"), ("yolo12n", "infer"),
        ("yolo11n-seg", "train"), ("yolo11n-seg", "infer"),
    ], "yolov5n", ("yolo11n-seg", "infer")),
)  # fmt: skip
def test_a_network_is_traced_by_its_bare_name_as_pictures(name, task):
    workload = trace_here(f"published_yolo:{name}", task=task)
    assert workload.sample_unit == "images"
    assert workload.num_parameters == _num_parameters(_model(name)[0])


def test_pictures_of_half_the_side_take_a_quarter_of_the_operations():
    """As all layers of YOLOv8 are convolutions."""
    whole, half = (
        trace_here("published_yolo:yolov8n", task="infer", image_size=size).passes[0].graph
        for size in (640, 320)
    )
    assert half.ops.flop.sum() == pytest.approx(whole.ops.flop.sum() / 4, rel=1e-3)
    with pytest.raises(worker("torch_entries.subjects").RequestError, match="multiple of 32"):
        trace_here("published_yolo:yolov8n", task="infer", image_size=330)


def test_a_name_that_leaves_something_open_says_how_it_was_taken():
    assert re.search("anchors", _model("yolov5s")[0].taken)
    assert re.search("first release", _model("yolov9c")[0].taken)
    assert _model("yolo11n")[0].taken == ""
