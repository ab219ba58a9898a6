"""Devices with an engine for products of matrices: what bounds an op, and what is not its own."""

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.row_times import OpTimes, row_times
from paceline.prediction.prediction import Points

GAUDI = find_device(load_catalog(), "Gaudi 2 (HL-225)")


def times(name: str, batch: float) -> tuple[np.ndarray, OpTimes]:
    """Kinds of the ops of a decode step of Llama 3 8B, and their times."""
    decode = next(one for one in load_workload("llama-3-8b", task="infer").passes
                  if one.name == "decode")  # fmt: skip
    lowered = lower(decode.graph, Configuration(precision="bf16", is_served=True))
    points = Points(batch=np.array([batch]), seq=np.array([512.0]))
    devices = DeviceTable.from_devices([find_device(load_catalog(), name)])
    shapes = evaluate_shapes(lowered.costs, points)
    return lowered.costs.kind, row_times(lowered, shapes, devices, builtin_calibration())


@pytest.mark.parametrize("name", ["Gaudi 2 (HL-225)", "TPU v5e (per chip)", "Trainium2 (per chip)"])
def test_products_of_one_row_take_the_bytes_of_their_weights(name: str) -> None:
    """At 0.8 of the listed bandwidth at least, and no more than all of it."""
    kind, found = times(name, 1.0)
    products = kind == OpKind.MATMUL
    large = products & (found.bounds.memory_s[0, 0] > 5e-5)
    assert large.any()
    share = found.bounds.memory_s[0, 0, large] / found.device_s[0, 0, large]
    assert np.all((share > 0.8) & (share <= 1.0))


def test_products_of_many_rows_take_the_rate_that_is_published_of_the_device() -> None:
    kind, found = times(GAUDI.name, 8192.0)
    products = np.flatnonzero(kind == OpKind.MATMUL)
    most = products[np.argmax(found.bounds.compute_s[0, 0, products])]
    assert GAUDI.measured_bf16_flop_per_s is not None
    reached = found.bounds.compute_s[0, 0, most] / found.device_s[0, 0, most]
    published = GAUDI.measured_bf16_flop_per_s / GAUDI.peak_flop_per_s["bf16"]
    assert reached == pytest.approx(published, rel=0.01)


def test_an_engine_takes_no_less_for_more_rows() -> None:
    few, more = (times(GAUDI.name, batch)[1].device_s for batch in (1.0, 256.0))
    assert np.all(more >= few)


def test_what_is_no_product_keeps_what_is_taken_of_unknown_kernels() -> None:
    kind, found = times(GAUDI.name, 8192.0)
    large = (kind == OpKind.ELEMENTWISE) & (found.bounds.memory_s[0, 0] > 1e-4)
    slower = 10 ** builtin_calibration().constant("device", "generic_log10_slowdown")
    ratio = found.device_s[0, 0, large] / found.bounds.memory_s[0, 0, large]
    assert large.any()
    assert np.all((ratio >= slower) & (ratio < 1.05 * slower))
