"""The machine's own ceilings: arithmetic, memory, dispatch, copies and all-reduce, measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from paceline.errors import WorkerError
from paceline.measurements.records import Record, RecordKind
from paceline.run.measure import Place, Settings, device_name
from paceline.run.stacks import Stack
from paceline.run.worker import WORKERS, Limits, run_worker

SOURCE = "paceline ceilings"

_TIMING: Mapping[str, float] = {
    "min_samples": 10, "max_samples": 500, "min_s": 0.3, "max_s": 3.0, "max_warmup_s": 1.0,
    "min_sample_s": 0.005,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The best that one kind of work reached here.

    Attributes:
        name: What was done, as a person says it.
        rate: FLOP/s or bytes/s; seconds for a dispatch.
        unit: Which of them.
        record: The measurement behind it.
    """

    name: str
    rate: float
    unit: Literal["FLOP/s", "B/s", "s"]
    record: Record


def measure_ceilings(
    stack: Stack, place: Place, settings: Settings, *, num_devices: int = 1, size: int = 1024
) -> Iterator[Record]:
    """Run the micro-benchmarks of a stack and yield a record each.

    Args:
        stack: PyTorch or OpenCL.
        place: Where.
        settings: How.
        num_devices: Ranks of the all-reduce; without a second there is none.
        size: Side of the largest matrix.

    Raises:
        WorkerError: The stack's engine failed.
    """
    dtypes = ["fp32", "bf16", *(["tf32", "fp16"] if settings.device == "cuda" else [])]
    request = {
        "action": "micro",
        "device": settings.device,
        "threads": settings.num_threads if settings.device == "cpu" else None,
        "dtypes": dtypes,
        "matmul_sizes": [size // 4, size],
        "memory_elements": 1 << 24,
        "message_bytes": [1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26],
        "timing": dict(_TIMING),
        "memory_limit_bytes": None,
        "paths": [],
    }  # fmt: skip
    python, engine = stack.command()
    if stack.spec.framework == "torch":
        engine = str(WORKERS / "torch_micro.py")
    yield from _run((python, engine), request, 1, stack, place, settings)
    if num_devices > 1 and stack.spec.framework == "torch":
        launcher = (python, str(WORKERS / "torch_launch.py"), str(num_devices), engine)
        yield from _run(launcher, request, num_devices, stack, place, settings)


def summarize_ceilings(records: Sequence[Record]) -> tuple[Ceiling, ...]:
    """The best of each kind of work, with its rate."""
    ceilings = [ceiling for record in records if (ceiling := _ceiling(record)) is not None]
    best: dict[str, Ceiling] = {}
    for ceiling in ceilings:
        known = best.get(ceiling.name)
        is_better = known is None or (ceiling.rate < known.rate) == (ceiling.unit == "s")
        if is_better:
            best[ceiling.name] = ceiling
    return tuple(best.values())


def _run(
    command: Sequence[str],
    request: Mapping[str, Any],
    num_devices: int,
    stack: Stack,
    place: Place,
    settings: Settings,
) -> Iterator[Record]:
    threads = str(settings.num_threads)
    result = run_worker(
        command,
        request,
        limits=Limits(timeout_s=settings.timeout_s, memory_bytes=settings.memory_bytes),
        environment={"OMP_NUM_THREADS": threads, **stack.spec.environment},
    )
    if result.ending != "ok":
        raise WorkerError(
            f"the micro-benchmarks of `{stack.spec.name}` failed: {result.reason}",
            hint=f"`paceline stacks check {stack.spec.name}`",
            details=result.details,
        )
    for row in result.answer["results"]:
        yield _record(row, result.answer, num_devices, stack, place, settings)


def _record(
    row: Mapping[str, Any],
    answer: Mapping[str, Any],
    num_devices: int,
    stack: Stack,
    place: Place,
    settings: Settings,
) -> Record:
    kind: RecordKind = "collective" if row["name"] == "ALL_REDUCE" else "operator"
    return Record(
        kind=kind,
        outcome="ok",
        recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        source=SOURCE,
        workload=row["name"],
        device_name=device_name(place, settings),
        num_devices=num_devices,
        stack=f"{stack.spec.framework}{answer['framework_version']}",
        framework=stack.spec.framework,
        framework_version=answer["framework_version"],
        platform_version=answer.get("platform_version"),
        driver_version=place.facts.nvidia_driver,
        python_version=answer["python_version"],
        operating_system=place.facts.os_name,
        host_cpu=place.facts.cpu_name,
        precision=row["dtype"],
        compiler="eager",
        shape=tuple(float(n) for n in row["shape"]),
        num_warmup=len(row["warmup_s"]) + 1,
        samples_s=tuple(row["samples_s"]),
        steps_per_sample=row["steps_per_sample"],
        is_steady=row["is_steady"],
        numerical_difference=row.get("numerical_difference"),
        machine=place.fingerprint,
        num_threads=settings.num_threads,
        cell="/".join(
            (row["name"], row["dtype"], stack.spec.name, "x".join(map(str, row["shape"])),
             str(row.get("note", "")), f"x{num_devices}")
        ),
        note=str(row.get("note", "")),
    )  # fmt: skip


def _ceiling(record: Record) -> Ceiling | None:
    seconds = record.median_s
    if seconds is None:
        return None
    through = "" if record.framework == "torch" else f" through {record.framework}"
    if record.workload == "MATMUL":
        flop = 2 * record.shape[1] * record.shape[2] * record.shape[3]
        beside = f" with {record.num_devices} at once" if record.num_devices > 1 else ""
        name = f"matrix product {record.precision}{through}{beside}"
        return Ceiling(name=name, rate=flop / seconds, unit="FLOP/s", record=record)
    if record.workload == "ALL_REDUCE":
        # Bus bandwidth, so that rings of different sizes compare: 2 (n - 1) / n of the message.
        share = 2 * (record.num_devices - 1) / record.num_devices
        rate = share * record.shape[0] / seconds
        return Ceiling(
            name=f"all-reduce over {record.num_devices}", rate=rate, unit="B/s", record=record
        )
    if record.workload == "HOST_COPY":
        rate = 4 * record.shape[0] / seconds
        return Ceiling(name=f"copy from {record.note} memory", rate=rate, unit="B/s", record=record)
    if record.note == "fresh":
        rate = 4 * record.shape[0] / seconds
        return Ceiling(name="fresh memory", rate=rate, unit="B/s", record=record)
    if record.shape[0] < 1000:
        return Ceiling(name=f"dispatch of one op{through}", rate=seconds, unit="s", record=record)
    rate = 12 * record.shape[0] / seconds
    return Ceiling(name=f"memory{through}", rate=rate, unit="B/s", record=record)
