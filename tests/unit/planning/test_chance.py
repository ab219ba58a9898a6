"""Normal and log-normal chances against published quantiles and their own inverses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.planning.goal.chance import (
    Z_80,
    Z_95,
    chance_below,
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
