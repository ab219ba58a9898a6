"""Kernels of engines before they were tuned for a maker's devices: what they may not do."""

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
from paceline.prediction.kernels.early_kernels import with_early
from paceline.prediction.kernels.row_times import evaluate_shapes
from paceline.prediction.prediction import Points

_BATCHES = (1, 64, 256, 1024)
#: Of Llama 3 8B: 32 heads of queries, 8 of keys.
_QUERIES_OF_A_KEY = 4


def times(name: str, tuned_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Kinds of ops, and their seconds at some batches, (P, R)."""
    decode = next(one for one in load_workload("llama-3-8b", task="infer").passes
                  if one.name == "decode")  # fmt: skip
    how = Configuration(precision="bf16", is_served=True, engine_kernels="early")
    costs = lower(decode.graph, how).costs
    shapes = evaluate_shapes(costs, Points(batch=np.array(_BATCHES, float), seq=np.full(4, 512.0)))
    devices = DeviceTable.from_devices([find_device(load_catalog(), name)])
    busy_s = np.full((1, *shapes.flop.shape), tuned_s, dtype=np.float32)
    found = with_early(busy_s, costs, shapes.flop, shapes.dims, devices, builtin_calibration())
    return costs.kind, found[0]


def test_each_query_head_reads_its_keys_anew() -> None:
    kind, found_s = times("Instinct MI250", 1e-3)
    assert found_s[:, kind == OpKind.ATTENTION] == pytest.approx(_QUERIES_OF_A_KEY * 1e-3)
    assert found_s[:, kind != OpKind.ATTENTION] == pytest.approx(1e-3)


def test_kernels_for_the_devices_they_were_written_on_are_not_slower() -> None:
    assert times("H100 SXM5 80GB", 1e-3)[1] == pytest.approx(1e-3)


def test_products_of_few_rows_take_time_in_proportion_and_of_more_no_less() -> None:
    kind, found_s = times("Instinct MI300X", 0.0)
    one, some, tile, many = found_s[:, kind == OpKind.MATMUL]
    assert some == pytest.approx(64 * one, rel=1e-4)
    assert tile == pytest.approx(256 * one, rel=1e-4)
    assert many == pytest.approx(tile, rel=1e-4)


def test_tuned_kernels_that_take_longer_keep_their_time() -> None:
    kind, found_s = times("Instinct MI300X", 1.0)
    assert found_s[:, kind == OpKind.MATMUL] == pytest.approx(1.0)
