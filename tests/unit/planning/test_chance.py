"""Normal and log-normal chances against published quantiles and their own inverses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.parallelism.uncertainty import interval_of
from paceline.planning.goal.chance import (
    Z_80,
    Z_95,
    chance_below,
    chance_less,
    normal_cdf,
    normal_quantile,
)


@pytest.mark.parametrize(
    ("chance", "z"), [(0.5, 0.0), (0.8, 0.841621), (0.9, 1.281552), (0.95, 1.644854)]
)
def test_quantiles_of_the_tables(chance, z):
    assert math.isclose(normal_quantile(chance), z, abs_tol=1e-6)


@given(st.floats(min_value=0.001, max_value=0.999))
def test_quantile_and_cdf_are_inverse(chance):
    assert math.isclose(normal_cdf(normal_quantile(chance)), chance, abs_tol=1e-12)


@given(st.floats(0.01, 1e6), st.floats(0.01, 2.0), st.floats(0.5, 0.99))
def test_a_limit_at_the_quantile_is_kept_at_that_chance(median, log_sigma, chance):
    limit = median * math.exp(normal_quantile(chance) * log_sigma)
    assert math.isclose(
        chance_below(limit, median=median, log_sigma=log_sigma), chance, abs_tol=1e-9
    )


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.0, 1.0))
def test_chance_rises_with_the_limit(limit, median, log_sigma):
    lower = chance_below(limit, median=median, log_sigma=log_sigma)
    higher = chance_below(limit * 1.5, median=median, log_sigma=log_sigma)
    assert 0.0 <= lower <= higher <= 1.0


def test_the_named_bounds_hold_as_often_as_their_names_say():
    assert normal_cdf(Z_80) - normal_cdf(-Z_80) == pytest.approx(0.8, abs=1e-12)
    assert normal_cdf(Z_95) == pytest.approx(0.95, abs=1e-12)


MEDIANS, SIGMAS = st.floats(0.1, 10.0), st.floats(0.0, 0.6)


@given(MEDIANS, SIGMAS, SIGMAS, SIGMAS)
def test_of_equal_medians_either_is_as_likely_the_smaller(median, own, other, shared):
    first, second = interval_of(median, own), interval_of(median, other)
    assert chance_less(first, second, shared_log_sigma=shared) == 0.5


@given(MEDIANS, MEDIANS, SIGMAS, SIGMAS, SIGMAS)
def test_one_of_two_is_the_smaller(one, two, own, other, shared):
    first, second = interval_of(one, own), interval_of(two, other)
    there = chance_less(first, second, shared_log_sigma=shared)
    back = chance_less(second, first, shared_log_sigma=shared)
    assert math.isclose(there + back, 1.0, abs_tol=1e-12)
    assert (there >= 0.5) == (one <= two)


@given(MEDIANS, st.floats(1.0, 4.0), st.floats(0.01, 0.6), st.floats(0.01, 0.6))
def test_intervals_that_do_not_meet_are_nearly_certain(median, gap, own, other):
    first = interval_of(median, own)
    second = interval_of(gap * first.high * math.exp(Z_80 * other), other)
    assert chance_less(first, second) >= normal_cdf(Z_80)
    if math.isclose(own, other, rel_tol=1e-3):
        assert chance_less(first, second) >= 0.96


@given(SIGMAS, SIGMAS, SIGMAS, st.floats(1.01, 3.0))
def test_what_errs_alike_makes_a_difference_surer(own, other, shared, ratio):
    first, second = interval_of(1.0, own), interval_of(ratio, other)
    alike = chance_less(first, second, shared_log_sigma=shared)
    assert alike >= chance_less(first, second) - 1e-12
    assert chance_less(interval_of(1.0, own), interval_of(ratio, own), shared_log_sigma=own) == 1.0
