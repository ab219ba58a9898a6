from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidInputError
from paceline.planning.decisions.knee_point import knee


def test_a_straight_curve_has_its_knee_at_the_end() -> None:
    found = knee([1, 2, 4, 1024], [10, 20, 40, 10_240])
    assert (found.count, found.efficiency_frac, found.next_marginal_frac) == (1024, 1.0, None)


def test_amdahl_knee_is_where_its_derivative_falls_below_the_limit() -> None:
    serial_frac = 0.01
    counts = np.arange(1, 200)
    speedup = counts / (1 + serial_frac * (counts - 1))
    found = knee(counts, speedup, marginal_frac=0.5)
    # d speedup / d n = (1 - s) / (1 + s (n - 1))^2 = 1/2
    expected = 1 + (np.sqrt(2 * (1 - serial_frac)) - 1) / serial_frac
    assert abs(found.count - expected) <= 1


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12))
def test_a_stricter_limit_never_moves_the_knee_out(gains: list[float]) -> None:
    counts = 2 ** np.arange(len(gains) + 1)
    rate = np.concatenate([[1.0], 1.0 + np.cumsum(np.array(gains) * np.diff(counts))])
    assert (
        knee(counts, rate, marginal_frac=0.9).count <= knee(counts, rate, marginal_frac=0.3).count
    )


@pytest.mark.parametrize("counts", [[2, 1], [1, 1], [0, 1]])
def test_counts_must_rise(counts: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="rise"):
        knee(counts, [1, 2])
