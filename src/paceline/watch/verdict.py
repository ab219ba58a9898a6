"""The verdict on a run: what was predicted, what was measured, what was billed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from paceline.planfile import Interval
from paceline.values import dataclass
from paceline.watch.events import RankEvents, RunEvents, StepRow
from paceline.watch.expected import Expectation
from paceline.watch.folder import Run, State
from paceline.watch.steps import StepTimes, pace_text, rounds, step_times

#: Share of a mean step from which a part is a difference worth a word.
_NOTABLE_FRAC = 0.1
_MOST_POINTS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One figure as predicted, measured and billed; None where it is not known.

    Attributes:
        name: ``step``, ``time``, ``memory`` or ``cost``.
        unit: ``s``, ``bytes`` or ``usd``.
        measured: On this run.
        billed: On the invoice.
    """

    name: str
    unit: str
    predicted: Interval | None
    measured: float | None
    billed: float | None = None

    @property
    def is_outside(self) -> bool:
        """Whether what was measured lies outside the interval."""
        if self.predicted is None or self.measured is None:
            return False
        return not self.predicted.low <= self.measured <= self.predicted.high


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What is known of a run.

    Attributes:
        command: As typed.
        state: As a word.
        status: Exit status; None while it runs, or where nobody saw its end.
        elapsed_s: Since it was started, up to its end.
        num_ranks: Processes that trained.
        device: Where the first of them trained.
        steps: Of the slowest rank; None before its second step.
        peak_bytes: Most that one process took of its device: what the allocator held, or on a CPU
            the process itself. None where nothing was seen.
        job: What was read out of the script: ``model``, ``batch`` …; empty where nothing was.
        ledger: Predicted, measured, billed.
        source: Where the prediction comes from; empty without one.
        why_unpredicted: Why there is none; empty where there is one.
        differences: What sets the run apart from its prediction, one sentence each.
        failure: What ended the script, in a line; empty where nothing did.
        notices: What was said of it while it ran.
        num_damaged: Lines of the observer that could not be read.
        troubles: What ended observers themselves.
    """

    id: str
    command: tuple[str, ...]
    state: State
    status: int | None
    elapsed_s: float
    num_ranks: int
    device: str
    steps: StepTimes | None
    peak_bytes: float | None
    job: dict[str, str]
    ledger: tuple[LedgerLine, ...]
    source: str
    why_unpredicted: str
    differences: tuple[str, ...] = ()
    failure: str = ""
    notices: tuple[str, ...] = ()
    num_damaged: int = 0
    troubles: tuple[str, ...] = ()


def summarise(
    run: Run,
    events: RunEvents,
    *,
    expectation: Expectation | None = None,
    why_unpredicted: str = "",
    job: dict[str, str] | None = None,
    billed_usd: float | None = None,
    notices: Sequence[str] = (),
) -> RunSummary:
    """What is known of a run now.

    Args:
        run: Which.
        events: What its processes wrote.
        expectation: What it should do.
        why_unpredicted: Why nothing is expected.
        job: What was read out of the script.
        billed_usd: What the invoice says.
        notices: What was said of it while it ran.
    """
    training = events.training
    steps = slowest(training)
    elapsed_s = _elapsed_s(run)
    peak = peak_bytes(training)
    ledger = _ledger(expectation, steps, elapsed_s, peak, billed_usd)
    return RunSummary(
        id=run.id,
        command=run.command,
        state=run.state,
        status=run.status,
        elapsed_s=elapsed_s,
        num_ranks=len(training),
        device=_device(training),
        steps=steps,
        peak_bytes=peak,
        job=job or {},
        ledger=ledger,
        source=expectation.source if expectation else "",
        why_unpredicted="" if expectation else why_unpredicted,
        differences=tuple(_differences(ledger, steps, _crowded(training))),
        failure=_failure(events.ranks),
        notices=tuple(notices),
        num_damaged=sum(one.num_damaged for one in events.ranks),
        troubles=events.failures(),
    )


def slowest(training: Sequence[RankEvents]) -> StepTimes | None:
    """Steps of the rank with the longest median; None before any has two."""
    found = [times for one in training if (times := step_times(one.steps)) is not None]
    return max(found, key=lambda times: times.step_s, default=None)


def step_course_s(training: Sequence[RankEvents]) -> tuple[float, ...]:
    """Time of each step of the slowest rank, thinned out to at most 400 points.

    Args:
        training: Ranks that take steps. For several steps in a row their median stands.
    """
    rows = max((one.steps for one in training), key=_median_step_s, default=[])
    ends = [step[-1].ended_ns for step in rounds(rows) if step]
    taken = [(b - a) / 1e9 for a, b in pairwise(ends)]
    width = max(1, -(-len(taken) // _MOST_POINTS))
    return tuple(
        statistics.median(taken[start : start + width]) for start in range(0, len(taken), width)
    )


def _median_step_s(rows: Sequence[StepRow]) -> float:
    times = step_times(rows)
    return 0.0 if times is None else times.step_s


def peak_bytes(training: Sequence[RankEvents]) -> float | None:
    """Most that one process held; None where none said it."""
    held = [one.last("memory").get("reserved_bytes") for one in training]
    return max((float(value) for value in held if isinstance(value, int)), default=None)


def _ledger(
    expectation: Expectation | None,
    steps: StepTimes | None,
    elapsed_s: float,
    peak: float | None,
    billed_usd: float | None,
) -> tuple[LedgerLine, ...]:
    e = expectation or Expectation(source="")
    cost = None if e.usd_per_hour is None else e.usd_per_hour * elapsed_s / 3600
    measured_s = None if steps is None else steps.step_s
    lines = (
        LedgerLine(name="step", unit="s", predicted=e.step_s, measured=measured_s),
        LedgerLine(name="time", unit="s", predicted=e.time_s, measured=elapsed_s),
        LedgerLine(name="memory", unit="bytes", predicted=e.memory_bytes, measured=peak),
        LedgerLine(name="cost", unit="usd", predicted=e.cost_usd, measured=cost, billed=billed_usd),
    )
    return tuple(one for one in lines if (one.predicted, one.measured, one.billed) != (None,) * 3)


def _differences(
    ledger: Sequence[LedgerLine], steps: StepTimes | None, crowded: float | None
) -> list[str]:
    found = []
    for line in ledger:
        if line.name == "step" and line.is_outside and line.predicted and line.measured:
            pace = pace_text(line.measured / line.predicted.mid)
            found.append(f"a step is {pace}, outside its interval")
    if crowded is not None and crowded > _NOTABLE_FRAC:
        found.append(
            f"the training thread stood {crowded:.0%} of its time in line for a core: other "
            "programs, or more threads than cores"
        )
    if steps is not None and steps.mean_s > 0:
        waiting = steps.wait_s / steps.mean_s
        if waiting > _NOTABLE_FRAC:
            found.append(f"waiting for input takes {waiting:.0%} of a step")
        if steps.mean_s > (1 + _NOTABLE_FRAC) * steps.step_s:
            times = steps.mean_s / steps.step_s
            found.append(
                f"some steps are long: their mean is {times:,.3g} times their median "
                "(saves, evaluation, epochs that begin, a crowded machine)"
            )
    return found


def _crowded(training: Sequence[RankEvents]) -> float | None:
    return max((one.crowded_frac or 0.0 for one in training), default=None)


def _device(training: Sequence[RankEvents]) -> str:
    facts = training[0].last("device") if training else {}
    return str(facts.get("name") or facts.get("kind") or "")


def _failure(ranks: Sequence[RankEvents]) -> str:
    failed = [one for one in ranks if "failure" in one.events]
    if not failed:
        return ""
    first = failed[0]
    event = first.events["failure"][0]
    message = str(event.get("message", "")).partition("\n")[0][:200]
    return f"rank {first.rank}: {event.get('kind', '')}: {message}"


def _elapsed_s(run: Run) -> float:
    try:
        began = datetime.fromisoformat(run.started_at)
        ended = datetime.fromisoformat(run.ended_at) if run.ended_at else datetime.now(UTC)
    except ValueError:
        return 0.0
    return max(0.0, (ended - began).total_seconds())
