"""A service: replicas of an engine under a load, where it saturates, and which limits it keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from paceline.simulation.queue.engine_tables import EngineTable
from paceline.simulation.queue.load import Load, Requests
from paceline.simulation.queue.percentiles import Percentiles, Served, summed_up
from paceline.simulation.queue.step_loop import Batching, run_steps
from paceline.values import dataclass

#: Times that a limit may bound.
Bounded = Literal["first_token", "per_token", "request"]
#: Requests that are all there at the start show what an engine can do at most: so many times as
#: many as it takes at once.
_BACKLOG = 4
#: The same over those that it admits before answers grow.
_REFILLED = 2
_SOME = 32
#: Requests of a run over those in flight, so that most of them come to a filled engine.
_SPANS = 6
#: Rates that are told apart.
_RATES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A time that a percentile of requests must not exceed.

    Attributes:
        percentile: Of requests, 50, 95 or 99.
        seconds: At most.
    """

    percentile: int
    seconds: float

    def holds(self, seen: Percentiles) -> bool:
        """Whether it does."""
        value = {50: seen.p50_s, 95: seen.p95_s, 99: seen.p99_s}[self.percentile]
        return math.isnan(value) or value <= self.seconds


Limits = Mapping[Bounded, Limit]


def served(table: EngineTable, requests: Requests, *, num_replicas: int = 1) -> Served:
    """What requests see of replicas that a router gives them to in turn.

    No more replicas work than requests come by themselves: the others wait for one to end.

    Raises:
        InvalidInputError: A request is longer than the cache of a replica.
    """
    busy = min(num_replicas, int(np.isfinite(requests.arrival_s).sum()))
    parts = [requests.share(part, busy) for part in range(busy)]
    return summed_up(
        [run_steps(part, table.times, table.batching) for part in parts], path_s=table.path_s
    )


def steady(table: EngineTable, load: Load) -> Served:
    """What requests that come by themselves see of one replica in a run without end.

    The run is long enough for several times as many requests as are in flight, or as the engine
    takes at once where more and more wait.

    Raises:
        InvalidInputError: A request is longer than the cache.
    """
    run = run_steps(load.requests(), table.times, table.batching)
    request_s, span_s = (run.finish_s - run.arrival_s).mean(), np.ptp(run.arrival_s)
    in_flight = load.num_requests * float(request_s / max(span_s, request_s))
    asked = math.ceil(_SPANS * min(in_flight, _at_once(table, load)))
    if asked > load.num_requests:
        longer = replace(load, num_requests=asked)
        run = run_steps(longer.requests(), table.times, table.batching)
    return summed_up([run], path_s=table.path_s, settles=True)


def offered(
    table: EngineTable, load: Load, *, num_replicas: int = 1, most_per_s: float | None = None
) -> Served:
    """What requests of a load see of replicas; rates are those of all replicas.

    Requests that come by themselves come to each replica as they come to one, at its share of the
    rate; what is completed is what is offered, or what replicas can do at most.

    Args:
        table: Of a replica.
        load: That comes to all of them.
        num_replicas: How many there are.
        most_per_s: Requests that a replica completes at most (`saturation`), where it is known.

    Raises:
        InvalidInputError: A request is longer than the cache of a replica.
    """
    if load.arrivals != "poisson" or load.rate_per_s is None:
        return served(table, load.requests(), num_replicas=num_replicas)
    each_per_s = load.rate_per_s / num_replicas
    if most_per_s is None:
        most_per_s = saturation(table, load).requests_per_s
    seen = steady(table, load.at_rate(each_per_s))
    return seen.at_rate(min(each_per_s, most_per_s) * num_replicas)


def saturation(table: EngineTable, load: Load) -> Served:
    """What one replica gives at most: more requests wait than it takes at once.

    Rates are those at which requests start after the engine is full, so that neither its filling
    nor the last long answers count. An engine that admits on prompts alone fills with more than it
    keeps: answers grow, and who came last waits again. Those have started, and do not count.
    """
    filling = _filling(table, load)
    count = max(_BACKLOG * _at_once(table, load), _REFILLED * filling) + _SOME
    backlog = replace(load, arrivals="at-once", num_requests=count).requests()
    run = run_steps(backlog, table.times, table.batching)
    seen = summed_up([run], path_s=table.path_s)
    started_s = np.sort(run.first_token_s)
    span_s = float(started_s[-1] - started_s[filling - 1])
    requests_per_s = (len(started_s) - filling) / span_s
    later = np.argsort(run.first_token_s, kind="stable")[filling:]
    output, prompt = (
        float(tokens[later].sum()) / span_s
        for tokens in (backlog.output_tokens, backlog.prompt_tokens)
    )
    return replace(
        seen,
        requests_per_s=requests_per_s,
        output_tokens_per_s=output,
        tokens_per_s=prompt + output,
    )


def _at_once(table: EngineTable, load: Load) -> int:
    """Requests that fill an engine or its cache."""
    return _fitting(table.batching, load, table.batching.beams * load.output.mean)


def _filling(table: EngineTable, load: Load) -> int:
    """Requests that an engine admits before any of their answers has grown."""
    if table.batching.reserves_answers:
        return _at_once(table, load)
    return _fitting(table.batching, load, 0.0)


def _fitting(batching: Batching, load: Load, answer_tokens: float) -> int:
    room = batching.cache_tokens / (load.prompt.mean + answer_tokens)
    return max(int(min(batching.max_requests, room)), 1)


def keeps(seen: Served, limits: Limits) -> bool:
    """Whether every limit holds."""
    return all(limit.holds(getattr(seen, name)) for name, limit in limits.items())


def rate_within(
    table: EngineTable, load: Load, limits: Limits, *, beyond_per_s: float = 0.0
) -> float:
    """The largest rate of Poisson arrivals, in requests/s, at which one replica keeps its limits.

    Without limits it is the rate at which the queue grows without end; 0 where not even single
    requests keep them. Rates are told apart by 1/128 of the largest of all.

    Args:
        table: Of the replica.
        load: Lengths of its requests, how many are simulated, and the seed.
        limits: By what they bound.
        beyond_per_s: Where the rate is less, how much less need not be known: it is 0 then.
    """
    most = saturation(table, load).requests_per_s
    if not limits or most <= beyond_per_s:
        return most if most > beyond_per_s else 0.0

    def keeps_at(number: int) -> bool:
        return keeps(steady(table, load.at_rate(most * number / _RATES)), limits)

    if keeps_at(_RATES):
        return most
    low, high = math.floor(beyond_per_s / most * _RATES), _RATES
    if low and not keeps_at(low):
        return 0.0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if keeps_at(middle) else (low, middle)
    return most * low / _RATES
