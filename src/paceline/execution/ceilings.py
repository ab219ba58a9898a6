"""The machine's own ceilings: arithmetic, memory, dispatch, copies and collectives, measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from paceline.errors import WorkerError
from paceline.execution.conditions import Place, Settings
from paceline.execution.recording import surroundings
from paceline.execution.stacks import Stack
from paceline.execution.worker import WORKERS, Limits, run_worker
from paceline.measurements.records import Record, RecordKind
from paceline.model.graph.graph import NUM_DIMS, NUM_MONOMIALS, OpKind
from paceline.model.ops.registry import FACTS
from paceline.values import dataclass

SOURCE = "paceline ceilings"

_TIMING: Mapping[str, float] = {
    "min_samples": 10, "max_samples": 500, "min_s": 0.3, "max_s": 3.0, "max_warmup_s": 1.0,
    "min_sample_s": 0.005,
}  # fmt: skip


CeilingKind = Literal[
    "product", "memory", "fresh memory", "dispatch", "host copy", "all-reduce", "all-gather",
    "reduce-scatter", "all-to-all", "broadcast", "overlap", "operands", "update", "convolution",
    "gradient of inputs", "gradient of weights", "pointwise convolution", "depthwise convolution",
    "attention", "recurrence", "pooling", "filters", "cached memory", "layer",
    "product with a vector", "gradient of pooling", "call", "loop",
]  # fmt: skip

#: Kinds of the records whose workload tells it alone, or with its note.
_KINDS: Mapping[tuple[str, str], CeilingKind] = {
    ("MATMUL", ""): "product",
    ("MATMUL", "few rows"): "operands",
    ("MATMUL", "one row"): "product with a vector",
    ("HOST_COPY", "pinned"): "host copy",
    ("HOST_COPY", "pageable"): "host copy",
    ("ALL_REDUCE", ""): "all-reduce",
    ("ALL_REDUCE", "behind a product"): "overlap",
    ("ALL_GATHER", ""): "all-gather",
    ("REDUCE_SCATTER", ""): "reduce-scatter",
    ("ALL_TO_ALL", ""): "all-to-all",
    ("BROADCAST", ""): "broadcast",
    ("ELEMENTWISE", "fresh"): "fresh memory",
    ("ELEMENTWISE", "in place"): "update",
    ("ELEMENTWISE", "cached"): "cached memory",
    ("ELEMENTWISE", "small layers"): "layer",
    ("ELEMENTWISE", "call"): "call",
    ("ELEMENTWISE", "loop"): "loop",
    ("CONV", ""): "convolution",
    ("CONV", "pointwise"): "pointwise convolution",
    ("CONV", "depthwise"): "depthwise convolution",
    ("CONV", "few pixels"): "filters",
    ("CONV_BACKWARD_INPUT", ""): "gradient of inputs",
    ("CONV_BACKWARD_WEIGHT", ""): "gradient of weights",
    ("ATTENTION", ""): "attention",
    ("RECURRENT", ""): "recurrence",
    ("POOL", ""): "pooling",
    ("POOL_BACKWARD", ""): "gradient of pooling",
}
#: An op on fewer elements has nothing to do: its time is that of its dispatch.
_TINY_ELEMENTS = 1000
#: Kinds of which the time of one op is told.
_PER_OP: tuple[CeilingKind, ...] = ("dispatch", "layer", "call", "loop")
#: Of a message among ``n`` ranks, what one rank's link carries: bus bandwidth, so that counts of
#: ranks compare (NVIDIA, nccl-tests, ``doc/PERFORMANCE.md``, read 2026-11-27).
_BUS_SHARE: Mapping[str, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "all-to-all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}
#: Where an engine's micro-benchmarks stand, unless in the engine itself.
_MICRO = {"torch_engine.py": "torch_micro.py", "keras_engine.py": "keras_micro.py"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The best that one kind of work reached here.

    Attributes:
        name: What was done, as a person says it.
        rate: FLOP/s or bytes/s; seconds for a dispatch, a layer, a call and a step of a loop;
            of an overlap, the share of the shorter one that the longer hides, below 0 where both
            together take longer than in turn.
        record: The measurement behind it.
    """

    kind: CeilingKind
    name: str
    rate: float
    unit: Literal["FLOP/s", "B/s", "s", "frac"]
    record: Record

    @property
    def per_s(self) -> float:
        """FLOP, bytes or ops per second."""
        return 1 / self.rate if self.unit == "s" else self.rate

    @property
    def seconds(self) -> float:
        """What its work took."""
        return float(self.record.median_s or 0.0)

    @property
    def flop(self) -> float:
        """Of what computes; 0 of the others."""
        count = _FLOP.get(self.record.workload)
        return count(self.record.shape) if count else 0.0

    @property
    def operand_bytes(self) -> float:
        """FP32 bytes that what computes reads and writes once; 0 of the others."""
        count = _OPERANDS.get(self.record.workload)
        return 4.0 * count(*self.record.shape) if count else 0.0


def measure_ceilings(
    stack: Stack, place: Place, settings: Settings, *, num_devices: int = 1, size: int = 1024
) -> Iterator[Record]:
    """Run the micro-benchmarks of a stack and yield a record each.

    Args:
        stack: PyTorch, OpenCL, or a backend of Keras on a CPU.
        place: Where.
        settings: How.
        num_devices: Ranks of the collectives; without a second there is none.
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
        "num_devices": 1,
        "layers": settings.device == "cpu",
        "memory_limit_bytes": None,
        "paths": [],
    }  # fmt: skip
    python, engine = stack.command()
    engine = str(WORKERS / _MICRO.get(stack.spec.engine, stack.spec.engine))
    yield from _run((python, engine), request, 1, stack, place, settings)
    if num_devices > 1 and stack.spec.framework == "torch":
        launcher = (python, str(WORKERS / "torch_launch.py"), str(num_devices), engine)
        yield from _run(launcher, request, num_devices, stack, place, settings)


def summarize_ceilings(records: Sequence[Record]) -> tuple[Ceiling, ...]:
    """The best of each kind of work, with its rate; of products, of those that compute most."""
    found = (_ceiling(record) for record in records)
    ceilings = [one for one in (*found, *_overlaps(records)) if one is not None]
    best: dict[str, Ceiling] = {}
    for ceiling in ceilings:
        known = best.get(ceiling.name)
        if known is None or (ceiling.flop, ceiling.per_s) > (known.flop, known.per_s):
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
        environment={
            "OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "PASSIVE", **stack.spec.environment,
        },
    )  # fmt: skip
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
    is_collective = (str(row["name"]), "") in _KINDS and _KINDS[row["name"], ""] in _BUS_SHARE
    kind: RecordKind = "collective" if is_collective else "operator"
    note = str(row.get("note", ""))
    sides = "x".join(map(str, row["shape"]))
    return Record(
        kind=kind,
        outcome="ok",
        source=SOURCE,
        workload=row["name"],
        num_devices=num_devices,
        precision=row["dtype"],
        compiler=next(iter(stack.spec.compilers), "eager"),
        shape=tuple(float(n) for n in row["shape"]),
        num_warmup=len(row["warmup_s"]) + 1,
        samples_s=tuple(row["samples_s"]),
        steps_per_sample=row["steps_per_sample"],
        is_steady=row["is_steady"],
        numerical_difference=row.get("numerical_difference"),
        cell="/".join((row["name"], row["dtype"], stack.spec.name, sides, note, f"x{num_devices}")),
        note=note,
        **surroundings(answer, stack, place, settings),
    )


def _ceiling(record: Record) -> Ceiling | None:
    seconds = record.median_s
    kind = _kind(record)
    if seconds is None or kind == "overlap":
        return None
    name = _name(record, kind)
    if kind in _PER_OP:
        num_ops = 1.0 if kind == "dispatch" else record.shape[0]
        return Ceiling(kind=kind, name=name, rate=seconds / num_ops, unit="s", record=record)
    flop, num_bytes = _work(record, kind)
    return Ceiling(
        kind=kind,
        name=name,
        rate=(flop or num_bytes) / seconds,
        unit="FLOP/s" if flop else "B/s",
        record=record,
    )


def _overlaps(records: Sequence[Record]) -> Iterator[Ceiling]:
    """How much of an all-reduce hides behind a product: both together against each alone."""
    alone = {
        (one.workload, one.num_devices, one.framework, one.shape): one.median_s
        for one in records
        if not one.note and one.precision == "fp32"
    }
    for both in records:
        if _kind(both) != "overlap" or both.median_s is None:
            continue
        message, side = both.shape
        group = (both.num_devices, both.framework)
        product_s = alone.get(("MATMUL", *group, (1.0, side, side, side)))
        message_s = alone.get(("ALL_REDUCE", *group, (message,)))
        if product_s and message_s:
            hidden_s = product_s + message_s - both.median_s
            frac = hidden_s / min(product_s, message_s)
            name = _name(both, "overlap")
            yield Ceiling(kind="overlap", name=name, rate=frac, unit="frac", record=both)


def _kind(record: Record) -> CeilingKind:
    known = _KINDS.get((record.workload, record.note))
    if known is not None:
        return known
    return "dispatch" if record.shape[0] < _TINY_ELEMENTS else "memory"


def _name(record: Record, kind: CeilingKind) -> str:
    through = "" if record.framework == "torch" else f" through {record.framework}"
    beside = f" with {record.num_devices} at once" if record.num_devices > 1 else ""
    if kind in _BUS_SHARE:
        return f"{kind} over {record.num_devices}"
    names: Mapping[CeilingKind, str] = {
        "product": f"matrix product {record.precision}{through}{beside}",
        "overlap": f"all-reduce over {record.num_devices} hidden behind a product",
        "host copy": f"copy from {record.note} memory",
        "dispatch": f"dispatch of one op{through}",
        "operands": f"operands of a product of few rows{through}",
        "filters": f"filters of a convolution of few pixels{through}",
        "layer": f"layer of a network with nothing to compute{through}",
        "update": f"update in place{through}",
        "call": f"call of a compiled step{through}",
        "loop": f"step of an LSTM with nothing to compute{through}",
    }
    return names.get(kind, f"{kind}{through}")


def _work(record: Record, kind: CeilingKind) -> tuple[float, float]:
    """FLOP of what computes, else bytes: FP32 elements by the streams that touch them."""
    size = record.shape
    if kind in ("operands", "filters", "product with a vector"):
        return 0.0, 4 * _OPERANDS[record.workload](*size)
    if record.workload in _FLOP:
        return _FLOP[record.workload](size), 0.0
    if kind == "pooling":
        # Windows a stride of two apart read four elements each, write one and its 64-bit place.
        return 0.0, (4 * 4 + 4 + 8) * size[0]
    if kind == "gradient of pooling":
        # Each result has a gradient and a place; its four elements are read and their own written.
        return 0.0, (4 + 8 + 2 * 4 * 4) * size[0]
    if kind in _BUS_SHARE:
        return 0.0, _BUS_SHARE[kind](record.num_devices) * size[0]
    return 0.0, 4 * size[0] * size[2]


def _of_convolution(
    items: float, channels: float, height: float, width: float, filters: float, rows: float,
    columns: float, out_height: float, out_width: float, groups: float,
) -> float:  # fmt: skip
    """Elements of pictures, filters and results."""
    weights = filters * channels / groups * rows * columns
    return items * (channels * height * width + filters * out_height * out_width) + weights


#: Elements of operands and results, by what is computed and its shape numbers.
_OPERANDS: Mapping[str, Callable[..., float]] = {
    "MATMUL": lambda b, m, n, k: b * (m * k + k * n + m * n),
    "ATTENTION": lambda b, h, g, q, k, d, _: 2 * b * (h * q + g * k) * d,
    "CONV": _of_convolution,
    "CONV_BACKWARD_INPUT": _of_convolution,
    "CONV_BACKWARD_WEIGHT": _of_convolution,
}


def _flop_by_kind(kind: OpKind) -> Callable[[Sequence[float]], float]:
    """FLOP from the shape numbers of an op kind."""
    count = FACTS[kind].count_flop
    assert count is not None

    def flop(shape: Sequence[float]) -> float:
        """FLOP of one op of a shape."""
        dims = np.zeros((1, NUM_DIMS, NUM_MONOMIALS))
        dims[0, : len(shape), 0] = shape
        return float(count(dims)[0, 0])

    return flop


_FLOP = {
    kind.name: _flop_by_kind(kind) for kind, facts in FACTS.items() if facts.count_flop is not None
}
