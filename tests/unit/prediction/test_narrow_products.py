"""Cards without units for 16 bits: they store 16 and calculate 32, and nothing else changes."""

import numpy as np
import pytest
from tests.tolerance import ASKED_TOGETHER

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.dtypes import DType, find_precision
from paceline.model.graph.costs import Configuration
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable, calculates_in_fp32
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.row_times import row_times
from paceline.prediction.kernels.sustained_rate import steady_row_times
from paceline.prediction.prediction import Points

from .passes import lowered, matmul, stream

WITHOUT = ("GeForce GTX TITAN X (Maxwell)", "GeForce GTX 1080 Ti", "Tesla P40")
WITH = ("Tesla P100 SXM2 16GB", "Tesla V100 SXM2 16GB", "A100 SXM4 80GB", "GeForce RTX 4090")
BATCHES = np.array([1.0, 16.0, 256.0])


def table(*names: str) -> DeviceTable:
    return DeviceTable.from_devices([find_device(load_catalog(), name) for name in names])


def seconds(dtype: DType, precision: str, *names: str) -> np.ndarray:
    """Times of a product and a stream, (devices, batches, 2)."""
    work = lowered(
        matmul(128, 1024, 1024, dtype=dtype), stream(4096),
        configuration=Configuration(precision=precision),
    )  # fmt: skip
    shapes = evaluate_shapes(work.costs, Points(batch=BATCHES, seq=np.ones_like(BATCHES)))
    return row_times(work, shapes, table(*names), builtin_calibration()).device_s


@pytest.mark.parametrize("name", WITHOUT)
def test_narrow_products_are_no_slower_than_fp32_and_gain_by_their_bytes_at_most(name):
    """But for 0.1 %: what a device adds to arithmetic weighs more beside fewer bytes."""
    narrow = seconds(DType.FP16, "fp16", name)[..., 0]
    wide = seconds(DType.FP32, "fp32", name)[..., 0]
    assert (narrow <= wide * 1.001).all()
    assert (narrow >= wide / 2).all()


def test_only_cards_without_units_calculate_in_fp32_and_only_in_16_bits():
    devices = table(*WITHOUT, *WITH)
    expected = [True] * len(WITHOUT) + [False] * len(WITH)
    assert calculates_in_fp32(devices, find_precision("fp16")).tolist() == expected
    assert not calculates_in_fp32(devices, find_precision("fp32")).any()


@pytest.mark.kernels
def test_devices_asked_together_answer_as_alone():
    names = (WITH[0], WITHOUT[0], WITH[1], WITHOUT[1], WITHOUT[2], WITH[2])
    together = seconds(DType.FP16, "fp16", *names)
    alone = np.concatenate([seconds(DType.FP16, "fp16", name) for name in names])
    np.testing.assert_allclose(together, alone, rtol=ASKED_TOGETHER)


def test_some_devices_of_a_table_keep_their_facts():
    every = table(*WITHOUT, *WITH)
    some = every.take(np.array([5, 0]))
    assert some.names == (every.names[5], every.names[0])
    assert some.num_sms.tolist() == every.num_sms[[5, 0]].tolist()
    assert some.peaks.shape == (2, every.peaks.shape[1])


@pytest.mark.parametrize("precision", ["bf16", "fp16", "tf32"])
def test_no_card_multiplies_faster_than_its_clock_allows(precision):
    """Desktop cards for consumers run at most 5 % beyond the clock of their listed peak."""
    cards = [d for d in load_catalog().devices if d.kind == "gpu"]
    dtype = DType.FP32 if precision == "tf32" else find_precision(precision).matmul_dtype
    work = lowered(
        matmul(4096, 4096, 4096, dtype=dtype), matmul(8192, 14336, 4096, dtype=dtype),
        configuration=Configuration(precision=precision),
    )  # fmt: skip
    shapes = evaluate_shapes(work.costs, Points(batch=BATCHES, seq=np.ones_like(BATCHES)))
    devices = DeviceTable.from_devices(cards)
    times = steady_row_times(work, shapes, devices, builtin_calibration())
    reached = times.bounds.compute_s / times.device_s
    most = np.where(devices.is_consumer > 0, 1.05, 1.0)
    known = ~np.isnan(reached).any(axis=(1, 2))
    assert known.sum() > 100
    assert (reached.max(axis=(1, 2))[known] <= most[known] * (1 + 1e-5)).all()


@pytest.mark.parametrize(
    "name", ["GeForce RTX 3080 10GB", "GeForce RTX 4070", "GeForce RTX 2070 SUPER"]
)
def test_weights_are_read_once_for_few_rows_whatever_sums_cost(name):
    # Layers of a language model on an RTX 3090, whose FP32 sums halve its rate, take as long for 22
    # rows as for one, and 10 % more for 64 (casys-kaist/LLMServingSim, profiled layers).
    work = lowered(
        matmul(1, 14336, 4096, dtype=DType.FP16), configuration=Configuration(precision="fp16")
    )
    rows = np.array([1.0, 16.0, 64.0])
    shapes = evaluate_shapes(work.costs, Points(batch=rows, seq=np.ones_like(rows)))
    times = row_times(work, shapes, table(name), builtin_calibration()).device_s[0, :, 0]
    assert times[1] < 1.1 * times[0]
    assert times[2] < 1.3 * times[0]
