"""What a rate that was kept within limits says of the steps that kept it."""

from __future__ import annotations

import math

import numpy as np

from paceline.scoring.services.kept_rates import log_slowness
from paceline.simulation.queue.engine_tables import EngineTable
from paceline.simulation.queue.load import Lengths, Load
from paceline.simulation.queue.service import Limit, Limits, keeps, steady
from paceline.simulation.queue.step_loop import Batching, StepTimes

_SEQUENCES = np.arange(257.0)
_TABLE = EngineTable(
    times=StepTimes(
        write_s=0.01 + 1e-4 * _SEQUENCES,
        context_s=np.full(257, 1e-8),
        read_s=0.008 + 5e-5 * np.arange(2049.0),
    ),
    batching=Batching(max_requests=256, chunk_tokens=2048),
    path_s=0.0, log_sigma=0.3, memory_bytes=0.0, capacity_bytes=math.inf, knowledge=0,
)  # fmt: skip
_LOAD = Load(
    arrivals="poisson", prompt=Lengths(mean=200, spread=0.5), output=Lengths(mean=60, spread=0.5),
    rate_per_s=1.0, num_requests=1000,
)  # fmt: skip
_LIMITS: Limits = {
    "first_token": Limit(percentile=99, seconds=1.0),
    "per_token": Limit(percentile=99, seconds=0.08),
}


def _slowness(rate_per_s: float, log_sigma: float = 0.3) -> tuple[float, float, float]:
    found = log_slowness(_TABLE, _LOAD.at_rate(rate_per_s), _LIMITS, log_sigma)
    assert found is not None
    return found


def test_steps_that_kept_a_rate_keep_it_and_hardly_slower_ones_do_not() -> None:
    fast, mid, slow = _slowness(15.0)
    assert fast < mid < slow
    load = _LOAD.at_rate(15.0)
    assert keeps(steady(_TABLE.slower(math.exp(slow)), load), _LIMITS)
    assert not keeps(steady(_TABLE.slower(math.exp(slow + 0.1)), load), _LIMITS)


def test_a_higher_rate_was_kept_by_faster_steps() -> None:
    slowness = [_slowness(rate)[1] for rate in (5.0, 15.0, 45.0)]
    assert slowness == sorted(slowness, reverse=True)


def test_a_prediction_that_is_sure_pulls_towards_itself() -> None:
    # At a rate far below what is predicted only much slower steps leave nothing unused.
    vague, sure = (_slowness(5.0, log_sigma)[1] for log_sigma in (1.0, 0.1))
    assert sure < vague


def test_limits_that_nothing_keeps_say_nothing() -> None:
    hopeless: Limits = {"per_token": Limit(percentile=99, seconds=1e-6)}
    assert log_slowness(_TABLE, _LOAD, hopeless, 0.3) is None
