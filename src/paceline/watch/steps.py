"""Rows of a run made into step times: how long a step takes, and what of it is what."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from paceline.values import dataclass
from paceline.watch.events import StepRow

#: Steps at the beginning that load, tune and compile.
_NUM_WARMUP = 3
#: Share of the steps, from the end, that a rate is taken over; and how many at least.
_RECENT_FRAC, _LEAST_RECENT = 0.5, 20
#: Ratio from which people count in times and not in percent.
_MANY_TIMES = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Steps of one process. A step is one round of all its optimizers.

    Attributes:
        num_steps: So far.
        num_measured: Steps that the times below are of, those of the beginning left out.
        step_s: Median.
        low_s: Lower quartile.
        high_s: Upper quartile.
        wait_s: Mean of a step, in waiting for batches.
        forward_s: Mean, from the batch to backward.
        backward_s: Mean, in backward and what follows up to the update.
        update_s: Mean, in the update.
        rest_s: What is left of the mean step.
        microbatches: Backward passes per step, at the median.
        losses: Of the last step, one per backward pass.
    """

    num_steps: int
    num_updates: int
    num_measured: int
    step_s: float
    low_s: float
    high_s: float
    wait_s: float
    forward_s: float
    backward_s: float
    update_s: float
    rest_s: float
    microbatches: int
    losses: tuple[float, ...]

    @property
    def mean_s(self) -> float:
        """Of the measured steps; longer than the median where some are very long."""
        return self.wait_s + self.forward_s + self.backward_s + self.update_s + self.rest_s


def rounds(rows: Sequence[StepRow]) -> list[list[StepRow]]:
    """Rows by step: a step ends with the optimizer that closes the round.

    Where one optimizer works, each row is a step; where two work by turns, each pair is; where one
    works five times and the other once, the other closes the step.
    """
    if not rows:
        return []
    count: dict[int, int] = {}
    for row in rows:
        count[row.optimizer] = count.get(row.optimizer, 0) + 1
    # The rarest closes; of those that are equally rare, the one that was met last.
    closing = max(count, key=lambda number: (-count[number], number))
    found: list[list[StepRow]] = [[]]
    for row in rows:
        found[-1].append(row)
        if row.optimizer == closing:
            found.append([])
    return found[:-1] if not found[-1] else found


def step_times(rows: Sequence[StepRow], *, is_recent: bool = False) -> StepTimes | None:
    """What steps of one process took; None before two have ended, or where no time passed.

    Lines that are damaged may say that steps ended at one moment, or before they began.

    Args:
        rows: In their order.
        is_recent: Of the last half alone, and of 20 steps at least.
    """
    steps = [one for one in rounds(rows) if one]
    if len(steps) < 2:
        return None
    first = min(_NUM_WARMUP, len(steps) - 1)
    if is_recent:
        first = max(first, len(steps) - max(_LEAST_RECENT, int(len(steps) * _RECENT_FRAC)))
    ends = [one[-1].ended_ns for one in steps]
    taken = [(b - a) / 1e9 for a, b in zip(ends[first - 1 :], ends[first:], strict=False)]
    if statistics.median(taken) <= 0.0:
        return None
    measured = steps[first:]
    parts = [
        sum(getattr(row, name) for one in measured for row in one) / 1e9 / len(measured)
        for name in ("wait_ns", "forward_ns", "backward_ns", "update_ns")
    ]
    mean_s = sum(taken) / len(taken)
    low, high = _quartiles(taken)
    return StepTimes(
        num_steps=len(steps),
        num_updates=len(rows),
        num_measured=len(taken),
        step_s=statistics.median(taken),
        low_s=low,
        high_s=high,
        wait_s=parts[0],
        forward_s=parts[1],
        backward_s=parts[2],
        update_s=parts[3],
        rest_s=max(0.0, mean_s - sum(parts)),
        microbatches=int(statistics.median(sum(row.num_backwards for row in one) for one in steps)),
        losses=tuple(loss for row in steps[-1] for loss in row.losses),
    )


def busy_times_s(rows: Sequence[StepRow]) -> tuple[float, ...]:
    """Time of each step after the first ones, without its waiting for batches."""
    steps = [one for one in rounds(rows) if one]
    pairs = zip(steps[_NUM_WARMUP - 1 :], steps[_NUM_WARMUP:], strict=False)
    return tuple(
        (one[-1].ended_ns - before[-1].ended_ns - sum(row.wait_ns for row in one)) / 1e9
        for before, one in pairs
    )


def pace_text(ratio: float) -> str:
    """How long a step is beside its prediction, in words.

    >>> pace_text(1.36), pace_text(0.8), pace_text(13.0)
    ('36% slower than predicted', '20% faster than predicted', '13 times as long as predicted')
    """
    if ratio >= _MANY_TIMES:
        return f"{ratio:.3g} times as long as predicted"
    way = f"{ratio - 1:.0%} slower" if ratio > 1 else f"{1 - ratio:.0%} faster"
    return f"{way} than predicted"


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[round(0.25 * last)], ordered[round(0.75 * last)]
