"""Trials: what a run is worth, against chance itself and in the limits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.planning.decisions.trial_worth import (
    better_chances,
    doubts,
    expected_loss,
    once_measured,
    saved_frac,
    worth_of_trials,
)
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.calibration.gaussian_process import Spreads, learn, weigh
from paceline.prediction.calibration.step_features import StepFeatures

SPREADS = Spreads.of(builtin_calibration().constants["calibrate"])


def step(name, kernel):
    return StepFeatures(workload=name, setting="s", kernels=((kernel, 1.0),))


@given(st.floats(0.0, 2.0), st.floats(0.05, 1.0))
def test_expected_loss_is_the_mean_of_what_the_second_is_better_by(gap, log_sigma):
    drawn = gap + log_sigma * np.random.default_rng(0).standard_normal(200_000)
    told = float(expected_loss(np.array(gap), np.array(log_sigma)))
    assert told == pytest.approx(np.maximum(-drawn, 0.0).mean(), abs=4e-3 * log_sigma)


def test_a_run_that_was_measured_is_in_doubt_by_its_own_part_alone():
    runs = [step("a", 1), step("a", 2), step("b", 1)]
    before, after = (
        doubts(runs, SPREADS, None),
        doubts(runs, SPREADS, learn([(runs[0], 0.1)], SPREADS)),
    )
    np.testing.assert_allclose(np.diag(before), SPREADS.total)
    assert np.diag(after)[0] < np.diag(after)[1:].min()
    assert (np.diag(after) < np.diag(before)).all()
    assert np.linalg.eigvalsh(after).min() > 0


def test_what_competes_with_nothing_is_worth_nothing():
    runs = [step("a", 1), step("b", 2), step("c", 3)]
    worth = worth_of_trials(
        np.array([0.0, 0.01, 0.0]), np.array([0, 0, 1]), doubts(runs, SPREADS, None)
    )
    alone = worth_of_trials(
        np.zeros(1), np.zeros(1, dtype=np.int64), doubts(runs[:1], SPREADS, None)
    )
    assert worth[0] > worth[2]
    assert worth[1] > worth[2]
    assert alone[0] == 0


@given(st.floats(0.0, 0.5), st.floats(0.01, 0.5))
def test_a_closer_contest_is_worth_more(gap, further):
    covariance = doubts([step("a", 1), step("b", 2)], SPREADS, None)
    contest = np.zeros(2, dtype=np.int64)
    near, far = (
        worth_of_trials(np.array([0.0, g]), contest, covariance) for g in (gap, gap + further)
    )
    assert near.sum() > far.sum()


def test_a_run_whose_kernels_stand_in_many_contests_is_measured_first():
    """Three models of one layer with 12, 16 and 24 of them against three strangers."""
    runs = [step(f"m{n}", 1) for n in range(3)] + [step(f"m{n}", 2 + n) for n in range(3)]
    contest = np.array([0, 1, 2, 0, 1, 2])
    worth = worth_of_trials(np.full(6, 0.0), contest, doubts(runs, SPREADS, None))
    assert worth[:3].min() > worth[3:].max()


def test_runs_of_the_same_kernels_are_no_contest():
    """What is common to both falls out of their difference."""
    same = doubts([step("a", 1), step("a", 1)], SPREADS, None)
    other = doubts([step("a", 1), step("a", 2)], SPREADS, None)
    contest, log_s = np.zeros(2, dtype=np.int64), np.array([0.0, 0.05])
    assert (
        worth_of_trials(log_s, contest, same).sum() < worth_of_trials(log_s, contest, other).sum()
    )


@given(st.floats(0.0, 0.3), st.integers(0, 2))
def test_of_two_runs_what_both_save_is_the_expected_loss(gap, kernel):
    """All rivals at once and one by one are one number where there is one rival."""
    covariance = doubts([step("a", 0), step("b", kernel)], SPREADS, None)
    log_s = np.array([0.0, gap])
    spread = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    expected = float(expected_loss(np.array(gap), np.array(spread)))
    assert -np.log1p(-saved_frac(log_s, covariance, [0, 1])) == pytest.approx(expected, abs=8e-3)


@given(st.lists(st.floats(0.0, 0.5), min_size=3, max_size=6))
def test_more_runs_save_no_less_and_none_save_nothing(gaps):
    covariance = doubts([step(str(n), n % 3) for n in range(len(gaps))], SPREADS, None)
    saved = [saved_frac(np.array(gaps), covariance, range(n)) for n in range(len(gaps) + 1)]
    assert saved[0] == 0
    assert all(after >= before - 5e-3 for before, after in itertools.pairwise(saved))


def test_a_run_that_was_measured_tells_nothing_more():
    covariance = doubts([step("a", 1), step("b", 2), step("c", 2)], SPREADS, None)
    after = once_measured(covariance, 1)
    assert saved_frac(np.zeros(3), after, [1]) == pytest.approx(0.0, abs=1e-6)
    assert (np.diag(after) <= np.diag(covariance)).all()
    lessons = weigh([(step("b", 2), 0.2)], SPREADS)
    by_learning = doubts([step("a", 1), step("c", 2)], SPREADS, lessons)
    np.testing.assert_allclose(after[np.ix_([0, 2], [0, 2])], by_learning, atol=1e-12)


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6))
def test_chances_are_chances_and_the_best_has_the_larger_part_against_each(gaps):
    runs = [step(str(n), n) for n in range(len(gaps))]
    chances = better_chances(np.array(gaps), doubts(runs, SPREADS, None))
    best = int(np.argmin(gaps))
    assert ((chances >= 0) & (chances <= 1)).all()
    assert all(chances[best] >= 0.5 >= one for n, one in enumerate(chances) if n != best)
