"""No op is faster than the units that run it and the memory that feeds it, whatever was learned."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.dtypes import DType, find_precision
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.names.lookup import zoo_entry
from paceline.model.names.registry import known_models
from paceline.model.names.shipped_graphs import shipped_file
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable, dtype_peaks, matrix_peaks
from paceline.prediction.kernels.conv_transforms import operations_frac
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.sustained_rate import steady_row_times
from paceline.prediction.prediction import Points

CATALOG = load_catalog()
TABLE = DeviceTable.from_devices(CATALOG.devices)
MODELS = tuple(one.name for one in known_models() if zoo_entry(one.name))
PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "int8")
BATCHES = tuple(float(2**power) for power in range(11))
#: Desktop cards run a little beyond their listed clock.
BEYOND_LISTED = 1.06


def shares_of_peaks(model, task, precision, batches, devices, calibration=None):
    """Highest share of peak arithmetic and of bandwidth that any op reaches, (num_devices,)."""
    calibration = calibration or builtin_calibration()
    workload = load_workload(model, task=task)
    reached = np.zeros((2, len(devices)))
    for one in workload.passes:
        lowered = lower(one.graph, Configuration(precision=precision))
        shapes = evaluate_shapes(lowered.costs, Points.of(batches, seq=workload.default_seq))
        rows = steady_row_times(lowered, shapes, devices, calibration)
        own = lowered.costs.matmul_dtype == int(find_precision(precision).matmul_dtype)
        peak = np.where(
            own[None], matrix_peaks(devices, find_precision(precision))[:, None],
            dtype_peaks(devices, DType)[:, lowered.costs.matmul_dtype],
        )  # fmt: skip
        flop = shapes.flop * operations_frac(lowered.costs.kind, shapes.dims) * shapes.launches
        cached = np.maximum(devices.l2_bytes, 0.0)[:, None, None]
        moved = np.maximum(shapes.moved_bytes - cached, 0.0) * shapes.launches
        with np.errstate(invalid="ignore", divide="ignore"):
            arithmetic = flop / rows.device_s / peak[:, None, :]
            memory = moved / rows.device_s / devices.memory_bytes_per_s[:, None, None]
        for number, share in enumerate((arithmetic, memory)):
            known = np.nan_to_num(share, nan=0.0, posinf=0.0).max(axis=(1, 2), initial=0.0)
            reached[number] = np.maximum(reached[number], known)
    return reached


def is_shipped(model, task):
    with suppress(InvalidInputError):
        return shipped_file(zoo_entry(model), task) is not None
    return False


def check(model, task, precision, batches, numbers):
    devices = TABLE.take(np.asarray(numbers))
    arithmetic, memory = shares_of_peaks(model, task, precision, batches, devices)
    beyond = np.where(devices.is_consumer > 0, BEYOND_LISTED, 1.001)
    for share, least in ((arithmetic, beyond), (memory, np.full(len(devices), 1.001))):
        worst = int((share / least).argmax())
        assert share[worst] <= least[worst], (model, task, precision, devices.names[worst])


@pytest.mark.parametrize("seed", range(16))
def test_no_op_is_above_the_peaks_of_its_device(seed):
    draw = random.Random(seed)
    numbers = draw.sample(range(len(TABLE)), 12)
    precision = draw.choice(PRECISIONS)
    model = draw.choice(MODELS)
    trains = find_precision(precision).is_trainable and draw.random() < 0.5
    task = "train" if trains or not is_shipped(model, "infer") else "infer"
    if task == "train" and not find_precision(precision).is_trainable:
        precision = "fp32"
    check(model, task, precision, draw.sample(BATCHES, 2), numbers)


@pytest.mark.parametrize("model", ["r3d_18", "resnet50", "vgg16", "unet", "alexnet"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_convolutions_keep_the_law_on_every_generation(model, precision):
    first = {one.architecture: number for number, one in enumerate(CATALOG.devices)}
    check(model, "train", precision, (1.0, 32.0), sorted(first.values()))


def test_the_law_holds_whatever_was_learned():
    eager = {name: replace(m, floor=-3.0, ceiling=-3.0)
             for name, m in builtin_calibration().models.items()}  # fmt: skip
    wild = replace(builtin_calibration(), models=eager)
    devices = TABLE.take(np.array([TABLE.names.index("A100 SXM4 80GB")]))
    found = shares_of_peaks("resnet50", "train", "fp32", (32.0,), devices, wild)
    assert found.max() <= 1.001
    assert found[0] > 0.95


def matrix_share(model, device, **settings):
    """Share of the listed FP16 peak, transforms or not, that a pass of a network reaches."""
    devices = TABLE.take(np.array([TABLE.names.index(device)]))
    workload = load_workload(model, task="infer")
    lowered = lower(workload.passes[0].graph, Configuration(precision="fp16", **settings))
    shapes = evaluate_shapes(lowered.costs, Points.of((64.0,), seq=workload.default_seq))
    rows = steady_row_times(lowered, shapes, devices, builtin_calibration())
    busy_s = (lowered.costs.count * rows.device_s[0, 0]).sum()
    flop = (lowered.costs.count * shapes.flop[0] * shapes.launches[0]).sum()
    return flop / busy_s / matrix_peaks(devices, find_precision("fp16"))[0]


@pytest.mark.parametrize("model", ["vgg16", "yolov8x"])
@pytest.mark.parametrize(
    "device", ["GeForce RTX 3090", "GeForce RTX 2080 Ti", "A10", "A100 SXM4 80GB"]
)
def test_no_transform_makes_matrix_units_faster_than_their_peak(model, device):
    """Frameworks add in FP32, which is what is listed; TensorRT's sums in FP16 are twice as fast
    on cards that halve the former, and on no others."""
    plain, narrow = (matrix_share(model, device, compiler=c) for c in ("compiled", "tensorrt"))
    beyond = BEYOND_LISTED if device.startswith("GeForce") else 1.001
    assert plain <= beyond
    assert narrow <= beyond * (2 if device.startswith("GeForce") else 1)


def test_volumes_gain_by_mixed_precision_and_reach_no_more_than_their_products():
    devices = TABLE.take(np.array([TABLE.names.index("Tesla V100 SXM2 32GB")]))
    full, half = (
        shares_of_peaks("r3d_18", "train", precision, (16.0,), devices)[0, 0]
        for precision in ("fp32", "fp16")
    )
    assert full <= 1.0
    peaks = {p: matrix_peaks(devices, find_precision(p))[0] for p in ("fp32", "fp16")}
    assert half * peaks["fp16"] > 1.5 * full * peaks["fp32"]


@pytest.mark.soak
@pytest.mark.parametrize("task", ["train", "infer"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("model", MODELS)
def test_the_law_holds_everywhere(model, precision, task):
    if not is_shipped(model, task):
        pytest.skip(f"the zoo has no `{task}` graph of it")
    if task == "train" and not find_precision(precision).is_trainable:
        return
    for start in range(0, len(TABLE), 48):
        check(model, task, precision, BATCHES, range(start, min(start + 48, len(TABLE))))
