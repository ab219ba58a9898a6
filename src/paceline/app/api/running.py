"""The public functions that run a command of the user's, watched beside its prediction."""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from paceline.app.options import check_above_zero
from paceline.app.requests.words import check_choice
from paceline.errors import InvalidInputError
from paceline.planfile import PlanFile
from paceline.units import parse_duration_s, parse_usd
from paceline.values import dataclass
from paceline.watch.capturing import tracing_settings
from paceline.watch.command import Started, choice_setting, command_words, running, wait
from paceline.watch.elsewhere.documents import check_facts
from paceline.watch.elsewhere.submit import check_program, follow, last_lines, look_at
from paceline.watch.elsewhere.submit import stop as stop_elsewhere
from paceline.watch.events import RunEvents
from paceline.watch.expected import Expectation, expected_of_plan
from paceline.watch.folder import Run, find_run, new_run, runs_in, write_billed
from paceline.watch.guards import Limits
from paceline.watch.verdict import RunSummary, step_course_s
from paceline.watch.watcher import IdleWatch, Watcher, summary_of

Say = Callable[[str], None]
#: How long `runs_stop` waits for the end, and how often it and `runs_follow` look.
_PATIENCE_S, _LOOK_S = 10.0, 0.5
#: The same where another machine has to be asked.
_PATIENCE_ELSEWHERE_S = 45.0
#: So many looks in a row may find nobody to ask before a run is followed no more.
_MOST_FAILED_LOOKS = 10


def run(
    command: Sequence[str],
    *,
    plan: PlanFile | Path | None = None,
    choice: int = 1,
    steps: int | None = None,
    deadline: str | None = None,
    budget: str | None = None,
    stall_after: str = "60s",
    stop_idle: str | None = None,
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
    runs: Path | None = None,
    on: str | None = None,
    settings: Mapping[str, str] | None = None,
    directory: str | None = None,
    detach: bool = False,
    on_notice: Say | None = None,
) -> RunSummary:
    """Run a training command unchanged, and watch it beside its prediction.

    Its output, exit status and signals are its own; the summary's ``status`` is the exit status, or
    minus the signal that ended it.

    Args:
        command: Words of the command, such as ``["python", "train.py"]``.
        plan: What it should do: from `plan` or `read_plan`, or a file; the script's own job, read
            out of its first step, predicted for the device it runs on, if None.
        choice: Which choice of the plan, 1 being the first.
        steps: Optimizer steps of the whole job; those of the plan if None.
        deadline: Say when it will end later than so long after its start.
        budget: Say when it will cost more; the plan has the price.
        stall_after: Say where the ranks stand once none has moved for so long.
        stop_idle: End it (SIGTERM) once its device has done nothing for so long; never if None.
        facts: Files with your own devices.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        runs: Folder of all runs; the user's own if None.
        on: What runs it elsewhere, such as ``"slurm"`` or ``"ssh:HOST"``; this machine if None.
        settings: Facts of the launch file there, as `deploy` takes them, or of a plain task.
        directory: Folder there in which the command runs; this one where it is shared, else the
            home folder there.
        detach: Return once it is submitted there.
        on_notice: Called with each line that the watcher says; silent if None.

    Raises:
        InvalidInputError: No such program, plan, choice or engine.
    """
    from paceline.app.truth.script_expectation import expect_here

    check_above_zero(steps=steps)
    limits = _limits(stall_after, stop_idle, deadline, budget, steps)
    check_elsewhere(on, settings, directory, has_plan=plan is not None, is_detached=detach)
    _check_idle(on, stop_idle)
    chosen = _chosen(plan, choice)
    expectation = (
        None
        if chosen is None
        else expected_of_plan(chosen.plan, choice=choice, source=chosen.source)
    )
    _check_limits(limits, expectation)
    say = on_notice or (lambda _: None)
    own = new_run(command_words(command), folder=runs)
    choose = _choice_setting(chosen, choice)
    expect = partial(expect_here, folder=own.folder, facts=facts, calibration=calibration)
    watch = partial(Watcher, expect=expect, say=say, expectation=expectation, limits=limits)
    if on is None:
        with running(own, more={**tracing_settings(), **choose}) as started:
            _begin(own.id, say)
            watcher = watch(started.run, idle_watch=_idle_watch(started, limits))
            look = partial(_look, watcher, started)
            return watcher.summary(wait(started, look, watcher.hear_signal))
    from paceline.app.truth.handing_over import LaunchFile, hand_over

    launch = None if chosen is None else LaunchFile(chosen.plan, choice)
    submitted = hand_over(own, on, launch=launch, settings=settings or {}, variables=choose,
                          directory=directory)  # fmt: skip
    say(f"run {own.id} · {on} job {submitted.job} · paceline runs follow {own.id}")
    watcher = watch(submitted)
    return watcher.summary(submitted if detach else _watched(submitted, watcher, say))


def _limits(
    stall_after: str, stop_idle: str | None, deadline: str | None, budget: str | None,
    steps: int | None,
) -> Limits:  # fmt: skip
    return Limits(
        stall_s=parse_duration_s(stall_after),
        idle_s=None if stop_idle is None else parse_duration_s(stop_idle),
        deadline_s=None if deadline is None else parse_duration_s(deadline),
        budget_usd=None if budget is None else parse_usd(budget),
        num_steps=steps,
    )


def _check_idle(on: str | None, stop_idle: str | None) -> None:
    if on is not None and stop_idle is not None:
        raise InvalidInputError(
            "`--stop-idle` says nothing of a run elsewhere: its devices are not seen from here",
            hint="put it into the command there: `paceline run --stop-idle 10m -- CMD`",
        )


def _idle_watch(started: Started, limits: Limits) -> IdleWatch | None:
    """What tells of idle devices, where it is asked for."""
    if limits.idle_s is None:
        return None
    from paceline.execution.machine.nvml import open_nvml
    from paceline.execution.machine.sensors import Sensors

    nvml = open_nvml()
    gpus = () if nvml is None else range(len(nvml.gpus()))
    return IdleWatch(Sensors(nvml, gpus), started.process.pid)


def _begin(run: str, say: Say) -> None:
    """Name the run, and what is wrong with the GPUs here before its first step."""
    from paceline.catalog.load import load_catalog
    from paceline.execution.machine.doctor import diagnose_before_run
    from paceline.execution.machine.probe import probe_host, whole_gpu

    say(f"run {run} · paceline runs follow {run} shows how it goes")
    here = probe_host()
    device = whole_gpu(here.gpus, load_catalog().devices) if here.gpus else None
    for finding in diagnose_before_run(here, device):
        proof = "; ".join(finding.proof).replace("this machine", platform.node())
        say(f"{finding.cause}: {proof} ({finding.remedy})")


def _look(watcher: Watcher, started: Started) -> None:
    """Look at a run, and end it where it is to end."""
    was_to_end = watcher.is_to_end
    watcher.look()
    if watcher.is_to_end and not was_to_end:
        started.process.terminate()


def runs_list(*, runs: Path | None = None) -> tuple[Run, ...]:
    """The runs that were watched, the newest first.

    Args:
        runs: Folder of all runs; the user's own if None.
    """
    return runs_in(runs)


def runs_show(
    name: str | None = None, *, billed: str | None = None, runs: Path | None = None
) -> RunSummary:
    """A run beside its prediction, as far as it has got.

    Args:
        name: Of the run, or how that begins; the newest if None.
        billed: What the invoice says, such as ``"4.17usd"``; it is kept with the run.
        runs: Folder of all runs; the user's own if None.

    Raises:
        UnknownNameError: No such run, or several.
        InvalidInputError: No run is kept.
    """
    found = look_at(find_run(name, runs))
    if billed is not None:
        write_billed(found, parse_usd(billed))
    return _summary(found)


def run_progress(name: str, *, runs: Path | None = None) -> tuple[RunSummary, tuple[float, ...]]:
    """A run beside its prediction, and the time of its steps in their order, thinned out.

    Args:
        name: Of the run, or how that begins.
        runs: Folder of all runs; the user's own if None.

    Raises:
        UnknownNameError: No such run, or several.
        InvalidInputError: No run is kept.
    """
    found = find_run(name, runs)
    events = RunEvents(found.folder)
    events.read_more()
    return _summary(found), step_course_s(events.training)


def runs_follow(name: str | None = None, *, runs: Path | None = None) -> Iterator[RunSummary]:
    """A run whenever it has got on, until it has ended; what comes last is its end.

    Args:
        name: Of the run, or how that begins; the newest if None.
        runs: Folder of all runs; the user's own if None.

    Raises:
        UnknownNameError: No such run, or several.
        InvalidInputError: No run is kept, or where it runs cannot be asked for long.
    """
    found, seen, num_failed = look_at(find_run(name, runs)), 0, 0
    while found.is_alive:
        summary = _summary(found)
        if summary.steps is not None and summary.steps.num_steps > seen:
            seen = summary.steps.num_steps
            yield summary
        time.sleep(4 * _LOOK_S if seen else _LOOK_S)
        try:
            found, num_failed = look_at(find_run(found.id, runs)), 0
        except InvalidInputError:
            # A scheduler under load, or a network that is away for a while.
            num_failed += 1
            if num_failed == _MOST_FAILED_LOOKS:
                raise
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
    found = look_at(find_run(name, runs))
    if not found.is_alive or (found.pid is None and not found.on):
        return found
    if found.on:
        stop_elsewhere(found)
    elif found.pid is not None:
        os.kill(found.pid, signal.SIGTERM)
    deadline_s = time.monotonic() + (_PATIENCE_ELSEWHERE_S if found.on else _PATIENCE_S)
    while found.is_alive and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S if found.on else _LOOK_S / 5)
        found = look_at(find_run(found.id, runs))
    if found.is_alive and found.on:
        raise InvalidInputError(
            f"run {found.id} was told to stop at {found.on}, and goes on",
            hint="it may be saving; `paceline runs show` says when it has ended",
        )
    if found.is_alive:
        raise InvalidInputError(
            f"run {found.id} goes on {_PATIENCE_S:.0f} s after SIGTERM",
            hint=f"it may be saving; `kill -9 {found.pid}` ends it at once",
        )
    while found.state == "unknown" and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S / 5)  # Its watcher, if it has one, is about to write how it ended.
        found = find_run(found.id, runs)
    return found


def _watched(submitted: Run, watcher: Watcher, say: Say) -> Run:
    """Look at a run elsewhere until it ends; an interruption here leaves it alone."""
    found = submitted
    try:
        found = follow(found, lambda _: watcher.look(), say)
    except KeyboardInterrupt:
        say(f"run {found.id} goes on there · paceline runs follow|stop {found.id}")
    for line in last_lines(found):
        say(f"  {line}")
    return found


def check_elsewhere(
    on: str | None,
    settings: Mapping[str, str] | None,
    directory: str | None,
    *,
    has_plan: bool,
    is_detached: bool = False,
) -> None:
    """Refuse what says where a command runs elsewhere, and acts on nothing.

    Raises:
        InvalidInputError: It runs here, has no plan to fill in, or the engine's program is missing.
        MissingFactError: The engine must be told more.
    """
    told = [("--set", bool(settings)), ("--in", directory is not None), ("--detach", is_detached)]
    said = [name for name, is_there in told if is_there]
    if on is None and said:
        raise InvalidInputError(
            f"`{said[0]}` says nothing of a run on this machine", hint="it belongs to --on"
        )
    if on is not None:
        engine = check_program(on)
        if not has_plan and engine.document:
            check_facts(settings or {}, engine.facts, engine.name)
            return
    if settings and not has_plan:
        raise InvalidInputError(
            "`--set` says nothing without a plan", hint="its facts stand in the plan's launch file"
        )


def _summary(found: Run) -> RunSummary:
    return summary_of(found)


def _check_limits(limits: Limits, expectation: Expectation | None) -> None:
    """Refuse a limit that nothing can be held against, and steps without one."""
    price = None if expectation is None else expectation.usd_per_hour
    steps = limits.num_steps or (expectation.num_steps if expectation else None)
    has_limit = limits.deadline_s is not None or limits.budget_usd is not None
    if limits.budget_usd is not None and price is None:
        raise InvalidInputError(
            "`--budget` needs a price", hint="give a plan of a place that is paid by the hour"
        )
    name = "budget" if limits.deadline_s is None else "deadline"
    if has_limit and steps is None:
        raise InvalidInputError(
            f"`--{name}` needs the number of steps",
            hint="give --steps, or a plan that says how much is to be done",
        )
    if limits.num_steps is not None and not has_limit:
        raise InvalidInputError(
            "`--steps` says nothing without --deadline or --budget", hint="leave it out"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """A plan and where it came from."""

    plan: PlanFile
    source: str


def _chosen(plan: PlanFile | Path | None, choice: int) -> _Chosen | None:
    if plan is None:
        if choice != 1:
            raise InvalidInputError(f"no plan has a choice {choice}", hint="name the plan file")
        return None
    if isinstance(plan, Path):
        from paceline.planning.goal.files import read_plan

        source, plan = str(plan), read_plan(plan)
    else:
        source = "the plan"
    check_choice(plan, choice)
    return _Chosen(plan=plan, source=source)


def _choice_setting(chosen: _Chosen | None, choice: int) -> dict[str, str]:
    """What `paceline.loop` reads of a plan in the script's own processes; empty without one."""
    return {} if chosen is None else choice_setting(chosen.plan.choices[choice - 1])
