"""Run a script up to its first optimizer step, for its job alone."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from paceline.errors import InvalidInputError, WorkerError
from paceline.model.graph.store import save_workload
from paceline.model.reading.worker import WORKERS
from paceline.values import dataclass
from paceline.watch.captured import CAPTURE_FILE, MODEL_FILE, CapturedJob, read_capture, workload_of
from paceline.watch.command import command_words
from paceline.watch.folder import Run, new_run, now, write_end
from paceline.watch.throwaway import end_throwaway, failed_before, start_throwaway

#: Where the observer finds the code that traces.
WORKERS_VARIABLE = "PACELINE_TRACE_WORKERS"
_ONLY_VARIABLE = "PACELINE_CAPTURE_ONLY"
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """What a script does, read out of its first step.

    Attributes:
        run: Folder that it is kept in.
        model: File of the traced model.
    """

    run: Run
    job: CapturedJob
    model: Path


def tracing_settings() -> Mapping[str, str]:
    """Settings by which the observer can trace what it sees."""
    return {WORKERS_VARIABLE: str(WORKERS)}


def capture(
    command: Sequence[str], *, folder: Path | None = None, timeout_s: float = 600.0
) -> ScriptJob:
    """The job of a script; the script is ended after its first optimizer step.

    What it writes goes to a file of the run folder.

    Args:
        command: Words of the command.
        folder: Of all runs; the user's own if None.
        timeout_s: When to give up.

    Raises:
        InvalidInputError: No such program, or no step of an optimizer of PyTorch was seen.
        WorkerError: The script failed before its first step.
    """
    run = new_run(command_words(command), folder=folder)
    status = _run_to_first_step(run, timeout_s)
    job, report = read_capture(run.folder)
    if job is None:
        raise _nothing_seen(run, status, timeout_s)
    path = run.folder / MODEL_FILE
    save_workload(workload_of(job, report, name=job.model), path)
    return ScriptJob(run=run, job=job, model=path)


def _run_to_first_step(run: Run, timeout_s: float) -> int | None:
    """Exit status; None where it was ended because its job is known, or took too long."""
    settings = {**tracing_settings(), _ONLY_VARIABLE: "1"}
    process = start_throwaway(run, settings)
    try:
        status = _first(process, run.folder / CAPTURE_FILE, timeout_s)
    finally:
        end_throwaway(process)
        write_end(replace(run, status=0, ended_at=now()))
    return status


def _first(process: subprocess.Popen[bytes], capture_file: Path, timeout_s: float) -> int | None:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        status = process.poll()
        if status is not None or capture_file.exists():
            return status
        time.sleep(_POLL_S)
    return None


def _nothing_seen(
    run: Run, status: int | None, timeout_s: float
) -> InvalidInputError | WorkerError:
    if status:
        return failed_before(run, status, "its first optimizer step")
    what = "ended" if status == 0 else f"ran for {timeout_s:g} s"
    return InvalidInputError(
        f"the command {what} without a step of an optimizer of PyTorch",
        hint="is it a training script? its Python must see PYTHONPATH: not `python -I`, and not "
        "inside a container",
    )
