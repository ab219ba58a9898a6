from __future__ import annotations

import numpy as np
import pytest

from paceline.errors import InvalidInputError
from paceline.parallel.failures import resilience, straggler_factor


def test_llama_3_was_interrupted_every_three_hours() -> None:
    found = resilience(16_384, checkpoint_s=30.0, restart_s=300.0)
    assert found.mtbf_s == pytest.approx(54 * 24 * 3600 / 419)
    assert found.goodput_frac > 0.88  # the paper reports above 90 % effective training time


def test_goodput_agrees_with_a_simulation_of_failures() -> None:
    checkpoint_s, restart_s, num_devices = 120.0, 600.0, 8192
    found = resilience(num_devices, checkpoint_s=checkpoint_s, restart_s=restart_s)
    rng = np.random.default_rng(0)
    span_s, wall_s = found.checkpoint_interval_s + checkpoint_s, 0.0
    num_intervals = 20_000
    for _ in range(num_intervals):
        needed_s = span_s
        while (failed_s := rng.exponential(found.mtbf_s)) < needed_s:
            wall_s += failed_s
            needed_s = restart_s + span_s
        wall_s += needed_s
    simulated = num_intervals * found.checkpoint_interval_s / wall_s
    assert found.goodput_frac == pytest.approx(simulated, rel=0.02)


def test_the_interval_is_the_best_one() -> None:
    from paceline.parallel.failures import _goodput_frac

    found = resilience(4096, checkpoint_s=60.0, restart_s=300.0)
    intervals = found.checkpoint_interval_s * np.array([0.5, 0.8, 1.25, 2.0])
    others = [_goodput_frac(i, 60.0, 300.0, found.mtbf_s) for i in intervals]
    assert found.goodput_frac >= max(others)


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5])
def test_the_interval_is_the_best_one_however_long_a_checkpoint_takes(share) -> None:
    """Where the wall time per second of work is least, with a failure each second on average."""
    found = resilience(1, checkpoint_s=share, restart_s=0.0, device_mtbf_s=1.0)
    work_s = np.linspace(0.01, 3.0, 3000)
    best_s = work_s[np.argmin(np.expm1(work_s + share) / work_s)]
    assert found.checkpoint_interval_s == pytest.approx(best_s, rel=0.03)


def test_more_devices_never_help_goodput() -> None:
    found = [
        resilience(n, checkpoint_s=60, restart_s=300).goodput_frac for n in (1, 64, 4096, 2**17)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.999


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


@pytest.mark.parametrize(
    "keywords", [{"checkpoint_s": 0.0}, {"restart_s": -1.0}, {"device_mtbf_s": 0.0}]
)
def test_times_must_make_sense(keywords) -> None:
    given = {"checkpoint_s": 60.0, "restart_s": 60.0} | keywords
    with pytest.raises(InvalidInputError):
        resilience(8, **given)
