"""What a script that runs here should do, by the catalogue or by the model of this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paceline.app.requests.plan_request import read_calibration
from paceline.app.truth.local_prediction import (
    known_local_model,
    local_memory_bytes,
    local_step_s,
)
from paceline.catalog.load import load_catalog
from paceline.errors import InvalidInputError, MissingFactError
from paceline.execution.conditions import fingerprint
from paceline.execution.machine.probe import match_device, probe_host
from paceline.measurements.store import Store, default_store_folder
from paceline.model.graph.store import save_workload
from paceline.model.graph.workload import Workload
from paceline.planfile import Interval
from paceline.watch.captured import MODEL_FILE, CapturedJob, workload_of
from paceline.watch.expected import Expectation, expected_of_job


def expect_here(
    job: CapturedJob,
    report: Mapping[str, Any],
    device: Mapping[str, Any],
    *,
    folder: Path,
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
) -> Expectation:
    """What a captured job should do on the device that it was seen on.

    Args:
        job: What was read out of the script.
        report: Of the tracer.
        device: What the first rank said of its device.
        folder: Of the run; the traced model is kept there.
        facts: Files with your own devices.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.

    Raises:
        PacelineError: It cannot be traced, or a fact is missing; nothing is made up.
    """
    workload = workload_of(job, report, name=job.model)
    save_workload(workload, folder / MODEL_FILE)
    if device.get("kind") == "cpu":
        return _on_this_cpu(job, workload, device)
    name, memory = str(device.get("name") or ""), device.get("memory_bytes")
    if not job.precision:
        raise InvalidInputError(
            f"it runs in a precision that cannot be predicted: {job.precision_note}",
            hint="say what is to be predicted: `paceline predict --precision fp32 -- CMD`",
        )
    catalog = load_catalog(tuple(facts))
    found = match_device(name, None if memory is None else float(memory), catalog.devices)
    if found is None:
        raise MissingFactError(
            f"`{name or device.get('kind')}` is no device of the catalogue",
            hint="add it: docs/how-to/own-devices.md",
        )
    return expected_of_job(job, workload, found, calibration=read_calibration(calibration))


def _on_this_cpu(job: CapturedJob, workload: Workload, device: Mapping[str, Any]) -> Expectation:
    num_threads = int(device.get("num_threads") or 1)
    model = known_local_model(Store(default_store_folder()), fingerprint(), num_threads)
    if model is None:
        raise MissingFactError(
            f"this CPU is not measured with {num_threads} thread"
            + "s" * (num_threads != 1)
            + ": `paceline measure alexnet` does, once",
            hint="`paceline measure alexnet` measures its ceilings and a step",
        )
    if (job.precision, job.compiler) != ("fp32", "eager"):
        raise InvalidInputError(
            f"the model of this CPU knows FP32 op by op, not {job.precision or job.precision_note} "
            f"{job.compiler}",
            hint="run it so, or on a device of the catalogue",
        )
    step_s = local_step_s(
        model, workload, batch=job.batch, seq=job.seq or 1, microbatches=job.microbatches,
        ranks=job.world_size,
    )  # fmt: skip
    if step_s is None:
        raise MissingFactError(
            f"this CPU is not measured with {job.world_size} processes at once",
            hint=f"`paceline ceilings --devices {job.world_size}` does",
        )
    told = Expectation(source=model.name, step_s=_plain(step_s))
    return _with_memory(told, job, workload, device)


def _with_memory(
    told: Expectation, job: CapturedJob, workload: Workload, device: Mapping[str, Any]
) -> Expectation:
    """The same with the process's memory, where it is known what the process began with."""
    held_bytes = float(device.get("held_bytes") or 0.0)
    if not held_bytes:
        return told
    limit = device.get("memory_bytes")

    def peak(*, is_data: bool) -> Interval:
        return local_memory_bytes(
            workload, batch=job.batch, seq=job.seq or 1, microbatches=job.microbatches,
            held_bytes=held_bytes, heap=str(device.get("heap") or ""), is_data=is_data,
        )  # fmt: skip

    memory_bytes, allowed_bytes = peak(is_data=False), probe_host().host_memory_bytes
    if limit:
        # A limit of data counts neither code nor files, held or loaded, but room that is not used.
        data_bytes = peak(is_data=True)
        loaded_bytes = memory_bytes.mid - data_bytes.mid
        uncounted_bytes = held_bytes - float(device.get("data_bytes") or held_bytes) + loaded_bytes
        memory_bytes = _moved(data_bytes, loaded_bytes)
        allowed_bytes = min(allowed_bytes, float(limit) + uncounted_bytes)
    return replace(told, memory_bytes=memory_bytes, capacity_bytes=allowed_bytes)


def _moved(interval: Interval, by: float) -> Interval:
    return Interval(low=interval.low + by, mid=interval.mid + by, high=interval.high + by)


def _plain(step_s: Interval) -> Interval:
    return Interval(low=float(step_s.low), mid=float(step_s.mid), high=float(step_s.high))
