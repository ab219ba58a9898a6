"""Widths of intervals: they cover their share, and grow with what misses grow with."""

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("scipy")


def residuals(spread_per_distance: float, count: int = 4000):
    rng = np.random.default_rng(0)
    distance = rng.uniform(0, 3, count)
    scale = 0.1 * np.hypot(1.0, spread_per_distance * distance)
    return pd.DataFrame({
        "fold": np.where(np.arange(count) % 2, "a", "b"), "source": "table", "framework": "torch",
        "distance": distance, "host": rng.uniform(0, 1, count), "clock": rng.uniform(0, 9, count),
        "residual": scale * rng.normal(size=count),
    })  # fmt: skip


def test_the_finite_sample_quantile_is_one_rank_up():
    from accuracy.intervals import half_width

    assert half_width(np.arange(1.0, 10.0)) == 8.0
    assert half_width(np.array([-3.0])) == 3.0


@pytest.mark.parametrize("grows", [0.0, 1.0])
def test_widths_cover_four_fifths_near_and_far(grows):
    from accuracy.intervals import fit_widths

    seen = residuals(grows)
    inside = seen.residual.abs() <= fit_widths(seen).of(seen, seen)
    near = seen.distance < 1
    assert inside.mean() == pytest.approx(0.8, abs=0.03)
    assert inside[near].mean() == pytest.approx(0.8, abs=0.06)
    assert inside[~near].mean() == pytest.approx(0.8, abs=0.06)


def test_distance_widens_most_where_misses_grow_with_it():
    from accuracy.intervals import fit_widths

    near_alike, far_worse = (fit_widths(residuals(grows)).parts for grows in (0.0, 1.0))
    assert 0.0 < near_alike["distance"] < 0.05
    assert far_worse["distance"] > 0.1
    assert far_worse["clock"] < 0.2 * far_worse["distance"]


def test_a_framework_counts_the_folds_of_others_that_hold_it():
    from accuracy.intervals import covariates

    seen = pd.DataFrame({"fold": list("abcc"), "framework": ["torch", "torch", "torch", "mxnet"]})
    assert covariates(seen, seen, ["framework"])[:, 0] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1.0])


def test_a_fold_takes_no_width_from_its_own_residuals():
    from accuracy.intervals import coverage, with_widths

    seen = residuals(0.5, count=400)
    worse = seen.assign(residual=seen.residual.where(seen.fold != "a", 9.0))
    widths = [
        coverage(with_widths(s)).set_index("devices or rows")["mean half-width ×/÷"]
        for s in (seen, worse)
    ]
    assert widths[0]["fold a"] == widths[1]["fold a"]
    assert widths[0]["fold b"] < widths[1]["fold b"]


def test_widths_for_a_group_to_come_cover_four_fifths_of_it_on_average():
    """Groups that differ in spread: widths that cover 80 % of five cover less of a sixth."""
    from accuracy.intervals import half_width, level_of_new_groups

    rng = np.random.default_rng(0)
    covered = {"steps alike": [], "groups alike": []}
    for _ in range(400):
        spread = np.exp(rng.normal(size=6))
        groups = np.abs(rng.normal(size=(6, 200)) * spread[:, None])
        known, new = groups[:5].ravel(), groups[5]
        covered["steps alike"].append((new <= half_width(known)).mean())
        covered["groups alike"].append((new <= half_width(known, level_of_new_groups(5))).mean())
    assert np.mean(covered["steps alike"]) < 0.79
    assert 0.8 <= np.mean(covered["groups alike"]) < 0.95
