"""What a watched run teaches: its steps as records, for `calibrate --run`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from paceline.app.truth.calibrating import CalibrationSummary, DeviceCalibration
from paceline.app.truth.local_prediction import known_local_model, local_step_s
from paceline.errors import InvalidInputError, MissingFactError
from paceline.execution.conditions import fingerprint
from paceline.measurements.records import Record
from paceline.measurements.store import Store, default_store_folder
from paceline.model.graph.store import read_workload
from paceline.watch.captured import CHANNELS_FIRST, MODEL_FILE, CapturedJob, read_capture
from paceline.watch.events import RankEvents, read_run
from paceline.watch.folder import Run
from paceline.watch.steps import busy_times_s

#: Who measured.
SOURCE = "paceline run"
_FOLDER = "measurements"
#: Steps that are kept of a run, the last ones, and how many it must have.
_MOST_STEPS, _LEAST_STEPS = 200, 20
#: Share of its time in line for a core from which a run tells of its neighbours.
_CROWDED_FRAC = 0.1


def record_of_run(run: Run) -> Record:
    """The steps of a run as a record, without what they waited for input.

    Args:
        run: One that has ended, or goes on.

    Raises:
        InvalidInputError: It has too few steps, or one that a record cannot say.
    """
    job, _ = read_capture(run.folder)
    training = read_run(run.folder).training
    if job is None or not training:
        raise InvalidInputError(
            f"run {run.id} has no step of a model that was read out of its script",
            hint="`paceline runs show` says what was seen",
        )
    if job.microbatches > 1 or job.world_size > 1:
        raise InvalidInputError(
            f"run {run.id} accumulates or has several ranks: its steps say nothing of one batch "
            "on one device",
            hint="run it once with one rank and without accumulation",
        )
    samples_s = busy_times_s(training[0].steps)[-_MOST_STEPS:]
    if len(samples_s) < _LEAST_STEPS:
        raise InvalidInputError(
            f"run {run.id} has {len(samples_s)} steps after its first ones",
            hint=f"at least {_LEAST_STEPS} make a measurement",
        )
    crowded = training[0].crowded_frac
    if crowded is not None and crowded > _CROWDED_FRAC and is_on_cpu(run):
        raise InvalidInputError(
            f"run {run.id} stood {crowded:.0%} of its time in line for a core: it tells of the "
            "machine's other programs",
            hint="run it again when the machine is calm",
        )
    return _record(run, job, training[0], samples_s)


def _record(run: Run, job: CapturedJob, rank: RankEvents, samples_s: Sequence[float]) -> Record:
    device = rank.last("device")
    release = str(device.get("torch") or "")
    return Record(
        kind="step",
        outcome="ok",
        recorded_at=run.started_at,
        source=SOURCE,
        workload=str(run.folder / MODEL_FILE),
        task="train",
        device_name=str(device.get("name") or device.get("kind") or ""),
        framework="torch",
        framework_version=release or None,
        precision=job.precision or None,
        compiler=job.compiler,
        optimizer=job.optimizer or None,
        batch_per_device=job.batch,
        seq=job.seq,
        input_data="real",
        channels_last=False if CHANNELS_FIRST in job.rewrite else None,
        samples_s=tuple(samples_s),
        mode="step",
        machine=fingerprint(),
        num_threads=device.get("num_threads"),
        note=f"run {run.id}, without its waiting for input",
    )


def measurements_of(run: Run) -> Path:
    """A store in the run's folder that holds its one record, written when it is asked for.

    Raises:
        InvalidInputError: As of `record_of_run`.
    """
    record, folder = record_of_run(run), run.folder / _FOLDER
    for path in folder.glob("*.jsonl"):
        path.unlink()
    with Store(folder) as store:
        store.append(record)
    return folder


def is_on_cpu(run: Run) -> bool:
    """Whether a run trained on a CPU."""
    training = read_run(run.folder).training
    return bool(training) and training[0].last("device").get("kind") == "cpu"


def teach_this_cpu(run: Run) -> CalibrationSummary:
    """Keep a run's steps in the store that the model of this machine learns from.

    Raises:
        InvalidInputError: As of `record_of_run`, or it was kept before.
        MissingFactError: This CPU has no ceilings yet.
    """
    record = record_of_run(run)
    with Store(default_store_folder()) as store:
        if any(r.note == record.note and r.source == SOURCE for r in store.read().records):
            raise InvalidInputError(
                f"run {run.id} was learned from before", hint="watch another run"
            )
        before = _error_frac(store, record, run)
        store.append(record)
        after = _error_frac(store, record, run)
    one = DeviceCalibration(
        device=record.device_name, num_rows=1, num_workloads=1,
        time_factor=(1 + after) / (1 + before), error_before_frac=abs(before),
        error_after_frac=abs(after),
    )  # fmt: skip
    return CalibrationSummary(num_rows=1, num_used=1, devices=(one,), kept_in=str(store.folder))


def _error_frac(store: Store, record: Record, run: Run) -> float:
    """Predicted step over the measured one, less one."""
    threads = record.num_threads or 1
    model = known_local_model(store, record.machine, threads)
    if model is None:
        raise MissingFactError(
            f"this CPU is not measured with {threads} threads",
            hint="`paceline measure alexnet` measures its ceilings and a step",
        )
    step_s = local_step_s(
        model, read_workload(run.folder / MODEL_FILE), batch=int(record.batch_per_device or 1),
        seq=int(record.seq or 1), microbatches=1, ranks=1,
    )  # fmt: skip
    assert step_s is not None
    return step_s.mid / statistics.median(record.samples_s) - 1
