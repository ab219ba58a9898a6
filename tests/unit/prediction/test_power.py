"""Mean power: never below idle or above the board's, and more with more use."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.power import (
    ClockConstants,
    PowerLaw,
    Use,
    clock_frac,
    mean_power_w,
    power_frac,
    power_law,
    slowdown_under_limit,
    use_of,
)

SHARE = st.floats(0, 1)
LAW = PowerLaw(idle_frac=0.1, busy_frac=0.5, compute_frac=0.4, memory_frac=0.2)


def use(busy, compute, memory):
    busy_frac, compute_frac, memory_frac = (
        np.array([[value]]) for value in (busy, compute, memory)
    )
    return Use(busy_frac=busy_frac, compute_frac=compute_frac, memory_frac=memory_frac)


@given(SHARE, SHARE, SHARE)
def test_power_is_between_idle_and_the_board_power(busy, compute, memory):
    assert LAW.idle_frac <= power_frac(use(busy, compute, memory), LAW).item() <= 1.0


@given(SHARE, SHARE, SHARE, SHARE)
def test_more_use_never_draws_less(busy, compute, memory, more):
    least = power_frac(use(busy, compute, memory), LAW).item()
    assert power_frac(use(max(busy, more), compute, memory), LAW).item() >= least
    assert power_frac(use(busy, max(compute, more), memory), LAW).item() >= least
    assert power_frac(use(busy, compute, max(memory, more)), LAW).item() >= least


def test_arithmetic_and_traffic_draw_with_the_root_of_their_share():
    """Four times the use draws twice the power, beyond what a busy board draws anyway."""

    def drawn(**shares):
        return power_frac(use(0.2, shares.get("compute", 0), shares.get("memory", 0)), LAW).item()

    for name in ("compute", "memory"):
        once, four_times = (drawn(**{name: share}) - drawn() for share in (0.1, 0.4))
        assert four_times == pytest.approx(2 * once)


@given(st.floats(30, 1500), st.floats(1e12, 2e14), st.floats(0.2, 1.0))
def test_a_clock_is_as_high_as_the_power_of_the_board_allows(tdp_w, peak, exponent):
    """Energy per operation rises so that all the power that computes is drawn, and no more."""
    law = ClockConstants(j_per_flop=5e-12, idle_frac=0.1, exponent=exponent)
    frac = clock_frac(tdp_w, peak, law).item()
    drawn_w = peak * law.j_per_flop * frac ** (1 / exponent)
    assert 0 < frac <= 1
    assert drawn_w <= 0.9 * tdp_w * (1 + 1e-9)
    assert frac == 1 or drawn_w == pytest.approx(0.9 * tdp_w)


def test_an_unknown_board_power_limits_nothing():
    law = ClockConstants(j_per_flop=1.0, idle_frac=0.1, exponent=0.5)
    assert clock_frac(np.nan, 1e12, law).item() == 1.0


def test_the_shipped_law_idles_low_and_reaches_most_of_the_board_power():
    law = power_law(builtin_calibration())
    assert power_frac(use(0, 0, 0), law).item() == law.idle_frac < 0.3
    assert power_frac(use(1, 1, 0), law).item() > 0.8


def test_a_step_that_waits_for_its_host_uses_less_of_everything():
    times = np.array([[1.0]])
    waiting = use_of(4 * times, times, 0.5 * times, 0.5 * times)
    busy = use_of(times, times, 0.5 * times, 0.5 * times)
    assert (waiting.busy_frac.item(), busy.busy_frac.item()) == (0.25, 1.0)
    assert busy.compute_frac.item() == busy.memory_frac.item() == 0.25
    assert power_frac(waiting, LAW).item() < power_frac(busy, LAW).item()


def test_power_scales_with_the_board():
    catalog = load_catalog()
    names = ("A100 SXM4 80GB", "L4")
    table = DeviceTable.from_devices([find_device(catalog, name) for name in names])
    large, small = mean_power_w(table, use(0.5, 0.5, 0.5), LAW)[:, 0]
    assert large / small == pytest.approx(table.tdp_w[0] / table.tdp_w[1])


def test_a_limit_slows_kernels_by_the_root_of_the_shortfall():
    calibration = builtin_calibration()
    assert slowdown_under_limit(200.0, 300.0, calibration) == 1.0
    exponent = calibration.constants["clock"]["exponent"]
    assert slowdown_under_limit(400.0, 100.0, calibration) == pytest.approx(4.0**exponent)
