"""What it is worth to measure a run before strategies are chosen between.

Of two strategies that compete, the one predicted best loses something on average, since neither is
known exactly. A measured run removes a part of that loss: as much as it tells of the difference
between the two. Runs that share kernels with many close contests are worth most.

Source: the expected loss of a normal difference, Frazier, Powell and Dayanik, "The
Knowledge-Gradient Policy for Correlated Normal Beliefs" (2009), equation 10.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.prediction.calibration.gaussian_process import Observations, Spreads
from paceline.prediction.calibration.step_features import StepFeatures

#: A difference whose spread is less is known.
_LEAST_LOG_SIGMA = 1e-9
#: Outcomes that are drawn for a mean over them.
_NUM_DRAWN = 8192
_error_function = np.vectorize(math.erf, otypes=[np.float64])


def doubts(
    steps: Sequence[StepFeatures], spreads: Spreads, lessons: Observations | None
) -> FloatArray:
    """Covariance of the log times of steps, after what was measured, (num_steps, num_steps).

    Args:
        steps: What may run.
        spreads: Of the parts of a step's error, before the first measurement.
        lessons: What measurements taught; None before the first.
    """
    spreads = spreads if lessons is None else lessons.spreads
    covariance = spreads.shared(steps, steps)
    np.fill_diagonal(covariance, spreads.total)
    if lessons is None:
        return covariance
    shared = spreads.shared(lessons.steps, steps)
    left: FloatArray = covariance - shared.T @ lessons.precision @ shared
    return left


def worth_of_trials(log_s: FloatArray, contest: IntArray, covariance: FloatArray) -> FloatArray:
    """By how much less time is lost on average after measuring each run, as a share, (num_runs,).

    Summed over contests, for each rival against the run predicted best.

    Args:
        log_s: Log of the predicted times, (num_runs,).
        contest: Runs of one number compete with each other, (num_runs,).
        covariance: Of the log times, (num_runs, num_runs).
    """
    worth = np.zeros(len(log_s))
    variance = np.diag(covariance)
    for number in distinct(contest):
        runs = np.flatnonzero(contest == number)
        best = runs[np.argmin(log_s[runs])]
        rivals = runs[runs != best]
        told = covariance[rivals] - covariance[best]
        spread = np.sqrt(np.maximum(told[np.arange(len(rivals)), rivals] - told[:, best], 0.0))
        spread = np.maximum(spread, _LEAST_LOG_SIGMA)
        loss = expected_loss(log_s[rivals] - log_s[best], spread)
        worth += loss @ (np.square(told / spread[:, None]) / variance)
    return worth


def expected_loss(gap: FloatArray, log_sigma: FloatArray) -> FloatArray:
    """What the choice of the first of two loses on average, where the second may be the better.

    Args:
        gap: How much more log time the second is predicted to take, not negative.
        log_sigma: Standard deviation of that difference.

    >>> round(float(expected_loss(np.array(0.0), np.array(1.0))), 3)
    0.399
    """
    ratio = gap / log_sigma
    density = np.exp(-0.5 * np.square(ratio)) / math.sqrt(2.0 * math.pi)
    loss: FloatArray = log_sigma * (density - ratio * _chance_beyond(ratio))
    return np.maximum(loss, 0.0)


def _chance_beyond(ratio: FloatArray) -> FloatArray:
    """Chance that a normal variable is more than so many standard deviations above its mean."""
    chance: FloatArray = 0.5 * (1.0 - _error_function(ratio / math.sqrt(2.0)))
    return chance


def once_measured(covariance: FloatArray, place: int) -> FloatArray:
    """Covariance of all runs once one of them is known, of the same shape."""
    told = covariance[place]
    left: FloatArray = covariance - np.outer(told, told) / max(told[place], _LEAST_LOG_SIGMA**2)
    left[place] = left[:, place] = 0.0
    left[place, place] = _LEAST_LOG_SIGMA**2
    return left


def better_chances(log_s: FloatArray, covariance: FloatArray) -> FloatArray:
    """Chance of each run to be faster than the one predicted best, (num_runs,).

    That of the best itself is the chance that its strongest rival is not.
    """
    best = int(np.argmin(log_s))
    variance = np.diag(covariance) + covariance[best, best] - 2.0 * covariance[best]
    spread = np.sqrt(np.maximum(variance, _LEAST_LOG_SIGMA**2))
    ratio = (log_s - log_s[best]) / spread
    chances = _chance_beyond(ratio)
    chances[best] = 0.0
    chances[best] = 1.0 - chances.max()
    return chances


def saved_frac(log_s: FloatArray, covariance: FloatArray, places: Sequence[int]) -> float:
    """Share of the time that is lost less on average once some competing runs are measured.

    The mean gain of the run that is then predicted best over the one that is now, over what may be
    measured; some need one another: of two that err alike, one alone tells nothing.

    Args:
        log_s: Log of the predicted times, (num_runs,).
        covariance: Of the log times, (num_runs, num_runs).
        places: Of the runs that are measured.
    """
    if not len(places):
        return 0.0
    told = covariance[:, places]
    weights = np.linalg.pinv(covariance[np.ix_(places, places)], hermitian=True)
    root = np.linalg.cholesky(weights + _LEAST_LOG_SIGMA * np.eye(len(places)))
    drawn = np.random.default_rng(0).standard_normal((len(places), _NUM_DRAWN))
    then = np.min(log_s[:, None] + told @ root @ drawn, axis=0)
    return max(-math.expm1(float(then.mean() - log_s.min())), 0.0)
