"""The record: one measured cell, flat, versioned, with every sample and the environment behind it.

Benchmarks, probes, imports of published tables and calibration share it. One record is one line of
JSON; a reader of an older line fills what did not exist then with "unknown", never with a guess.
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Mapping
from typing import Any, Literal, get_args

from paceline.errors import InvalidInputError
from paceline.values import dataclass

SCHEMA_VERSION = 1

RecordKind = Literal["step", "operator", "collective"]
Outcome = Literal["ok", "out-of-memory", "failed", "timeout", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One measured cell. None means unknown; nothing is filled in.

    Attributes:
        kind: A step of a model, one operator, or one collective.
        outcome: How it ended; only ``ok`` has samples.
        recorded_at: When, as ISO 8601 in UTC.
        source: Who measured: ``paceline measure``, or the table it was imported from.
        workload: As a user types it; for an operator its ``OpKind`` name.
        task: Training or inference.
        device_name: ``Device.name`` in the catalogue.
        num_devices: Devices in the job.
        num_nodes: Machines in the job.
        strategy: Canonical ``Strategy`` string; empty for one device.
        stack: Canonical string of the software, such as ``torch2.13.0+cu130/py3.12``.
        framework: ``torch``, ``tensorflow``, ``mxnet`` …
        framework_version: Exact release.
        platform_version: CUDA or ROCm release.
        driver_version: Driver of the device.
        python_version: Interpreter.
        operating_system: Name and release.
        host_cpu: Name of the CPU.
        precision: Name in ``dtypes.PRECISIONS``.
        compiler: ``eager``, ``compiled``, ``xla``, ``tensorrt``.
        channels_last: Whether images are stored channels last.
        checkpointing: What is recomputed in backward.
        optimizer: Name; None in inference.
        batch_per_device: Items per device and microbatch.
        grad_accumulation: Microbatches per step.
        seq: Sequence length.
        image_size: Side of the square input.
        shape: Shape numbers of an operator, in the order that `paceline.model.ops` gives.
        input_data: ``synthetic`` or ``real``.
        num_warmup: Steps run before the first sample.
        samples_s: Every measured step time, in order.
        samples_per_s: Throughput of the whole job, in ``sample_unit``.
        sample_unit: What throughput counts.
        allocated_bytes: Peak handed out by the allocator, largest over devices.
        reserved_bytes: Peak held by the allocator.
        process_bytes: Peak of the process as the driver sees it, context included.
        fresh_bytes: Pages that the system handed out anew in each step of a CPU.
        mean_power_w: Mean over the samples, per device.
        energy_j: Over one step, all devices.
        clock_hz: Mean clock of the device under the load.
        temperature_c: Temperature of the device at the end.
        power_limit_w: Limit in force.
        mode: What one step is: ``forward``, ``forward-backward`` or ``step`` (with the update).
        machine: Fingerprint of the machine and user, hashed, so that shared files name nobody.
        num_threads: CPU threads of one worker.
        steps_per_sample: Steps timed together for one sample; each sample is per step.
        is_steady: Whether the warm-up had settled when sampling began.
        first_step_s: The very first step, with whatever it loads and tunes.
        compile_s: Building and compiling before the first step; None without a compiler.
        numerical_difference: Largest difference of outputs from those of the reference stack with
            the same weights, relative to the largest output.
        utilization_frac: Mean share of time in which the device ran something.
        throttle_reasons: What held clocks back, comma separated; empty where nothing did.
        is_shared: Whether other processes used the device meanwhile.
        sweep: Key of the sweep it belongs to, with the number of its run; empty outside of one.
        cell: Canonical key of the cell, equal in every run of the same measurement.
        reason: Why it did not end ``ok``; the worker's last line.
        note: Whatever else a reader must know.
        schema_version: Layout of this line.
    """

    kind: RecordKind
    outcome: Outcome
    recorded_at: str
    source: str
    workload: str
    device_name: str
    task: Literal["train", "infer"] = "infer"
    num_devices: int = 1
    num_nodes: int = 1
    strategy: str = ""
    stack: str = ""
    framework: str | None = None
    framework_version: str | None = None
    platform_version: str | None = None
    driver_version: str | None = None
    python_version: str | None = None
    operating_system: str | None = None
    host_cpu: str | None = None
    precision: str | None = None
    compiler: str | None = None
    channels_last: bool | None = None
    checkpointing: str | None = None
    optimizer: str | None = None
    batch_per_device: float | None = None
    grad_accumulation: int = 1
    seq: float | None = None
    image_size: float | None = None
    shape: tuple[float, ...] = ()
    input_data: str = "synthetic"
    num_warmup: int | None = None
    samples_s: tuple[float, ...] = ()
    samples_per_s: float | None = None
    sample_unit: str | None = None
    allocated_bytes: float | None = None
    reserved_bytes: float | None = None
    process_bytes: float | None = None
    fresh_bytes: float | None = None
    mean_power_w: float | None = None
    energy_j: float | None = None
    clock_hz: float | None = None
    temperature_c: float | None = None
    power_limit_w: float | None = None
    mode: str = ""
    machine: str = ""
    num_threads: int | None = None
    steps_per_sample: int = 1
    is_steady: bool | None = None
    first_step_s: float | None = None
    compile_s: float | None = None
    numerical_difference: float | None = None
    utilization_frac: float | None = None
    throttle_reasons: str = ""
    is_shared: bool | None = None
    sweep: str = ""
    cell: str = ""
    reason: str = ""
    note: str = ""
    schema_version: int = SCHEMA_VERSION

    @property
    def median_s(self) -> float | None:
        """Median step time; None without samples."""
        return statistics.median(self.samples_s) if self.samples_s else None


def record_to_line(record: Record) -> str:
    """One line of JSON without its line end; unknown fields are left out."""
    values = {k: v for k, v in dataclasses.asdict(record).items() if v not in (None, (), "")}
    return json.dumps(values, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def record_from_line(line: str) -> Record:
    """Read one line that `record_to_line` wrote.

    Raises:
        InvalidInputError: Not JSON, not a record, from a newer paceline, or with a figure that
            is not finite.
    """
    try:
        values = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInputError(
            f"a record is not valid JSON: {error}", hint="remove the damaged line"
        ) from None
    if not isinstance(values, dict):
        raise InvalidInputError("a record must be a JSON object", hint="remove the damaged line")
    return _record(values)


def _record(values: Mapping[str, Any]) -> Record:
    version = values.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InvalidInputError(
            f"a record has schema version {version}, this paceline reads {SCHEMA_VERSION}",
            hint="update paceline, or remove the line",
        )
    fields = {f.name: f for f in dataclasses.fields(Record)}
    if unknown := sorted(set(values) - set(fields)):
        raise InvalidInputError(
            f"a record has unknown fields: {', '.join(unknown)}", hint="update paceline"
        )
    required = {n for n, f in fields.items() if f.default is dataclasses.MISSING}
    if missing := sorted(required - set(values)):
        raise InvalidInputError(
            f"a record lacks {', '.join(missing)}", hint="remove the damaged line"
        )
    return Record(**{name: _checked(name, value) for name, value in values.items()})


def _checked(name: str, value: Any) -> Any:
    """``value`` if it has the type of the field ``name``."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInputError(f"`{name}` of a record is not finite", hint="remove the line")
    if name in ("samples_s", "shape"):
        if not isinstance(value, list) or not all(_is_number(item) for item in value):
            raise InvalidInputError(f"`{name}` of a record is no list of numbers", hint=_REMOVE)
        return tuple(float(item) for item in value)
    accepted = _ACCEPTED.get(name)
    if accepted is not None and value not in accepted:
        raise InvalidInputError(
            f"`{name}` of a record is `{value}`, not one of {', '.join(accepted)}", hint=_REMOVE
        )
    if accepted is None and not _has_type(name, value):
        raise InvalidInputError(f"`{name}` of a record has the wrong type", hint=_REMOVE)
    return value


_REMOVE = "remove the damaged line"
_ACCEPTED: dict[str, tuple[str, ...]] = {
    "kind": get_args(RecordKind),
    "outcome": get_args(Outcome),
    "task": ("train", "infer"),
}


def _has_type(name: str, value: Any) -> bool:
    declared = str(Record.__annotations__[name])
    if declared.startswith("str"):
        return isinstance(value, str)
    if declared.startswith("bool"):
        return isinstance(value, bool)
    if declared.startswith("int"):
        return isinstance(value, int) and not isinstance(value, bool)
    return _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
