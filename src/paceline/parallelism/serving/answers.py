"""Answers of an engine as one table: time, energy, memory and bound of all requests in flight.

Shape legend: D devices, R runs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray
from paceline.parallelism.serving.batching import (
    EnginePasses,
    ServingRuns,
    ServingTimes,
    request_times,
)
from paceline.parallelism.serving.engine import PredictedPasses
from paceline.stack.engines import EngineProfile
from paceline.values import dataclass

#: Beyond this share of a request's time its tokens, and not its prompt, hold it back.
_MOSTLY = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answers:
    """All requests in flight answered once, on one rank, without what ranks exchange; (D, R) each.

    Attributes:
        passes: Their medians.
        times: What requests see.
        low_s: Lower end of the 80 % interval of ``times.request_s``.
        high_s: Upper end.
        log_sigma: Standard deviation of its logarithm.
        energy_j: Of the device.
        flop: (R,).
        bound: ``Bound`` code of what takes most of it.
    """

    passes: EnginePasses
    times: ServingTimes
    low_s: FloatArray
    high_s: FloatArray
    log_sigma: FloatArray
    energy_j: FloatArray
    flop: FloatArray
    bound: npt.NDArray[np.int8]


def answers(found: PredictedPasses, runs: ServingRuns, engine: EngineProfile) -> Answers:
    """Answers of an engine from the predictions of its passes.

    Power is that of the passes apart; a step that does the work of two takes as much for shorter.

    Args:
        found: Of D devices and R runs.
        runs: What is asked.
        engine: That serves.
    """
    passes = found.passes()
    times, low, high = (
        request_times(runs, one, engine)
        for one in (passes, found.passes("low_s"), found.passes("high_s"))
    )
    reading_s = runs.concurrency * passes.prompt_s
    writing_s = runs.steps * (passes.step_s + passes.draft_s)
    token_frac = writing_s / (reading_s + writing_s)
    read, written = found.prompt, found.token
    (read_j, step_j), (read_flop, step_flop) = (found.summed(n) for n in ("energy_j", "flop"))
    apart_j = runs.concurrency * read_j + runs.steps * step_j
    return Answers(
        passes=passes,
        times=times,
        low_s=low.request_s,
        high_s=high.request_s,
        log_sigma=token_frac * written.log_sigma + (1.0 - token_frac) * read.log_sigma,
        energy_j=apart_j * times.request_s / (reading_s + writing_s),
        flop=runs.concurrency * read_flop + runs.steps * step_flop,
        bound=np.where(token_frac > _MOSTLY, written.bound, read.bound).astype(np.int8),
    )


def exchange_added(
    runs: ServingRuns, passes: EnginePasses, engine: EngineProfile, *, prompt_s: FloatArray,
    token_s: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:  # fmt: skip
    """What ranks that exchange add to the first token, to each token and to a whole request.

    Args:
        runs: What is asked, (R,).
        passes: Of one rank, (R,); what groups do for each other counts with what they exchange.
        engine: That serves.
        prompt_s: Exchanged in reading a prompt, (R,).
        token_s: Exchanged in a step, (R,).
    """
    alone = request_times(runs, replace(passes, joint_s=0.0), engine)
    together = request_times(runs, passes.exchanging(prompt_s, token_s), engine)
    first_s, per_token_s, request_s = (
        np.asarray(getattr(together, name) - getattr(alone, name))
        for name in ("first_token_s", "per_token_s", "request_s")
    )
    return first_s, per_token_s, request_s
