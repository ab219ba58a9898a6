"""What requests saw: times to the first token, per token and in all, by percentile; throughput.

Source:
    Little, "A Proof for the Queuing Formula L = λW", Operations Research 9(3), 1961.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.model.graph.program import BoolArray
from paceline.simulation.queue.step_loop import Timeline
from paceline.values import dataclass

#: An engine has filled after so many times as long as a request takes.
_FILLING = 2.0
#: Of a run, requests that came to a filled engine at least; else those between these shares count.
_LEAST_SETTLED_FRAC = 0.25
_LATER_MIDDLE = (0.5, 0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """A time by percentile of requests.

    Attributes:
        mean_s: Over all requests.
        p50_s: Half of them see no more.
        p95_s: 95 of 100.
        p99_s: 99 of 100.
    """

    mean_s: float
    p50_s: float
    p95_s: float
    p99_s: float

    @classmethod
    def of(cls, seconds: FloatArray) -> Percentiles:
        """Of times, one for each request; NaN without any."""
        if not len(seconds):
            return cls(mean_s=np.nan, p50_s=np.nan, p95_s=np.nan, p99_s=np.nan)
        p50_s, p95_s, p99_s = np.percentile(seconds, (50, 95, 99))
        return cls(
            mean_s=float(seconds.mean()), p50_s=float(p50_s), p95_s=float(p95_s), p99_s=float(p99_s)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What a service gave.

    Attributes:
        first_token: Time to the first token.
        per_token: From one token to the next, the mean of each request that has two.
        request: From sending a request to its last token.
        requests_per_s: Completed, from the first arrival to the last completion.
        output_tokens_per_s: Of their answers.
        tokens_per_s: Of prompts and answers.
        num_requests: Simulated.
    """

    first_token: Percentiles
    per_token: Percentiles
    request: Percentiles
    requests_per_s: float
    output_tokens_per_s: float
    tokens_per_s: float
    num_requests: int

    def at_rate(self, requests_per_s: float) -> Served:
        """The same times, with the throughput of a run without end at such a rate."""
        ratio = requests_per_s / self.requests_per_s
        return replace(
            self,
            requests_per_s=requests_per_s,
            output_tokens_per_s=self.output_tokens_per_s * ratio,
            tokens_per_s=self.tokens_per_s * ratio,
        )


def settled(run: Timeline) -> BoolArray:
    """Requests that came neither while an engine filled nor as no more were to follow, (R,).

    Who comes to an empty engine shares its steps with few, and so does who comes last. An engine
    fills in about twice the time of a request. Where the run is too short for that, requests of
    its later middle count.
    """
    first_s, last_s = run.arrival_s[0], run.arrival_s[-1]
    request_s = float(np.median(run.finish_s - run.arrival_s))
    is_filled = run.arrival_s >= first_s + _FILLING * request_s
    counts: BoolArray = is_filled & (run.arrival_s <= last_s - request_s)
    if counts.mean() >= _LEAST_SETTLED_FRAC:
        return counts
    order = np.arange(len(counts)) / len(counts)
    return np.asarray((order >= _LATER_MIDDLE[0]) & (order <= _LATER_MIDDLE[1]))


def summed_up(timelines: list[Timeline], *, path_s: float = 0.0, settles: bool = False) -> Served:
    """What requests saw of one replica or of several together.

    Args:
        timelines: Of each replica.
        path_s: Way of a request to the engine and of its first token back.
        settles: Whether times are those of requests that came to a filled engine (`settled`), as
            in a run without end.
    """
    counts = np.concatenate(
        [settled(one) if settles else np.ones(len(one.requests), np.bool_) for one in timelines]
    )
    arrival_s, first_s, finish_s = (
        np.concatenate([getattr(one, name) for one in timelines])
        for name in ("arrival_s", "first_token_s", "finish_s")
    )
    prompt, output = (
        np.concatenate([getattr(one.requests, name) for one in timelines])
        for name in ("prompt_tokens", "output_tokens")
    )
    span_s = float(finish_s.max() - arrival_s.min())
    several = counts & (output > 1)
    return Served(
        first_token=Percentiles.of((first_s - arrival_s)[counts] + path_s),
        per_token=Percentiles.of((finish_s - first_s)[several] / (output[several] - 1)),
        request=Percentiles.of((finish_s - arrival_s)[counts] + path_s),
        requests_per_s=len(output) / span_s,
        output_tokens_per_s=float(output.sum()) / span_s,
        tokens_per_s=float((prompt + output).sum()) / span_s,
        num_requests=len(output),
    )
