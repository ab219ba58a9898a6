"""Sweeps that other machines measure, whose records come back into the store here.

A sweep is a run like any other, kept in a folder; the same call finds it there again.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from paceline.app.truth.handing_over import LaunchFile, hand_over
from paceline.app.truth.local_prediction import ledger_of_store
from paceline.app.truth.measured_models import measured_entry
from paceline.app.truth.measuring import MeasureRequest
from paceline.deployment.deploying import first_offers
from paceline.deployment.launch import RECORDS_VARIABLE
from paceline.errors import InvalidInputError, WorkerError
from paceline.measurements.ledger import LedgerRow
from paceline.measurements.records import Record
from paceline.measurements.store import FOLDER_VARIABLE as STORE_VARIABLE
from paceline.measurements.store import Store, default_store_folder, segment_paths
from paceline.planfile import PlanFile
from paceline.planning.goal.files import read_plan
from paceline.units import parse_count
from paceline.values import dataclass
from paceline.watch.elsewhere.engines import find_engine
from paceline.watch.elsewhere.submit import follow, printed_lines
from paceline.watch.folder import Run, new_run, runs_in
from paceline.writing import make_folder, whole_file, write_whole

#: What a sweep's folder holds: what it is of, until its records were brought here; its records.
_SWEEP, _BROUGHT, _RECORDS = "sweep.txt", "brought.txt", "records"
_OFFERS, _DEFAULT_OFFERS = "offers", "3"
#: Of a request, what belongs to this side.
_HERE = frozenset({"models", "store", "profile", "python"})
_PLAN_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Where sweeps run.

    Attributes:
        on: Such as ``slurm`` or ``ssh:me@gpu1``.
        settings: Facts of the target; of a plan also ``offers``, how many of the first are tried.
        directory: Folder there in which they run.
        runs: Folder of all runs; the user's own if None.
    """

    on: str
    settings: Mapping[str, str]
    directory: str | None
    runs: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """What one machine measures: ``text`` says it, the same in every call."""

    text: str
    command: tuple[str, ...]
    launch: LaunchFile | None
    settings: Mapping[str, str]


def plan_named(models: Sequence[str]) -> Path | None:
    """The plan file that stands in the place of models; None where models are named."""
    if len(models) == 1 and models[0].endswith(_PLAN_ENDINGS) and Path(models[0]).is_file():
        return Path(models[0])
    return None


def measure_elsewhere(
    request: MeasureRequest, there: Elsewhere, *, say: Callable[[str], None]
) -> tuple[LedgerRow, ...]:
    """Measure a sweep elsewhere, or that of a plan on each of its first offers.

    Raises:
        InvalidInputError: The engine refuses a job, or an option belongs to this machine.
        WorkerError: Not one record came back.
    """
    plan = plan_named(request.models)
    sweeps = _one(request, there) if plan is None else _of_plan(read_plan(plan), request, there)
    with Store(request.store or default_store_folder()) as store:
        store.check_writable()
        begun = [_running(sweep, there, say) for sweep in sweeps]
        runs = [_ended(run, say) for run in begun]
        found = [record for run in runs for record in _brought(run, store.folder, say)]
    if not any(record.kind == "step" for record in found):
        why = [line for run in runs for line in printed_lines(run)[-1:]]
        raise WorkerError(
            f"nothing was measured on {there.on}: {'; '.join(why) or 'it printed nothing'}",
            hint="name a Python there that has PyTorch and paceline with --python",
        )
    return ledger_of_store(found)


def _one(request: MeasureRequest, there: Elsewhere) -> tuple[_Sweep, ...]:
    """What was typed, as a command for the other side.

    Raises:
        InvalidInputError: Something is to be written into a folder of this side.
    """
    if request.profile is not None:
        raise InvalidInputError(
            "`--profile` says nothing of a sweep elsewhere: its folder is here",
            hint="give it to `paceline measure` there",
        )
    shares = find_engine(there.on).shares_folder
    python = request.python or (sys.executable if shares else "python3")
    entries = [measured_entry(model) for model in request.models]
    words = (*entries, *_options(request), "--output", os.devnull)
    command = (python, "-m", "paceline", "measure", *words)
    sweep = _Sweep(
        text=_text(there, command), command=command, launch=None, settings=there.settings
    )
    return (sweep,)


def _options(request: MeasureRequest) -> Iterator[str]:
    """The options of a request that are not as they are without, as typed."""
    for one in fields(MeasureRequest):
        value = getattr(request, one.name)
        if one.name in _HERE or value == one.default:
            continue
        yield f"--{one.name.replace('_', '-')}"
        if value is None:
            yield "max"
        elif isinstance(value, tuple):
            yield ",".join(map(str, value))
        elif value is not True:
            yield str(value)


def _of_plan(plan: PlanFile, request: MeasureRequest, there: Elsewhere) -> tuple[_Sweep, ...]:
    """A sweep around the choice of each of a plan's first offers, by its own launch file.

    Raises:
        InvalidInputError: The request says more than the plan.
    """
    given = [*_options(request), *(["--python"] if request.python else [])]
    if given:
        raise InvalidInputError(
            f"`{given[0]}` says nothing of a plan's sweep, which is around its own choice",
            hint="name the model in the place of the plan",
        )
    settings = dict(there.settings)
    num_offers = int(parse_count(settings.pop(_OFFERS, _DEFAULT_OFFERS)))
    return tuple(
        _Sweep(
            text=_text(there, (plan.choices[index].place.offer, plan.created_on, str(index))),
            command=("paceline", "measure", plan.workload.model),
            launch=LaunchFile(plan, index + 1, "measure"),
            settings=settings,
        )
        for index in first_offers(plan, num_offers)
    )


def _text(there: Elsewhere, words: Sequence[str]) -> str:
    settings = (f"{name}={value}" for name, value in sorted(there.settings.items()))
    return shlex.join([there.on, there.directory or "", *settings, *words])


def _running(sweep: _Sweep, there: Elsewhere, say: Callable[[str], None]) -> Run:
    """The run of a sweep: one that was begun and not brought back, or a new one."""
    for run in runs_in(there.runs):
        if run.state != "unknown" and _sweep_of(run) == sweep.text:
            say(f"run {run.id} · {there.on} job {run.job} goes on from before")
            return run
    own = new_run(sweep.command, folder=there.runs)
    write_whole(own.folder / _SWEEP, sweep.text)
    run = hand_over(
        own, there.on, launch=sweep.launch, settings=sweep.settings, variables={},
        directory=there.directory,
        paths=dict.fromkeys((STORE_VARIABLE, RECORDS_VARIABLE), _RECORDS),
    )  # fmt: skip
    say(f"run {run.id} · {there.on} job {run.job} · the same command finds it again")
    return run


def _sweep_of(run: Run) -> str | None:
    try:
        return (run.folder / _SWEEP).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _ended(run: Run, say: Callable[[str], None]) -> Run:
    """The run at its end, what it prints being said as it comes."""
    num_said = 0

    def look(found: Run) -> None:
        """Print the lines that are new since the last look."""
        nonlocal num_said
        lines = printed_lines(found)
        for line in lines[num_said:]:
            say(f"  {line}")
        num_said = max(num_said, len(lines))

    try:
        return follow(run, look, say)
    except KeyboardInterrupt:
        say(f"run {run.id} goes on there; the same command brings its records")
        raise


def _brought(run: Run, store: Path, say: Callable[[str], None]) -> tuple[Record, ...]:
    """The records of a run that has ended, once they are in the store here."""
    records = Store(run.folder / _RECORDS).read().records
    make_folder(store)
    for path in segment_paths(run.folder / _RECORDS):
        with whole_file(store / path.name) as draft:
            shutil.copyfile(path, draft)
    (run.folder / _SWEEP).replace(run.folder / _BROUGHT)
    if run.status and records:
        say(f"run {run.id} ended with status {run.status}; what it measured is kept")
    return records
