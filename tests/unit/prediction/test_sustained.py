"""Matrix units under the power limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.dtypes import DType
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import OpKind
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.op_shapes import evaluate_shapes
from paceline.prediction.kernels.power import clock_frac
from paceline.prediction.kernels.row_times import row_times
from paceline.prediction.kernels.sustained_rate import (
    power_budget,
    power_flop,
    power_s,
    products_without_casts,
    sustained_row_s,
)
from paceline.prediction.prediction import Points

CALIBRATION = builtin_calibration()
watts = st.floats(10, 2000)
rates = st.floats(1e12, 5e15)


@given(watts, rates, st.floats(1, 10))
def test_more_power_and_less_work_never_lower_the_clock(tdp_w, rate, factor) -> None:
    budget = power_budget(CALIBRATION)
    frac = float(clock_frac(tdp_w, rate, budget))
    assert 0 < frac <= 1
    assert clock_frac(tdp_w * factor, rate, budget) >= frac
    assert clock_frac(tdp_w, rate * factor, budget) <= frac


def devices(*names: str) -> DeviceTable:
    return DeviceTable.from_devices([find_device(load_catalog(), name) for name in names])


def slowdowns(lowered: LoweredPass, table: DeviceTable) -> np.ndarray:
    points = Points(batch=np.array([4.0]), seq=np.array([1024.0]))
    shapes = evaluate_shapes(lowered.costs, points)
    burst_s = row_times(lowered, shapes, table, builtin_calibration()).device_s
    return sustained_row_s(burst_s, lowered, shapes, table, CALIBRATION)[:, 0] / burst_s[:, 0]


def test_the_time_that_the_power_serves_gives_the_sustained_time(llama) -> None:
    """What the coefficients are fitted with is what predicts."""
    table, exponent = devices("H100 SXM5 80GB", "B200 SXM"), power_budget(CALIBRATION).exponent
    shapes = evaluate_shapes(llama.costs, Points(batch=np.ones(1), seq=np.array([1024.0])))
    burst_s = row_times(llama, shapes, table, builtin_calibration()).device_s
    served_s = shapes.launches * power_s(power_flop(llama, shapes, CALIBRATION), table, CALIBRATION)
    steady_s = np.maximum(burst_s, burst_s ** (1 - exponent) * served_s**exponent)
    np.testing.assert_allclose(
        sustained_row_s(burst_s, llama, shapes, table, CALIBRATION), steady_s, rtol=1e-4
    )
    unknown = replace(table, tdp_w=np.full(2, np.nan))
    assert not power_s(power_flop(llama, shapes, CALIBRATION), unknown, CALIBRATION).any()


@pytest.fixture(scope="module")
def llama() -> LoweredPass:
    graph = load_workload("llama-3-8b").passes[0].graph
    return lower(graph, Configuration())


def test_products_alone_are_slowed_and_most_where_power_is_shortest(llama) -> None:
    a100, h100, b200 = slowdowns(
        llama, devices("A100 SXM4 80GB", "H100 SXM5 80GB", "B200 SXM")
    ).max(axis=1)
    assert 1.0 <= a100 < h100 < b200 < 2.0
    found = slowdowns(llama, devices("H100 SXM5 80GB"))[0]
    streams = ~llama.costs.flop.any(axis=1)
    assert np.allclose(found[streams], 1.0)


def test_of_a_process_the_board_with_less_power_holds_the_smaller_share() -> None:
    """70 W against 300 and 260 W for matrix units of one process at 65, 125 and 130 TFLOP/s."""
    graph = load_workload("llama-3-8b").passes[0].graph
    halves = lower(graph, Configuration(precision="fp16"))
    boards = devices("Tesla T4", "Tesla V100 SXM2 16GB", "Quadro RTX 6000")
    small, *large = slowdowns(halves, boards).max(axis=1)
    assert small > 1.2 > max(large)


def energy_over_16_bits(precision: str) -> set[float]:
    """Of the products of a training step, to three digits."""
    graph = load_workload("llama-3-8b").passes[0].graph
    lowered = lower(graph, Configuration(precision=precision))
    shapes = evaluate_shapes(lowered.costs, Points(batch=np.ones(1), seq=np.array([1024.0])))
    rows = lowered.costs.kind == OpKind.MATMUL
    share = power_flop(lowered, shapes, CALIBRATION)[0, rows] / shapes.flop[0, rows]
    return {round(float(one), 3) for one in share}


def test_half_the_width_takes_a_third_of_the_energy() -> None:
    """A multiply-add of Horowitz (2014); logits stay in 16 bits."""
    third = round((1.1 + 0.4) / (3.7 + 0.9), 3)
    assert energy_over_16_bits("bf16") == {1.0}
    assert energy_over_16_bits("fp8") == {third, 1.0}
    assert energy_over_16_bits("tf32") == {2.0}


def test_a_board_with_power_to_spare_holds_its_burst(llama) -> None:
    table = replace(devices("B200 SXM"), tdp_w=np.array([10_000.0]))
    assert np.allclose(slowdowns(llama, table), 1.0)


@pytest.fixture(scope="module")
def llama_in_8_bits() -> LoweredPass:
    return lower(load_workload("llama-3-8b").passes[0].graph, Configuration(precision="fp8"))


@pytest.mark.parametrize("name", ["H100 SXM5 80GB", "B200 SXM", "L40S"])
def test_a_product_in_8_bits_takes_less_than_with_its_cast_and_no_less_than_its_bound(
    name, llama_in_8_bits
) -> None:
    table, lowered = devices(name), llama_in_8_bits
    shapes = evaluate_shapes(lowered.costs, Points(batch=np.ones(1), seq=np.array([4096.0])))
    burst = row_times(lowered, shapes, table, CALIBRATION)
    alone = products_without_casts(burst, lowered, shapes, table, CALIBRATION)
    costs = lowered.costs
    is_narrow = (costs.kind == OpKind.MATMUL) & (costs.matmul_dtype == DType.FP8)
    assert (alone[..., is_narrow] <= burst.device_s[..., is_narrow]).all()
    least = np.minimum(burst.bounds.roofline_s, burst.device_s)
    assert (alone >= least).all()
    assert (alone[..., ~is_narrow] == burst.device_s[..., ~is_narrow]).all()
    taken = alone[..., is_narrow].sum() / burst.device_s[..., is_narrow].sum()
    # With 8,192 rows of 4,096 numbers and as many columns a cast is 0.41 of it on a B200.
    assert 0.5 < taken < 0.95
