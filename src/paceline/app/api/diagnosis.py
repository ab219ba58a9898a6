"""The public function that tries things in a training script and says what slows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from paceline.errors import InvalidInputError, PacelineError
from paceline.units import format_duration, parse_duration_s
from paceline.watch.captured import MODEL_FILE, CapturedJob, read_capture, workload_of
from paceline.watch.command import command_words
from paceline.watch.diagnosis.diagnosing import Diagnosis, diagnosis_of, try_in_script
from paceline.watch.folder import Run, new_run

#: Trials shorter than this say nothing.
_LEAST_LIMIT_S = 5.0


def diagnose(
    command: Sequence[str],
    *,
    limit: str = "90s",
    device: str | None = None,
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
    runs: Path | None = None,
    on_notice: Callable[[str], object] | None = None,
) -> Diagnosis:
    """Say what slows a training script, by experiments inside it; nothing of it is edited or saved.

    The script is started as a throwaway: after a few steps one batch is replayed, its loader is
    emptied by itself, other settings are tried between steps, and it is ended.

    Args:
        command: Words of the command, such as ``["python", "train.py"]``.
        limit: About how long things are tried, after the first steps.
        device: Other devices for which the same script is predicted, such as ``"a100,4090"``; the
            best single one of the catalogue's offers if None.
        facts: Files with your own devices and offers.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        runs: Folder of all runs; the user's own if None.
        on_notice: Called with each line that is said meanwhile; silent if None.

    Raises:
        InvalidInputError: No such program, or it takes too few steps.
        WorkerError: The script fails by itself.
    """
    limit_s = parse_duration_s(limit)
    if limit_s < _LEAST_LIMIT_S:
        raise InvalidInputError(
            f"{limit} is too short to try anything",
            hint=f"--limit takes {_LEAST_LIMIT_S:g}s or more; 90s does for steps of 100 ms",
        )
    run = new_run(command_words(command, verb="diagnose"), folder=runs)
    say = on_notice or (lambda _: None)
    say(f"run {run.id}: what the script prints goes to {run.folder}/output.txt")
    found, failed = try_in_script(run, limit_s=limit_s, say=say)
    elsewhere = _elsewhere(run, device, facts, calibration)
    return replace(diagnosis_of(run, found, failed), elsewhere=elsewhere)


def _elsewhere(
    run: Run, devices: str | None, facts: Sequence[Path], calibration: Path | None
) -> tuple[str, ...]:
    """What the same script would do on other offers; why not, where that cannot be said."""
    from paceline.model.graph.store import save_workload

    job, report = read_capture(run.folder)
    if job is None:
        return ("elsewhere: not predicted, for its model was not found in its first steps",)
    try:
        path = run.folder / MODEL_FILE
        save_workload(workload_of(job, report, name=job.model), path)
        wanted: Sequence[str | None] = (None,) if devices is None else devices.split(",")
        return tuple(_on_offer(job, path, one, facts, calibration) for one in wanted)
    except PacelineError as error:
        return (f"elsewhere: not predicted, for {error}",)


def _on_offer(
    job: CapturedJob, model: Path, device: str | None, facts: Sequence[Path],
    calibration: Path | None,
) -> str:  # fmt: skip
    from paceline.app.api.planning import plan

    if not job.precision:
        raise InvalidInputError(
            f"it runs in a precision that cannot be predicted: {job.precision_note}",
            hint="paceline predict --precision fp32 -- CMD",
        )
    items = job.batch * job.microbatches * job.world_size
    named = {} if device is None else {"device": device}
    found = plan(
        str(model), seq=job.seq, facts=facts, calibration=calibration, precision=job.precision,
        compiler=job.compiler, rewrite=job.rewrite, global_batch=str(items), max_devices="1",
        **named,  # type: ignore[arg-type]
    ).choices[0]  # fmt: skip
    step, place = found.step_s, found.place
    price = f", {place.usd_per_hour:.2f} USD an hour" if place.usd_per_hour else ""
    return (
        f"the same script on one {place.device} ({place.cloud}{price}): "
        f"{format_duration(step.mid)} a step ({format_duration(step.low)} to "
        f"{format_duration(step.high)}) predicted, input not counted"
    )
