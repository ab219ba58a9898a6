"""Normal and log-normal chances against published quantiles and their own inverses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.planning.goal.chance import Z_80, Z_95
from paceline.prediction.uncertainty.normal import normal_cdf, normal_quantile


@pytest.mark.parametrize(
    ("chance", "z"), [(0.5, 0.0), (0.8, 0.841621), (0.9, 1.281552), (0.95, 1.644854)]
)
def test_quantiles_of_the_tables(chance, z):
    assert math.isclose(normal_quantile(chance), z, abs_tol=1e-6)


@given(st.floats(min_value=0.001, max_value=0.999))
def test_quantile_and_cdf_are_inverse(chance):
    assert math.isclose(normal_cdf(normal_quantile(chance)), chance, abs_tol=1e-12)


def test_the_named_bounds_hold_as_often_as_their_names_say():
    assert normal_cdf(Z_80) - normal_cdf(-Z_80) == pytest.approx(0.8, abs=1e-12)
    assert normal_cdf(Z_95) == pytest.approx(0.95, abs=1e-12)
