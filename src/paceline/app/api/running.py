"""The public functions that run a command of the user's, watched beside its prediction."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.planfile import PlanFile
from paceline.watch.command import command_words, start, wait
from paceline.watch.events import RunEvents, read_run
from paceline.watch.expected import Expectation, expected_of_plan
from paceline.watch.folder import Run, find_run, new_run, runs_in
from paceline.watch.verdict import RunSummary, summarise

Say = Callable[[str], None]
#: How long `runs_stop` waits for the end, and how often it and `runs_follow` look.
_PATIENCE_S, _LOOK_S = 10.0, 0.5


def run(
    command: Sequence[str],
    *,
    plan: PlanFile | Path | None = None,
    choice: int = 1,
    runs: Path | None = None,
    on_notice: Say | None = None,
) -> RunSummary:
    """Run a training command unchanged, and watch it beside its prediction.

    Its output, exit status and signals are its own; the summary's ``status`` is the exit status, or
    minus the signal that ended it.

    Args:
        command: Words of the command, such as ``["python", "train.py"]``.
        plan: What it should do: from `plan` or `read_plan`, or a file; nothing is expected if None.
        choice: Which choice of the plan, 1 being the first.
        runs: Folder of all runs; the user's own if None.
        on_notice: Called with each line that the watcher says; silent if None.

    Raises:
        InvalidInputError: No such program, plan or choice.
    """
    expectation = _expected(plan, choice)
    say = on_notice or (lambda _: None)
    started = start(new_run(command_words(command), folder=runs))
    say(f"run {started.run.id} · paceline runs follow {started.run.id} shows how it goes")
    events = RunEvents(started.run.folder)
    ended = wait(started, events.read_more)
    return summarise(ended, events, expectation=expectation)


def runs_list(*, runs: Path | None = None) -> tuple[Run, ...]:
    """The runs that were watched, the newest first.

    Args:
        runs: Folder of all runs; the user's own if None.
    """
    return runs_in(runs)


def runs_show(name: str | None = None, *, runs: Path | None = None) -> RunSummary:
    """A run beside its prediction, as far as it has got.

    Args:
        name: Of the run, or how that begins; the newest if None.
        runs: Folder of all runs; the user's own if None.

    Raises:
        UnknownNameError: No such run, or several.
        InvalidInputError: No run is kept.
    """
    return _summary(find_run(name, runs))


def runs_follow(name: str | None = None, *, runs: Path | None = None) -> Iterator[RunSummary]:
    """A run whenever it has got on, until it has ended; what comes last is its end.

    Args:
        name: Of the run, or how that begins; the newest if None.
        runs: Folder of all runs; the user's own if None.

    Raises:
        UnknownNameError: No such run, or several.
        InvalidInputError: No run is kept.
    """
    found, seen = find_run(name, runs), 0
    while found.is_alive:
        summary = _summary(found)
        if summary.steps is not None and summary.steps.num_steps > seen:
            seen = summary.steps.num_steps
            yield summary
        time.sleep(4 * _LOOK_S if seen else _LOOK_S)
        found = find_run(found.id, runs)
    yield _summary(found)


def runs_stop(name: str | None = None, *, runs: Path | None = None) -> Run:
    """End a run as a scheduler would: SIGTERM, so that a script that saves can save.

    Args:
        name: Of the run, or how that begins; the newest if None.
        runs: Folder of all runs; the user's own if None.

    Returns:
        The run as it is then; one that did not run is left as it is.

    Raises:
        UnknownNameError: No such run, or several.
        InvalidInputError: No run is kept, or it goes on 10 s later.
    """
    found = find_run(name, runs)
    if not found.is_alive or found.pid is None:
        return found
    os.kill(found.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + _PATIENCE_S
    while found.is_alive and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S / 5)
        found = find_run(found.id, runs)
    if found.is_alive:
        raise InvalidInputError(
            f"run {found.id} goes on {_PATIENCE_S:.0f} s after SIGTERM",
            hint=f"it may be saving; `kill -9 {found.pid}` ends it at once",
        )
    return found


def _summary(found: Run) -> RunSummary:
    return summarise(found, read_run(found.folder))


def _expected(plan: PlanFile | Path | None, choice: int) -> Expectation | None:
    if plan is None:
        return None
    if isinstance(plan, Path):
        from paceline.planning.goal.files import read_plan

        source, plan = str(plan), read_plan(plan)
    else:
        source = "the plan"
    if not 1 <= choice <= len(plan.choices):
        raise InvalidInputError(
            f"the plan has no choice {choice}", hint=f"it has 1 to {len(plan.choices)}"
        )
    return expected_of_plan(plan, choice=choice, source=source)
