"""Widths of intervals: they cover their share, and grow with the distance where misses do."""

import sys
from pathlib import Path

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))


def residuals(spread_per_distance: float, count: int = 4000):
    rng = np.random.default_rng(0)
    distance = rng.uniform(0, 3, count)
    scale = 0.1 * np.hypot(1.0, spread_per_distance * distance)
    return pd.DataFrame({
        "fold": np.where(np.arange(count) % 2, "a", "b"), "source": "table",
        "distance": distance, "residual": scale * rng.normal(size=count),
    })  # fmt: skip


def test_the_finite_sample_quantile_is_one_rank_up():
    from accuracy.intervals import half_width

    assert half_width(np.arange(1.0, 10.0)) == 8.0
    assert half_width(np.array([-3.0])) == 3.0


@pytest.mark.parametrize("grows", [0.0, 1.0])
def test_widths_cover_four_fifths_near_and_far(grows):
    from accuracy.intervals import fit_widths

    seen = residuals(grows)
    widths = fit_widths(seen)
    inside = seen.residual.abs() <= widths.of(seen.distance.to_numpy())
    near = seen.distance < 1
    assert inside.mean() == pytest.approx(0.8, abs=0.03)
    assert inside[near].mean() == pytest.approx(0.8, abs=0.06)
    assert inside[~near].mean() == pytest.approx(0.8, abs=0.06)


def test_distance_widens_only_where_misses_grow_with_it():
    from accuracy.intervals import fit_widths

    assert fit_widths(residuals(0.0)).per_distance <= 0.25
    assert fit_widths(residuals(1.0)).per_distance >= 0.5
