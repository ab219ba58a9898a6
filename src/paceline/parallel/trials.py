"""Which run to measure first, so that the choice between strategies is sure.

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

from paceline.predict.lessons import Lessons, Spreads
from paceline.predict.traits import StepTraits
from paceline.trace.graph import FloatArray, IntArray

#: A difference whose spread is less is known.
_LEAST_LOG_SIGMA = 1e-9
_error_function = np.vectorize(math.erf, otypes=[np.float64])


def doubts(steps: Sequence[StepTraits], spreads: Spreads, lessons: Lessons | None) -> FloatArray:
    """Covariance of the log times of steps, after what was measured, (num_steps, num_steps).

    Args:
        steps: What may run.
        spreads: Of the parts of a step's error.
        lessons: What measurements taught; None before the first.
    """
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
    for number in np.unique(contest):
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
    beyond = 0.5 * (1.0 - _error_function(ratio / math.sqrt(2.0)))
    loss: FloatArray = log_sigma * (density - ratio * beyond)
    return np.maximum(loss, 0.0)
