"""``paceline run`` and ``paceline runs``: any training command, watched beside its prediction."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from paceline.app import options as common
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.output import Answer, Form, answer_of, say, terminal_width, to_json

if TYPE_CHECKING:
    from paceline.watch.verdict import RunSummary

_RunName = Annotated[
    str | None,
    Argument(metavar="RUN", help="Its name or how that begins; the newest run without."),
]
#: Where the verdict is written beside standard error, which it shares with the watched command.
VerdictFile = Annotated[
    Path | None, Option(help="Write the verdict to this file, too.", flags=("--output", "-o"))
]
_SPEAKER = "paceline: "


def register(app: Commands) -> None:
    """Add the verbs."""
    app.add_verb("run", run)
    group = app.add_group("runs", "The runs that were watched: list, show, follow, stop.")
    group.add_verb("list", runs_list)
    group.add_verb("show", runs_show)
    group.add_verb("follow", runs_follow)
    group.add_verb("stop", runs_stop)


def run(
    plan: Annotated[
        Path | None,
        Argument(metavar="PLAN", help="A plan file: what the command should do."),
    ] = None,
    command: Sequence[str] = (),
    choice: Annotated[int, Option(help="Which choice of the plan.")] = 1,
    steps: Annotated[
        int | None, Option(help="Optimizer steps of the whole job; the plan's without.")
    ] = None,
    deadline: Annotated[
        str | None, Option(metavar="24h", help="Say when it will end later after its start.")
    ] = None,
    budget: Annotated[
        str | None,
        Option(metavar="50usd", help="Say when it will cost more, at the price of the plan."),
    ] = None,
    stall_after: Annotated[
        str,
        Option(metavar="60s", help="Say where the ranks stand once none has moved for so long."),
    ] = "60s",
    stop_idle: Annotated[
        str | None,
        Option(metavar="10m", help="End it (SIGTERM) once its device did nothing for so long."),
    ] = None,
    facts: common.Facts = (),
    calibration: common.Calibration = None,
    quiet: Annotated[
        bool, Option(help="Say nothing: the run folder has it all.", flags=("--quiet", "-q"))
    ] = False,
    on: common.On = None,
    settings: common.SetThere = None,
    directory: common.FolderThere = None,
    detach: Annotated[bool, Option(help="Come back once it is submitted there.")] = False,
    runs: common.Runs = None,
    form: common.Format = "text",
    is_json: common.Json = False,
    output: VerdictFile = None,
) -> int:
    """Run a training command unchanged and watch it: paceline run [PLAN] -- python train.py.

    Without PLAN its model, batch, optimizer and precision are read out of its first step, and
    predicted for the device it runs on. The command's output, exit status and signals are its
    own, and it goes on if the watcher is killed. With --on another machine runs it, by the launch
    file of the plan, and this one may sleep meanwhile. Lines of the watcher go to standard error;
    the verdict there is JSON with --json.
    """
    from paceline.app.api.running import run as run_command
    from paceline.app.options import pairs

    wanted = common.form_of(form, is_json=is_json)
    told = _silent if quiet else tell
    summary = run_command(
        command, plan=plan, choice=choice, steps=steps, deadline=deadline, budget=budget,
        stall_after=stall_after, stop_idle=stop_idle, facts=facts,
        calibration=calibration, runs=runs,
        on=on, settings=pairs(settings or []), directory=directory, detach=detach, on_notice=told,
    )  # fmt: skip
    return end_with_verdict(summary, wanted, output, quiet=quiet)


@common.answers
def runs_list(runs: common.Runs = None) -> Answer:
    """List the runs that were watched, the newest first."""
    from paceline.app.api.running import runs_list as list_runs
    from paceline.reporting.screens.runs import runs_table
    from paceline.watch.folder import runs_folder

    found = list_runs(runs=runs)
    none = f"no run in {runs or runs_folder()}\nnext: paceline run -- python train.py"
    return answer_of("runs", found, runs_table(found) if found else none)


@common.answers
def runs_show(
    name: _RunName = None,
    billed: Annotated[
        str | None,
        Option(metavar="4.17usd", help="What the invoice says; it is kept with the run."),
    ] = None,
    runs: common.Runs = None,
) -> Answer:
    """Show a run beside its prediction: predicted, measured, billed."""
    from paceline.app.api.running import runs_show as show_run

    return _shown(show_run(name, billed=billed, runs=runs))


def runs_follow(
    name: _RunName = None, runs: common.Runs = None, is_json: common.Json = False
) -> None:
    """Follow a run until it ends: a line whenever it has got on."""
    from paceline.app.api.running import runs_follow as follow_run
    from paceline.reporting.screens.runs import steps_line, verdict_lines

    for summary in follow_run(name, runs=runs):
        if is_json:
            print(to_json(summary, kind="run"), flush=True)
        elif summary.state == "running":
            print(steps_line(summary), flush=True)
        else:
            print("\n".join(verdict_lines(summary)))


@common.answers
def runs_stop(name: _RunName = None, runs: common.Runs = None) -> Answer:
    """End a run as a scheduler would: SIGTERM, so that a script that saves can save."""
    from paceline.app.api.running import runs_stop as stop_run
    from paceline.reporting.screens.runs import state_text

    found = stop_run(name, runs=runs)
    said = f"run {found.id} runs no more: {state_text(found.state, found.status)}"
    return answer_of("run_stopped", found, said)


def _shown(summary: RunSummary) -> Answer:
    from paceline.reporting.screens.runs import ledger_table, summary_lines

    return answer_of("run", summary, tuple(summary_lines(summary)), ledger_table(summary))


def end_with_verdict(
    summary: RunSummary, wanted: Form, output: Path | None, *, quiet: bool = False
) -> int:
    """Say how a watched command ended, on standard error, and end as it did.

    Args:
        summary: What was watched.
        wanted: As JSON, or as lines of the watcher.
        output: A file that has the verdict, too, in that form; none if None.
        quiet: Say nothing: the file and the run folder have it.

    Returns:
        The command's exit status.
    """
    from paceline.reporting.screens.runs import verdict_lines
    from paceline.watch.command import end_like

    if output is not None:
        say(_shown(summary), wanted, output)
    if wanted == "json" and not quiet:
        print(to_json(summary, kind="run"), file=sys.stderr)
    elif not quiet:
        for line in verdict_lines(summary):
            tell(line)
    return end_like(summary.status or 0)


def tell(line: str) -> None:
    """Say a line of the watcher, on standard error: folded on a terminal, whole in a file."""
    from paceline.reporting.texts import folded

    if sys.stderr.isatty():
        line = folded(line, terminal_width() - len(_SPEAKER))
    for part in line.splitlines():
        print(f"{_SPEAKER}{part}", file=sys.stderr, flush=True)


def _silent(_line: str) -> None:
    pass
