"""What a rate that a service kept within its limits says of how slow its steps are.

Whoever measures a server with a benchmark raises the rate until a limit breaks, and publishes the
largest that held. Near it a queue answers a change of a few percent of its steps with times that
double, so that the rate says more of those times than any prediction of steps.

Source:
    MLPerf Inference rules, "Load Generator": the server scenario is a binary search for the largest
    rate of Poisson arrivals whose latencies hold.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from paceline.simulation.queue.engine_tables import EngineTable
from paceline.simulation.queue.load import Load
from paceline.simulation.queue.service import Limits, keeps, steady

#: Steps that are so many times slower or faster than predicted are looked at.
_MOST_LOG = 2.0
_HALVINGS = 8
#: What is left unused of the slowest steps that would keep the rate, as the mean of a logarithm.
#: 55 published rows of three engines: benchmarks/accuracy_services.md.
MEAN_SLACK = 0.02
#: What is left of times to the first token and per token at a rate that was kept, at p50 and at
#: p99, as standard deviations of a logarithm: the least that cover 80 % of the same rows. With each
#: submitter left out in turn as many are covered (benchmarks/accuracy_services.md). The tail of a
#: queue hangs on how long the longest prompts are, and on who is preempted.
KEPT_LOG_SIGMAS = ((0.34, 0.51), (0.12, 0.08))
_UNIT = NormalDist()
#: Beyond so many standard deviations the tail of a normal distribution is an exponential.
_FAR_SIGMAS = 4.0


def log_slowness(
    table: EngineTable, load: Load, limits: Limits, log_sigma: float
) -> tuple[float, float, float] | None:
    """How many times as long steps take, as logarithms: fast, median and slow end of 80 %.

    Args:
        table: Of a replica, as predicted.
        load: That it kept.
        limits: Within which it did.
        log_sigma: Of the prediction.

    Returns:
        None where nothing that is looked at keeps them.
    """
    edge = _slowest(table, load, limits)
    if edge is None:
        return None
    fast, mid, slow = (edge - _slack(edge, log_sigma, chance) for chance in (0.9, 0.5, 0.1))
    return fast, mid, slow


def _slowest(table: EngineTable, load: Load, limits: Limits) -> float | None:
    """The logarithm by which steps may be slower and still keep the limits."""

    def holds(log_factor: float) -> bool:
        return keeps(steady(table.slower(math.exp(log_factor)), load), limits)

    low, high = -_MOST_LOG, _MOST_LOG
    if not holds(low):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _slack(edge: float, log_sigma: float, chance: float) -> float:
    """How far below the slowest steps those are that ran, at a chance that they are no further.

    A submitter leaves slack x at exp(-x / mean); steps are log-normal about what is predicted. The
    product of both is a normal distribution, cut off at no slack.

    >>> round(_slack(0.0, 0.4, 0.5), 3), round(_slack(1.5, 0.4, 0.5), 3)
    (0.014, 0.017)
    """
    mean = edge - log_sigma**2 / MEAN_SLACK
    sigmas = -mean / log_sigma
    if sigmas > _FAR_SIGMAS:
        return -math.log1p(-chance) * log_sigma / sigmas
    below = _UNIT.cdf(sigmas)
    return mean + log_sigma * _UNIT.inv_cdf(below + chance * (1.0 - below))
