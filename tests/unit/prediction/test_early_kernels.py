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
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.prediction import Points

_BATCHES = (1, 64, 256, 1024)
#: Of Llama 3 8B: 32 heads of queries, 8 of keys.
_QUERIES_OF_A_KEY = 4


def _points(batches: tuple[int, ...]) -> Points:
    return Points(batch=np.array(batches, float), seq=np.full(len(batches), 512.0))


def times(
    name: str, tuned_s: float, batches: tuple[int, ...] = _BATCHES
) -> tuple[np.ndarray, np.ndarray]:
    """Kinds of ops, and their seconds at some batches, (P, R)."""
    decode = next(one for one in load_workload("llama-3-8b", task="infer").passes
                  if one.name == "decode")  # fmt: skip
    how = Configuration(precision="bf16", is_served=True, engine_kernels="early")
    costs = lower(decode.graph, how).costs
    shapes = evaluate_shapes(costs, _points(batches))
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


def test_portable_attention_reads_as_its_heads_fill_the_device() -> None:
    """As fast as compute units are full of heads; the same for 8 heads of keys as for 32."""
    kind, found_s = times("Data Center GPU Max 1550", 0.0)
    one, many, *_ = found_s[:, kind == OpKind.ATTENTION].sum(axis=1)
    # Llama 3 8B: 32 heads on 128 units, and 64 times as many heads that fill them all.
    assert many / one == pytest.approx(64 * 32 / 128, rel=1e-4)
    # 32 layers, 512 tokens, 32 heads of 128 keys and values in 16 bits, at 1.4 bytes a clock.
    read_bytes = 2 * 2 * 512 * 32 * 128
    assert one == pytest.approx(read_bytes / (1.4 * 32 * 1.6e9), rel=0.01)


def test_products_of_several_rows_fill_a_tile() -> None:
    kind, found_s = times("Data Center GPU Max 1550", 0.0, (1, 2, 48, 96))
    one, two, tile, more = found_s[:, kind == OpKind.MATMUL].sum(axis=1)
    assert two == tile == pytest.approx(48 * one, rel=1e-4)
    assert more == pytest.approx(2 * tile, rel=1e-4)
