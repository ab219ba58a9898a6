from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.parallelism.collectives.failures import usual_mtbf_s
from paceline.planning.places.interruption import (
    MONTH_S,
    Checkpointing,
    best_interval_s,
    interrupted_run,
    interruptions_per_s,
)


def simulate_paid_s(
    work_s: float, saving: Checkpointing, rate_per_s: float, num_runs: int, seed: int
) -> tuple[float, float]:
    """Mean paid time and interruptions of a job played through event by event."""
    generator = np.random.default_rng(seed)
    num_segments = max(1, math.ceil(work_s / saving.interval_s))
    segment_s = work_s / num_segments + saving.save_s
    paid_s, interruptions = 0.0, 0
    for _ in range(num_runs):
        for _ in range(num_segments):
            need_s = [segment_s]
            while need_s:
                life_s = generator.exponential(1 / rate_per_s)
                if life_s >= need_s[-1]:
                    paid_s += need_s.pop()
                    continue
                paid_s += life_s
                interruptions += 1
                if len(need_s) == 1:
                    need_s.append(saving.restart_s)
    return paid_s / num_runs, interruptions / num_runs


@pytest.mark.parametrize(
    ("work_h", "save_s", "restart_s", "interval_s", "mean_h"),
    [
        (50, 60, 300, 1800, 10),
        (20, 120, 900, 3600, 2),
        (100, 30, 600, 900, 5),
        (5, 10, 60, 600, 0.5),
    ],
)
def test_expected_cost_equals_a_discrete_event_simulation(
    work_h: float, save_s: float, restart_s: float, interval_s: float, mean_h: float
) -> None:
    saving = Checkpointing(save_s=save_s, restart_s=restart_s, interval_s=interval_s)
    rate = 1 / (mean_h * 3600)
    run = interrupted_run(work_h * 3600, saving, rate)
    paid_s, interruptions = simulate_paid_s(work_h * 3600, saving, rate, num_runs=600, seed=7)
    assert run.paid_s == pytest.approx(paid_s, rel=0.02)
    assert run.num_interruptions == pytest.approx(interruptions, rel=0.03)


runs = st.tuples(
    st.floats(600, 1e6),
    st.builds(
        Checkpointing,
        save_s=st.floats(1, 600),
        restart_s=st.floats(0, 3600),
        interval_s=st.one_of(st.none(), st.floats(300, 20_000)),
    ),
)


@given(run=runs, rate=st.floats(0, 1e-4))
def test_the_parts_of_paid_time_add_up(run: tuple[float, Checkpointing], rate: float) -> None:
    course = interrupted_run(*run, rate)
    parts = course.useful_s + course.save_s + course.restart_s + course.lost_s
    assert parts == pytest.approx(course.paid_s, rel=1e-6)
    assert course.lost_s >= -1e-6 * course.paid_s


@given(run=runs, rate=st.floats(1e-9, 1e-4))
def test_more_interruptions_never_help(run: tuple[float, Checkpointing], rate: float) -> None:
    work_s, saving = run
    fixed = Checkpointing(
        save_s=saving.save_s, restart_s=saving.restart_s, interval_s=saving.interval_s or 3600
    )
    often = interrupted_run(work_s, fixed, 2 * rate)
    assert interrupted_run(work_s, fixed, rate).paid_s <= often.paid_s * (1 + 1e-9)


@settings(max_examples=60)
@given(save_s=st.floats(1, 300), restart_s=st.floats(0, 1800), mean_h=st.floats(1, 1000))
def test_the_best_interval_is_within_two_percent_of_the_best_of_a_grid(
    save_s: float, restart_s: float, mean_h: float
) -> None:
    rate, work_s = 1 / (mean_h * 3600), 3e7

    def paid_s(interval_s: float) -> float:
        saving = Checkpointing(save_s=save_s, restart_s=restart_s, interval_s=interval_s)
        return interrupted_run(work_s, saving, rate).paid_s

    ours_s = paid_s(best_interval_s(save_s, rate))
    assert ours_s <= 1.02 * min(paid_s(x) for x in np.geomspace(10, 1e6, 60))


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5])
def test_the_best_interval_holds_however_long_a_save_takes(share: float) -> None:
    """Where the paid time per second of work is least, with an interruption an hour."""
    work_s = np.linspace(0.01, 3.0, 3000) * 3600
    least_s = work_s[np.argmin(np.expm1(work_s / 3600 + share) / work_s)]
    assert best_interval_s(share * 3600, 1 / 3600) == pytest.approx(least_s, rel=0.03)


def test_llama_3_moved_forward_nine_tenths_of_the_time() -> None:
    """Llama 3 (arXiv 2407.21783), section 3.3.4: above 90 % effective training time."""
    month = Checkpointing(save_s=30.0, restart_s=300.0)
    run = interrupted_run(MONTH_S, month, 16_384 / usual_mtbf_s())
    assert 0.88 < run.useful_s / run.paid_s < 0.95


def test_without_interruptions_only_the_last_save_remains() -> None:
    run = interrupted_run(3600, Checkpointing(save_s=30, restart_s=60), 0.0)
    assert (run.paid_s, run.num_interruptions, run.lost_s) == (3630, 0, 0)


@given(frac=st.floats(0, 0.9), num_nodes=st.integers(1, 64))
def test_the_monthly_chance_is_what_comes_back(frac: float, num_nodes: int) -> None:
    survival = math.exp(-interruptions_per_s(frac, num_nodes) * MONTH_S)
    assert survival == pytest.approx((1 - frac) ** num_nodes, abs=1e-9)
