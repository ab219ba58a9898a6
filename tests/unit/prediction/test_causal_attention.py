"""Attention under a causal mask: half the square is computed, and published kernels agree."""

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import OpKind, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.row_times import row_times
from paceline.prediction.prediction import Points

#: Of the device, and milliseconds of one prefill of 8,192 tokens with 32 query and 8 key heads of
#: 128 in BF16 (ai-dynamo/aiconfigurator, attention/vllm, read 2026-11-20).
PUBLISHED_MS = {
    "A100 SXM4 80GB": 3.120, "H100 SXM5 80GB": 0.912, "B200 SXM": 0.514, "L40S": 2.993,
}  # fmt: skip


def _llama(seq: float, batch: float = 1.0) -> tuple[LoweredPass, Points]:
    one = load_workload("llama-3-8b").passes[0]
    lowered = lower(one.graph, Configuration(precision="bf16", attention="vendor"))
    return lowered, Points(batch=np.array([batch]), seq=np.array([seq]))


def test_a_causal_mask_halves_the_arithmetic_of_fused_attention() -> None:
    lowered, points = _llama(4096.0)
    counted = lowered.costs.flop @ monomials(points.batch, points.seq)[0]
    computed = evaluate_shapes(lowered.costs, points).flop[0]
    attention = np.isin(lowered.costs.kind, (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD))
    assert attention.any()
    np.testing.assert_allclose(computed[attention], 0.5 * counted[attention], rtol=1e-6)
    product = lowered.costs.kind == OpKind.MATMUL
    np.testing.assert_allclose(computed[product], counted[product], rtol=1e-6)


@pytest.mark.parametrize(("device", "measured_ms"), PUBLISHED_MS.items())
def test_attention_of_a_traced_model_takes_about_the_published_time(
    device: str, measured_ms: float
) -> None:
    lowered, points = _llama(8192.0)
    table = DeviceTable.from_devices([find_device(load_catalog(), device)])
    shapes = evaluate_shapes(lowered.costs, points)
    rows = row_times(lowered, shapes, table, builtin_calibration())
    forward = np.flatnonzero(lowered.costs.kind == OpKind.ATTENTION)[0]
    assert float(rows.device_s[0, 0, forward]) * 1e3 == pytest.approx(measured_ms, rel=0.3)


def test_the_first_generation_takes_twice_the_second_and_products_stay() -> None:
    lowered, points = _llama(8192.0)
    older = lower(
        load_workload("llama-3-8b").passes[0].graph,
        Configuration(precision="bf16", attention="memory-efficient"),
    )
    table = DeviceTable.from_devices([find_device(load_catalog(), "A100 SXM4 80GB")])
    new_s, old_s = (_seconds_by_kind(one, points, table) for one in (lowered, older))
    for kind in new_s.keys() | old_s.keys():
        is_attention = kind in (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD)
        expected_s = (2.0 if is_attention else 1.0) * new_s[kind]
        assert old_s[kind] == pytest.approx(expected_s, rel=1e-2 if is_attention else 1e-6)


def _seconds_by_kind(one: LoweredPass, points: Points, table: DeviceTable) -> dict[OpKind, float]:
    times = row_times(one, evaluate_shapes(one.costs, points), table, builtin_calibration())
    row_s = times.device_s[0, 0].astype(np.float64) * one.costs.count
    kinds = [OpKind(code) for code in np.unique(one.costs.kind)]
    return {kind: float(row_s[one.costs.kind == kind].sum()) for kind in kinds}


def _heads_s(head_size: int, device: str) -> float:
    entry = f"transformer:layers=1,hidden={head_size * 8},heads=8,head_size={head_size},vocab=99"
    one = load_workload(entry, task="infer").passes[0]
    lowered = lower(one.graph, Configuration(precision="fp16"))
    points = Points(batch=np.array([4.0]), seq=np.array([4096.0]))
    table = DeviceTable.from_devices([find_device(load_catalog(), device)])
    return _seconds_by_kind(lowered, points, table)[OpKind.ATTENTION]


@pytest.mark.parametrize("device", ["Tesla T4", "A100 SXM4 80GB", "GeForce RTX 4090"])
@pytest.mark.parametrize(("between", "kernel"), [(40, 64), (80, 96), (160, 192)])
def test_a_head_between_two_kernels_takes_the_time_of_the_wider(device, between, kernel) -> None:
    """But for the bytes that it need not read."""
    assert 0.95 < _heads_s(between, device) / _heads_s(kernel, device) < 1.001


@pytest.mark.parametrize(
    ("device", "slower"), [("Tesla T4", 1.0), ("A100 SXM4 80GB", 1.0),
                           ("RTX PRO 6000 Blackwell Server", 1.0),
                           ("H100 SXM5 80GB", 1.6), ("B200 SXM", 2.3)],
)  # fmt: skip
def test_pytorchs_own_attention_is_slower_where_vendors_have_newer_instructions(device, slower):
    """FlashAttention 3 is 1.5 to 2 times as fast as 2 on the H100 (arXiv 2407.08608, abstract)."""
    vendors, points = _llama(8192.0)
    graph = load_workload("llama-3-8b").passes[0].graph
    own = lower(graph, Configuration(precision="bf16", attention="flash-2"))
    table = DeviceTable.from_devices([find_device(load_catalog(), device)])
    theirs_s, own_s = (_seconds_by_kind(one, points, table) for one in (vendors, own))
    for kind in own_s:
        is_attention = kind in (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD)
        expected_s = (slower if is_attention else 1.0) * theirs_s[kind]
        assert own_s[kind] == pytest.approx(expected_s, rel=1e-2)


def test_pytorchs_own_attention_takes_as_many_cycles_on_b200_as_on_h100():
    """Ampere's matrix instructions run no faster on a multiprocessor of Blackwell."""
    graph = load_workload("llama-3-8b").passes[0].graph
    own = lower(graph, Configuration(precision="bf16", attention="flash-2"))
    points = Points(batch=np.array([1.0]), seq=np.array([8192.0]))
    cycles = []
    for name in ("H100 SXM5 80GB", "B200 SXM"):
        device = find_device(load_catalog(), name)
        seconds = _seconds_by_kind(own, points, DeviceTable.from_devices([device]))
        assert device.num_sms
        assert device.boost_clock_hz
        cycles.append(seconds[OpKind.ATTENTION] * device.num_sms * device.boost_clock_hz)
    assert cycles[1] == pytest.approx(cycles[0], rel=0.25)
