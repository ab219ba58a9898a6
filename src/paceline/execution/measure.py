"""Measure cells, each in a process of its own, and keep every result as it comes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from paceline.execution.cells import Cell, sweep_key
from paceline.execution.conditions import Place, Settings
from paceline.execution.recording import build_record
from paceline.execution.stacks import Stack
from paceline.execution.worker import PROTOCOL, WORKERS, Limits, WorkerResult, run_worker
from paceline.measurements.records import Record
from paceline.measurements.store import Store
from paceline.model.names.front_ends import front_end_of
from paceline.values import dataclass

#: Name under which the PyTorch stack that writes ONNX files stands among the stacks of a sweep.
EXPORTER = "exporter"
ONNX_FRAMEWORKS = frozenset({"onnxruntime", "openvino", "tvm", "tensorrt"})
_EXPORTED = ("onnx", "kind", "shape", "reference")
_TRACE_WORKERS = Path(__file__).parents[1] / "frontends" / "torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What a sweep tells while it runs.

    Attributes:
        number: Of the cell, from 1.
        stage: ``building``, ``compiling``, ``warm-up``, ``measuring``; ``done`` with a record.
        record: What came out.
        left_s: Estimated time for the rest; None before the first cell is done.
    """

    number: int
    num_cells: int
    cell: Cell
    stage: str
    record: Record | None = None
    left_s: float | None = None


def measure_cells(
    cells: Sequence[Cell],
    stacks: Mapping[str, Stack],
    place: Place,
    store: Store,
    settings: Settings,
    *,
    talk: Callable[[Notice], None] = lambda notice: None,
) -> Iterator[Record]:
    """Measure what is missing of a sweep and yield all its records in order.

    A sweep that was interrupted goes on where it stopped; a finished one is measured again under
    the next run number. Every record is in the store before it is yielded.

    Args:
        cells: What to measure.
        stacks: Environments by the names that the cells use, and under `EXPORTER` one with
            PyTorch and onnx where a cell runs an ONNX engine.
        place: Where.
        store: Where records go.
        settings: How.
        talk: Correction what happens.

    Raises:
        KeyboardInterrupt: Passed on after the worker was ended; what was measured is kept.
    """
    key = sweep_key(cells, f"{place.fingerprint}/{settings.device}x{settings.num_threads}")
    run, done = _unfinished_run(key, cells, store)
    clock = _Clock(len(cells) - len(done))
    with tempfile.TemporaryDirectory(prefix="paceline-onnx-") as folder:
        bench = _Bench(stacks=stacks, place=place, settings=settings, folder=Path(folder))
        failed: dict[str, Record] = {}
        for number, cell in enumerate(cells, start=1):
            record = done.get(cell.key)
            if record is None:
                notify = _notifier(talk, number, len(cells), cell, clock)
                notify("building", None)
                record = bench.record(cell, f"{key}.{run}", failed.get(cell.series), notify)
                store.append(record)
                clock.tick()
                notify("done", record)
            if record.outcome == "out-of-memory":
                failed.setdefault(cell.series, record)
            yield record


def _notifier(
    talk: Callable[[Notice], None], number: int, num_cells: int, cell: Cell, clock: _Clock
) -> Callable[[str, Record | None], None]:
    def notify(stage: str, record: Record | None) -> None:
        """Say where the cell stands, and how long the others may still take."""
        talk(
            Notice(
                number=number,
                num_cells=num_cells,
                cell=cell,
                stage=stage,
                record=record,
                left_s=clock.left_s(),
            )
        )

    return notify


class _Clock:
    """Time left, from the mean of the cells measured so far."""

    def __init__(self, num_cells: int) -> None:
        self._num_left = num_cells
        self._num_done = 0
        self._started_s = time.monotonic()

    def tick(self) -> None:
        """One cell is done."""
        self._num_left -= 1
        self._num_done += 1

    def left_s(self) -> float | None:
        """Seconds that the cells left take; None before the first is done."""
        if not self._num_done:
            return None
        return (time.monotonic() - self._started_s) / self._num_done * self._num_left


def _unfinished_run(key: str, cells: Sequence[Cell], store: Store) -> tuple[int, dict[str, Record]]:
    """Number of the run to go on with, and what it has already."""
    runs: dict[int, dict[str, Record]] = {}
    for record in store.read().records:
        sweep, _, number = record.sweep.partition(".")
        if sweep == key and number.isdigit():
            runs.setdefault(int(number), {})[record.cell] = record
    if not runs:
        return 1, {}
    latest = max(runs)
    if _is_complete(runs[latest], [cell.key for cell in cells]):
        return latest + 1, {}
    return latest, runs[latest]


def _is_complete(done: Collection[str], keys: Sequence[str]) -> bool:
    return all(key in done for key in keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """Turns cells into records."""

    stacks: Mapping[str, Stack]
    place: Place
    settings: Settings
    folder: Path
    exports: dict[str, WorkerResult] = field(default_factory=dict)

    def record(
        self,
        cell: Cell,
        sweep: str,
        smaller: Record | None,
        notify: Callable[[str, Record | None], None],
    ) -> Record:
        """Measure one cell, unless a smaller batch of its series has run out of memory."""
        stack = self.stacks[cell.stack]
        if smaller is not None:
            text = f"not tried: batch {smaller.batch_per_device:.0f} already ran out of memory"
            result = WorkerResult(ending="out-of-memory", reason=text, answer={})
        else:
            result = self._run(cell, stack, lambda event: notify(str(event.get("stage")), None))
        return build_record(cell, stack, result, self.place, self.settings, sweep=sweep)

    def _run(
        self, cell: Cell, stack: Stack, on_progress: Callable[[Mapping[str, Any]], None]
    ) -> WorkerResult:
        request = make_request(cell, stack, self.settings)
        if is_onnx_file(cell.workload):
            request["onnx"] = str(Path(cell.workload.removeprefix("onnx:")).resolve())
        elif stack.spec.framework in ONNX_FRAMEWORKS:
            exported = self._exported(cell)
            if exported.ending != "ok":
                return exported
            request.update({name: exported.answer[name] for name in _EXPORTED})
        return self._start(_command(stack, cell), request, stack, on_progress)

    def _exported(self, cell: Cell) -> WorkerResult:
        """The model as ONNX from the PyTorch stack, made once per batch."""
        name = f"{cell.workload} {cell.batch_per_device} {cell.seq} {cell.image_size}"
        if name not in self.exports:
            stack = self.stacks[EXPORTER]
            path = self.folder / f"{len(self.exports)}.onnx"
            request = make_request(cell, stack, self.settings)
            request.update(action="export", onnx=str(path))
            self.exports[name] = self._start(stack.command(), request, stack, lambda event: None)
        return self.exports[name]

    def _start(
        self,
        command: Sequence[str],
        request: Mapping[str, Any],
        stack: Stack,
        on_progress: Callable[[Mapping[str, Any]], None],
    ) -> WorkerResult:
        settings = self.settings
        threads = str(settings.num_threads)
        return run_worker(
            command,
            request,
            limits=Limits(timeout_s=settings.timeout_s, memory_bytes=settings.memory_bytes),
            sensors=self.place.sensors,
            environment={
                "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **stack.spec.environment,
            },
            on_progress=on_progress,
        )  # fmt: skip


def is_onnx_file(workload: str) -> bool:
    """Whether an ONNX engine runs it as it is, not a model that is exported first."""
    return front_end_of(workload).engine == "onnx_engine.py"


def make_request(cell: Cell, stack: Stack, settings: Settings) -> dict[str, Any]:
    """What the engine is asked to do."""
    profile = None
    if settings.profile_folder is not None:
        profile = str(settings.profile_folder.resolve() / f"{cell.key.replace('/', '_')}.json")
    return {
        "protocol": PROTOCOL,
        "action": "measure",
        "framework": stack.spec.framework,
        "entry": cell.workload,
        "mode": cell.mode,
        "batch": cell.batch_per_device,
        "num_devices": cell.num_devices,
        "precision": cell.precision,
        "compiler": cell.compiler,
        "seq": cell.seq,
        "image_size": cell.image_size,
        "optimizer": cell.optimizer,
        "channels_last": cell.channels_last,
        "device": settings.device,
        "threads": settings.num_threads if settings.device == "cpu" else None,
        "memory_limit_bytes": _cap_per_process(cell, settings),
        "timing": dict(settings.timing),
        "paths": [str(_TRACE_WORKERS)],
        "directory": str(settings.user_folder.resolve()),
        "profile": profile,
    }


def _cap_per_process(cell: Cell, settings: Settings) -> float | None:
    """Share of the cap; only the CPU's allocators fail cleanly at it, so GPUs get none."""
    if settings.memory_bytes is None or settings.device != "cpu":
        return None
    return settings.memory_bytes / cell.num_devices


def _command(stack: Stack, cell: Cell) -> tuple[str, ...]:
    """The engine, under torchrun where PyTorch runs several ranks."""
    if stack.spec.framework != "torch" or cell.num_devices == 1:
        return stack.command()
    python, engine = stack.command()
    return (python, str(WORKERS / "torch_launch.py"), str(cell.num_devices), engine)
