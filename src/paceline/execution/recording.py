"""What a worker answered, as the flat record that is kept."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from paceline.execution.cells import Cell
from paceline.execution.conditions import Place, Settings, device_name
from paceline.execution.machine.sensors import summarize
from paceline.execution.stacks import Stack
from paceline.execution.worker import Ending, WorkerResult
from paceline.measurements.records import Outcome, Record

#: Who measured, in every record of a cell.
SOURCE = "paceline measure"

_OUTCOMES: Mapping[Ending, Outcome] = {
    "ok": "ok",
    "out-of-memory": "out-of-memory",
    "timeout": "timeout",
    "unsupported": "skipped",
    "raised": "failed",
    "died": "failed",
}


def build_record(
    cell: Cell,
    stack: Stack,
    result: WorkerResult,
    place: Place,
    settings: Settings,
    *,
    sweep: str = "",
) -> Record:
    """The flat record of one cell.

    Throughput counts all devices; energy is that of the window divided by its steps.
    """
    samples_s = tuple(float(value) for value in result.answer.get("samples_s", ()))
    return Record(
        kind="step",
        outcome=_OUTCOMES[result.ending],
        source=SOURCE,
        sweep=sweep,
        reason=result.reason,
        **surroundings(result.answer, stack, place, settings),
        **_asked(cell, result.answer),
        **_timed(cell, result.answer, samples_s),
        **_sensed(cell, result, place, settings, samples_s),
    )


def surroundings(
    answer: Mapping[str, Any], stack: Stack, place: Place, settings: Settings
) -> dict[str, Any]:
    """Fields of any record that say when, where and with which software it was measured."""
    version = answer.get("framework_version") or stack.spec.version
    python_version = answer.get("python_version")
    software = f"{stack.spec.framework}{version}"
    return {
        "recorded_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "device_name": device_name(place, settings),
        "stack": f"{software}/py{python_version}" if python_version else software,
        "framework": stack.spec.framework,
        "framework_version": version,
        "platform_version": answer.get("platform_version"),
        "driver_version": place.facts.nvidia_driver,
        "python_version": python_version,
        "operating_system": place.facts.os_name,
        "host_cpu": place.facts.cpu_name,
        "machine": place.fingerprint,
        "num_threads": settings.num_threads,
    }


def _asked(cell: Cell, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that repeat what was to be measured, with the optimizer that a workload states."""
    return {
        "cell": cell.key,
        "workload": cell.workload,
        "mode": cell.mode,
        "task": "infer" if cell.mode == "forward" else "train",
        "num_devices": cell.num_devices,
        "strategy": f"dp{cell.num_devices}" if cell.num_devices > 1 else "",
        "precision": cell.precision,
        "compiler": cell.compiler,
        "channels_last": cell.channels_last,
        "optimizer": answer.get("optimizer", cell.optimizer) if cell.mode == "step" else None,
        "batch_per_device": cell.batch_per_device,
        "image_size": cell.image_size,
    }


def _timed(cell: Cell, answer: Mapping[str, Any], samples_s: Sequence[float]) -> dict[str, Any]:
    """Fields that the engine told: times, and what it saw of memory and numbers."""
    return {
        "seq": answer.get("seq"),
        "num_warmup": len(answer.get("warmup_s", ())) + 1 if samples_s else None,
        "samples_s": samples_s,
        "samples_per_s": _samples_per_s(cell, samples_s, answer.get("sample_unit")),
        "sample_unit": answer.get("sample_unit"),
        "steps_per_sample": answer.get("steps_per_sample", 1),
        "is_steady": answer.get("is_steady"),
        "first_step_s": answer.get("first_step_s"),
        "compile_s": answer.get("compile_s"),
        "allocated_bytes": answer.get("allocated_bytes"),
        "reserved_bytes": answer.get("reserved_bytes"),
        "fresh_bytes": answer.get("fresh_bytes"),
        "numerical_difference": answer.get("numerical_difference"),
        "note": str(answer.get("note", "")),
    }


def _samples_per_s(cell: Cell, samples_s: Sequence[float], unit: str | None) -> float | None:
    if not samples_s:
        return None
    items = cell.batch_per_device * cell.num_devices * (cell.seq if unit == "tokens" else 1)
    return items / statistics.median(samples_s)


def _sensed(
    cell: Cell,
    result: WorkerResult,
    place: Place,
    settings: Settings,
    samples_s: Sequence[float],
) -> dict[str, Any]:
    """Fields that come from sensors; on the CPU the processes' own memory is the peak."""
    summary = summarize(
        result.readings, num_threads=max(1, settings.num_threads * cell.num_devices)
    )
    if summary is None or not samples_s:
        return {"process_bytes": result.answer.get("resident_bytes")}
    num_steps = summary.window_s / statistics.median(samples_s)
    is_cpu = settings.device == "cpu"
    resident_bytes = result.answer.get("resident_bytes") or summary.peak_resident_bytes
    return {
        "process_bytes": resident_bytes if is_cpu else summary.peak_device_bytes,
        "mean_power_w": summary.mean_power_w,
        "energy_j": None if summary.energy_j is None else summary.energy_j / num_steps,
        "clock_hz": summary.mean_clock_hz,
        "temperature_c": summary.temperature_c,
        "power_limit_w": None if is_cpu else place.facts.gpus[0].power_limit_w,
        "utilization_frac": summary.utilization_frac,
        "throttle_reasons": ", ".join(summary.throttle_reasons),
        "is_shared": summary.is_shared,
    }
