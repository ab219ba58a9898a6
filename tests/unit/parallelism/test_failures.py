from __future__ import annotations

import numpy as np
import pytest

from paceline.parallelism.collectives.failures import straggler_factor, usual_mtbf_s


def test_llama_3_was_interrupted_every_three_hours() -> None:
    assert usual_mtbf_s() / 16_384 == pytest.approx(54 * 24 * 3600 / 419)


@pytest.mark.parametrize("ranks", [1, 2, 8, 64, 1024])
def test_the_slowest_of_many_agrees_with_sampling(ranks) -> None:
    rng = np.random.default_rng(ranks)
    slowest = rng.normal(1.0, 0.02, (4000, ranks)).max(axis=1).mean()
    assert straggler_factor(ranks, 0.02) == pytest.approx(slowest, rel=2e-3)


@pytest.mark.parametrize(
    ("ranks", "deviations"),
    [(2, 0.56419), (5, 1.16296), (10, 1.53875), (100, 2.50759), (1000, 3.24144)],
)
def test_the_slowest_of_many_is_the_published_order_statistic(ranks, deviations) -> None:
    """Harter, "Expected values of normal order statistics", Biometrika 48, 1961, table 1."""
    assert straggler_factor(ranks, 1.0) - 1 == pytest.approx(deviations, rel=0.02)
