"""The chance that a job fits: laws, and the bounds that it must agree with."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.parallelism.memory.memory_fit import STRANGERS, chance_to_fit, quantile_bytes

PEAKS = (st.floats(1e6, 1e12), st.floats(1.01, 4.0))


@given(*PEAKS, st.floats(0.5, 0.99))
def test_what_suffices_at_a_chance_fits_at_that_chance(mid: float, spread: float, chance: float):
    limit = float(quantile_bytes(mid, mid * spread, chance))
    assert chance_to_fit(limit, mid, mid * spread) == pytest.approx(chance, abs=1e-9)


@given(*PEAKS, st.floats(1e6, 1e12), st.floats(1.0, 3.0))
def test_more_memory_never_fits_less_often(mid: float, spread: float, limit: float, more: float):
    less, most = (chance_to_fit(size, mid, mid * spread) for size in (limit, limit * more))
    assert 0.0 <= less <= most <= 1.0


@given(*PEAKS)
def test_the_bound_of_strangers_is_that_of_the_interval(mid: float, spread: float) -> None:
    high = mid * spread
    assert chance_to_fit(high, mid, high, skew=STRANGERS) == pytest.approx(0.95, abs=0.002)


@given(*PEAKS, st.floats(0.1, 3.0))
def test_a_stranger_that_is_told_too_large_may_run(mid: float, spread: float, steps: float) -> None:
    limit, high = mid * spread**-steps, mid * spread
    assert chance_to_fit(limit, mid, high, skew=STRANGERS) > chance_to_fit(limit, mid, high)


def test_a_peak_that_is_known_exactly_fits_or_does_not() -> None:
    assert [chance_to_fit(limit, 8e9, 8e9) for limit in (7e9, 8e9)] == [0.0, 1.0]
    assert math.isclose(chance_to_fit(8e9, 8e9, 9e9), 0.5)
