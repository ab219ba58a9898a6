"""Attention under a causal mask: half the square is computed, and published kernels agree."""

import numpy as np
import pytest

from paceline.catalog import find_device, load_catalog
from paceline.predict import DeviceTable, Points, builtin_calibration
from paceline.predict.kernels import evaluate_shapes, row_times
from paceline.trace import Configuration, load_workload, lower
from paceline.trace.costs import LoweredPass
from paceline.trace.graph import OpKind, monomials

#: Of the device, and milliseconds of one prefill of 8,192 tokens with 32 query and 8 key heads of
#: 128 in BF16 (ai-dynamo/aiconfigurator, attention/vllm, read 2026-11-20).
PUBLISHED_MS = {
    "A100 SXM4 80GB": 3.120, "H100 SXM5 80GB": 0.912, "B200 SXM": 0.514, "L40S": 2.993,
}  # fmt: skip


def _llama(seq: float, batch: float = 1.0) -> tuple[LoweredPass, Points]:
    one = load_workload("llama-3-8b").passes[0]
    lowered = lower(one.graph, Configuration(precision="bf16", attention="flash"))
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
    new_s, old_s = (
        row_times(one, evaluate_shapes(one.costs, points), table, builtin_calibration()).device_s
        for one in (lowered, older)
    )
    attention = np.isin(lowered.costs.kind, (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD))
    np.testing.assert_allclose(old_s[..., attention], 2.0 * new_s[..., attention], rtol=1e-2)
    np.testing.assert_array_equal(old_s[..., ~attention], new_s[..., ~attention])
