"""Watched runs, and what slows a script, as text and tables."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from paceline.planfile import Interval
from paceline.reporting.tables import Table, header
from paceline.units import format_bytes, format_count, format_duration, format_percent, format_usd
from paceline.watch.diagnosis.causes import Cause
from paceline.watch.diagnosis.diagnosing import Diagnosis
from paceline.watch.diagnosis.gpu_steps import GpuStep
from paceline.watch.folder import Run
from paceline.watch.steps import StepTimes
from paceline.watch.verdict import LedgerLine, RunSummary

_FORMATS: Mapping[str, Callable[[float], str]] = {
    "s": format_duration,
    "bytes": format_bytes,
    "usd": format_usd,
}
_UNITS = {"usd": " USD"}
_NOTHING_SEEN = "no step of PyTorch or Keras was seen in it"


def runs_table(runs: Sequence[Run]) -> Table:
    """One line per run."""
    return Table(
        columns=header("run | state | started (UTC) -1 | command ~20"),
        rows=tuple(
            (
                run.id,
                state_text(run.state, run.status),
                run.started_at[:16],
                shlex.join(run.command),
            )
            for run in runs
        ),
    )


def ledger_table(summary: RunSummary) -> Table:
    """Predicted, measured and billed, a line per figure."""
    return Table(
        columns=header(" | predicted > | interval > -1 | measured > | billed >"),
        rows=tuple(_ledger_cells(line) for line in summary.ledger),
    )


def summary_lines(summary: RunSummary) -> Iterator[str]:
    """What is known of a run, beside its ledger."""
    yield f"run {summary.id} · {state_text(summary.state, summary.status)} · " + shlex.join(
        summary.command
    )
    if summary.job:
        yield job_line(summary)
    if summary.steps is not None:
        yield steps_line(summary)
    elif summary.num_ranks == 0:
        yield _NOTHING_SEEN
    if summary.source:
        yield f"predicted from {summary.source}"
    elif summary.why_unpredicted:
        yield f"not predicted: {summary.why_unpredicted}"
    yield from summary.differences
    yield from summary.notices
    if summary.failure:
        yield f"it failed: {summary.failure}"
    if summary.num_damaged:
        yield f"{summary.num_damaged} lines of the run folder could not be read"
    yield from (f"the observer ended itself: {trouble}" for trouble in summary.troubles)


def job_line(summary: RunSummary) -> str:
    """What was read out of the script."""
    return " · ".join(f"{name} {value}".strip() for name, value in summary.job.items())


def steps_line(summary: RunSummary) -> str:
    """How many steps, how long, and of what."""
    steps = summary.steps
    assert steps is not None
    ranks = f"{summary.num_ranks} ranks · " if summary.num_ranks > 1 else ""
    where = f" on {summary.device}" if summary.device else ""
    spread = f"{format_duration(steps.low_s)} to {format_duration(steps.high_s)}"
    return (
        f"{ranks}{steps.num_steps:,} steps of {format_duration(steps.step_s)} "
        f"(half of them {spread}){where} · {parts_text(steps)}"
    )


def parts_text(steps: StepTimes) -> str:
    """Shares of a mean step."""
    parts = {
        "input": steps.wait_s,
        "forward": steps.forward_s,
        "backward" if steps.update_s else "backward and optimizer": steps.backward_s,
        "optimizer": steps.update_s,
        "rest" if steps.forward_s else "forward and rest": steps.rest_s,
    }
    shown = {name: value for name, value in parts.items() if value > 0}
    whole = max(steps.mean_s, 1e-12)
    return ", ".join(f"{name} {format_percent(value / whole)}" for name, value in shown.items())


def verdict_lines(summary: RunSummary) -> Iterator[str]:
    """What the watcher says at the end: two lines, and what differs."""
    words = [state_text(summary.state, summary.status), *map(_beside, summary.ledger)]
    if summary.steps is not None:
        words[1:1] = [f"{summary.steps.num_steps:,} steps"]
        words.append(parts_text(summary.steps))
    yield " · ".join(words)
    if summary.num_ranks == 0:
        yield f"  {_NOTHING_SEEN}"
    yield from (f"  {one}" for one in summary.differences)
    yield f"  kept as run {summary.id} · next: paceline runs show {summary.id}"


def _beside(line: LedgerLine) -> str:
    """A figure with its prediction in brackets."""
    text = f"{line.name} {_value(line.measured, line.unit) or 'unknown'}"
    if line.predicted is None:
        return text
    return f"{text} (predicted {_value(line.predicted.mid, line.unit)})"


def _ledger_cells(line: LedgerLine) -> tuple[str, ...]:
    predicted = line.predicted
    return (
        line.name,
        "" if predicted is None else _value(predicted.mid, line.unit),
        "" if predicted is None else _interval(predicted, line.unit),
        _value(line.measured, line.unit),
        _value(line.billed, line.unit),
    )


def _interval(interval: Interval, unit: str) -> str:
    return f"{_value(interval.low, unit)} to {_value(interval.high, unit)}"


def _value(value: float | None, unit: str) -> str:
    return "" if value is None else _FORMATS[unit](value) + _UNITS.get(unit, "")


def state_text(state: str, status: int | None) -> str:
    """How a run stands, with the exit status or the signal that ended it."""
    if state != "failed" or status is None:
        return state
    return f"failed (status {status})" if status > 0 else f"ended by signal {-status}"


def diagnosis_lines(found: Diagnosis) -> Iterator[str]:
    """What a step takes, and of what."""
    job = " · ".join(f"{name} {value}".strip() for name, value in found.job.items())
    tried = f"tried for {format_duration(found.seconds, 2)}, then ended"
    yield " · ".join(filter(None, (job, tried)))
    yield _kept(found)
    step = found.step_s.mid
    yield f"a step takes {format_duration(step)}" + _by_the_clock(found)
    if found.device_s is not None:
        waits_s = max(0.0, step - found.device_s)
        rate = found.loader_batches_per_s
        says = (
            ""
            if rate is None
            else f"   the loader alone delivers {format_count(rate)} batches a second"
        )
        yield _part("waiting for input", waits_s, step) + says
        yield _part("the rest", step - waits_s, step) + "   with its batch there already"
    if found.gpu is not None:
        yield _gpu_line(found.gpu)
    if found.crowd is not None and found.is_crowded:
        crowd = found.crowd
        yield (
            f"the machine is crowded: other programs use {crowd.others_cores:.1f} of "
            f"{crowd.num_cores} cores, and the training thread stands "
            f"{format_percent(crowd.stood_frac)} of its time in line; the figures leave that out, "
            "and are less sure for it"
        )
    if not found.is_whole:
        yield "the script ended before everything was tried: what follows is part of it"


def _gpu_line(gpu: GpuStep) -> str:
    parts = {
        "computes": gpu.compute_s, "waits for other GPUs": gpu.communication_s,
        "copies": gpu.copies_s, "is idle": gpu.idle_s,
    }  # fmt: skip
    shares = (f"{name} {format_percent(one / gpu.step_s)}" for name, one in parts.items() if one)
    return f"  of three profiled steps its GPU {', '.join(shares)}"


def _kept(found: Diagnosis) -> str:
    saves = f"{found.num_saves} saves" if found.num_saves else "what it wrote"
    return f"nothing was saved: {saves} went into a folder that is deleted"


def _by_the_clock(found: Diagnosis) -> str:
    if found.wall_s < 1.05 * found.step_s.mid:
        return ""
    return f" ({format_duration(found.wall_s)} by the clock, with the time in line for a core)"


def _part(name: str, part_s: float, step_s: float) -> str:
    return f"  {name:<18}{format_duration(part_s):>9}{format_percent(part_s / step_s):>6}"


def causes_table(found: Diagnosis) -> Table:
    """What would help, a line per cause."""
    return Table(
        columns=header(" > | what would help ~24 | step > | gain > | known by"),
        rows=tuple(_row(number, one) for number, one in enumerate(found.causes, 1)),
    )


def _row(number: int, cause: Cause) -> tuple[str, ...]:
    step = f"{format_duration(cause.step_s.low)} to {format_duration(cause.step_s.high)}"
    known = cause.known_by + (", changes training" if cause.changes_training else "")
    return (str(number), cause.remedy, step, f"{cause.gain:.2f} ×", known)


def last_lines(found: Diagnosis) -> Iterator[str]:
    """Why, what does not help, and what to do next."""
    if not found.causes:
        yield "nothing that was tried would make it faster"
    yield from (f"{number}  {one.text}" for number, one in enumerate(found.causes, 1))
    if found.without_gain:
        yield "no gain: " + " · ".join(found.without_gain)
    if found.failed:
        yield "the script ends when this is tried: " + ", ".join(found.failed)
    yield from found.elsewhere
    first = "change the first, then " if found.causes else ""
    yield f"next: {first}paceline run -- {' '.join(found.command)}"
