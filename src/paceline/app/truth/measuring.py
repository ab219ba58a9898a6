"""What the measuring verbs do: ask the machine, the stacks and the store, and join the answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO, get_args

from paceline.app.requests.words import read_word
from paceline.app.truth.local_prediction import ledger_of_store, measure_missing_ceilings
from paceline.app.truth.measured_models import check_engine, failure_hint, measured_entry
from paceline.catalog.entities import Machine
from paceline.catalog.load import load_catalog
from paceline.dtypes import find_precision
from paceline.errors import InvalidInputError, UnknownNameError, WorkerError
from paceline.execution.cells import (
    DEFAULT_SEQ,
    USUAL_COMPILER,
    USUAL_MODE,
    Cell,
    Mode,
    Optimizer,
    Sweep,
    sweep_cells,
)
from paceline.execution.conditions import QUICK_TIMING, Place, Settings, fingerprint
from paceline.execution.largest import search_largest
from paceline.execution.machine.doctor import (
    diagnose_machine,
    diagnose_output,
    last_error,
    tool_output,
)
from paceline.execution.machine.facts import HostFacts
from paceline.execution.machine.findings import Finding
from paceline.execution.machine.nvml import open_nvml
from paceline.execution.machine.probe import probe_host, probe_machine, whole_gpu
from paceline.execution.machine.sensors import Sensors
from paceline.execution.machine_work import cpu_frameworks
from paceline.execution.measure import (
    EXPORTER,
    ONNX_FRAMEWORKS,
    Notice,
    is_onnx_file,
    measure_cells,
)
from paceline.execution.stacks import (
    Stack,
    default_stack,
    find_spec,
    find_stack,
    installed_frameworks,
    list_stacks,
    own_python,
    stack_specs,
    stacks_folder,
)
from paceline.execution.worker import Limits, run_worker
from paceline.measurements.compare import CellComparison
from paceline.measurements.compare import compare as compare_records
from paceline.measurements.ledger import LedgerRow
from paceline.measurements.records import Record
from paceline.measurements.store import Store, default_store_folder, read_segment
from paceline.reading import MAX_LOG_BYTES, read_bytes
from paceline.units import format_duration, parse_bytes, parse_duration_s
from paceline.values import dataclass
from paceline.writing import make_folder, write_whole

_MEMORY_SHARE = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """What a user asked to measure, as typed.

    Attributes:
        batch: Items per device; None to search for the largest.
        mode: What one step is.
        precision: Names.
        compiler: Names, or ``usual``.
        stack: Names; empty for the PyTorch at hand.
        python: A Python that has PyTorch.
        device: ``cpu``, ``gpu``, ``auto``; several with commas, one after another.
        threads: CPU threads of each process; shared evenly if None.
        seq: Sequence length.
        image_size: Side of the square input.
        optimizer: Name.
        channels_last: Layout.
        timeout: Longest time of one cell.
        memory: Cap of main memory of one cell; most of what is free if None.
        seconds: Shortest time to sample a cell.
        profile: Folder for traces.
        store: Folder of measurements.
    """

    models: tuple[str, ...]
    batch: tuple[int, ...] | None = (1, 4, 16)
    devices: tuple[int, ...] = (1,)
    mode: tuple[str, ...] = (USUAL_MODE,)
    precision: tuple[str, ...] = ("fp32",)
    compiler: tuple[str, ...] = (USUAL_COMPILER,)
    stack: tuple[str, ...] = ()
    python: str | None = None
    device: str = "auto"
    threads: int | None = None
    seq: int = DEFAULT_SEQ
    image_size: int | None = None
    optimizer: str = "sgd"
    channels_last: bool = False
    timeout: str = "10min"
    memory: str | None = None
    seconds: float = 1.0
    profile: Path | None = None
    store: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What ``paceline doctor`` found.

    Attributes:
        facts: What the machine says about itself.
        machine: What the catalogue makes of it.
        frameworks: What this Python has, as ``name version``.
        stacks: Environments that have been created.
        findings: What is wrong, with proof and remedy.
        log: The file that was read; None where this machine's own tools were.
        unexplained: How the log ends, where no cause of it is known; empty without.
    """

    facts: HostFacts
    machine: Machine
    frameworks: tuple[str, ...]
    stacks: tuple[str, ...]
    findings: tuple[Finding, ...]
    log: str | None = None
    unexplained: str = ""


class Talker:
    """Progress on stderr: a line that renews itself on a terminal, one line per cell elsewhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()

    def __call__(self, notice: Notice) -> None:
        """Say where the sweep is."""
        if self._is_terminal:
            end = "\n" if notice.stage == "done" else ""
            print(f"\r\x1b[K{_notice_text(notice)}", end=end, file=self._stream, flush=True)
        elif notice.stage == "done":
            print(_notice_text(notice), file=self._stream, flush=True)


def measure(request: MeasureRequest, *, talk: Callable[[Notice], None]) -> tuple[LedgerRow, ...]:
    """Measure a sweep and put predictions beside it.

    Raises:
        PacelineError: One of its leaves, with a hint.
    """
    _check_names(request)
    _check_engines(request)
    sweep = _sweep(request)
    sites = _sites(request)
    stacks = _stacks(request)
    with Store(request.store or default_store_folder()) as store:
        store.check_writable()
        records: list[Record] = []
        try:
            for place, settings in sites:
                records.extend(_measure(sweep, stacks, place, store, settings, talk))
        except KeyboardInterrupt:
            print(f"\nkept in {store.folder}; the same command goes on from there", file=sys.stderr)
            raise
        _require_a_result(records)
        if any(record.median_s is not None for record in records):
            for place, settings in sites:
                _measure_ceilings(request, stacks, place, store, settings)
        return ledger_of_store(store.read().records, records, python=_own_interpreter(stacks))


def _sites(request: MeasureRequest) -> list[tuple[Place, Settings]]:
    """Each kind of device of this machine that is measured, once, with its settings.

    Raises:
        PacelineError: There is no such device, not so many, or none is named.
    """
    kinds = [name.strip() for name in request.device.split(",") if name.strip()]
    if not kinds:
        raise InvalidInputError("--device names none", hint="name cpu, gpu or auto")
    found: dict[str, tuple[Place, Settings]] = {}
    for kind in kinds:
        place, device = place_here(max(request.devices), kind)
        found.setdefault(device, (place, _settings(request, place.facts, device)))
    return list(found.values())


def _own_interpreter(stacks: Mapping[str, Stack]) -> str:
    """Where functions of the user's own were run: in the first stack."""
    return str(next(iter(stacks.values())).python)


def _measure_ceilings(
    request: MeasureRequest,
    stacks: Mapping[str, Stack],
    place: Place,
    store: Store,
    settings: Settings,
) -> None:
    """Measure what predicts steps of this machine and is not known yet.

    It is asked for when a cell has been measured: ceilings take a while, and a wrong name of a
    model is told before them.
    """
    own = [stack for stack in stacks.values() if stack.spec.framework in cpu_frameworks()]
    if all(stack.spec.framework != "torch" for stack in own):
        with suppress(InvalidInputError):
            own.insert(0, default_stack(stacks_folder()))
    for stack in own:
        measure_missing_ceilings(
            place,
            settings,
            store,
            stack,
            num_devices=max(request.devices),
            talk=lambda text: print(text, file=sys.stderr),
        )


def _check_names(request: MeasureRequest) -> None:
    """Refuse what no engine has; what only one of them lacks is a skipped cell.

    Raises:
        InvalidInputError: A list of them is empty.
        UnknownNameError: A precision or compiler that does not exist.
    """
    for option in ("precision", "compiler", "mode"):
        if not getattr(request, option):
            hint = "name one, or several with commas, or leave it out"
            raise InvalidInputError(f"--{option} names none", hint=hint)
    for precision in request.precision:
        find_precision(precision)
    known = {USUAL_COMPILER, *(name for spec in stack_specs().values() for name in spec.compilers)}
    for compiler in request.compiler:
        if compiler not in known:
            raise UnknownNameError.from_name("compiler", compiler, sorted(known))


def _check_engines(request: MeasureRequest) -> None:
    """Refuse models that the engine of a stack does not run.

    Raises:
        InvalidInputError: It is for another kind of model.
    """
    specs = [find_spec(name) for name in request.stack or ("torch",)]
    for model in request.models:
        check_engine(model, specs)


def _require_a_result(records: Sequence[Record]) -> None:
    """Refuse a table in which every cell failed: that is a wrong name or a broken environment.

    Raises:
        WorkerError: Not one cell ended in any other way.
    """
    if records and all(record.outcome == "failed" for record in records):
        raise WorkerError(
            f"no cell could be measured: {records[0].reason}",
            hint=failure_hint(records[0].workload),
        )


def check_page(path: Path) -> None:
    """Refuse a page that could not be written before anything is measured for it.

    Raises:
        InvalidInputError: A folder stands there, or what writes pages is not installed.
    """
    from paceline.reporting.pages.html import check_installed

    if path.is_dir():
        raise InvalidInputError(f"`{path}` is a folder", hint="name a file, such as sweep.html")
    check_installed()


def write_html(rows: Sequence[LedgerRow], path: Path) -> None:
    """Write the report page."""
    from paceline.reporting.pages.html import page_html
    from paceline.reporting.pages.measured import measurements_page

    write_whole(path, page_html(measurements_page(rows)))


def examine(log: Path | None) -> Examination:
    """Diagnose this machine, and the output of a failed run if one is given.

    Raises:
        InvalidInputError: The log cannot be read.
    """
    facts = probe_host()
    catalog = load_catalog()
    machine = probe_machine(catalog, facts=facts)
    output = tool_output() if log is None else _log_text(log)
    of_output = diagnose_output(output, facts)
    findings = of_output + diagnose_machine(
        facts, _environment(), device=whole_gpu(facts.gpus, catalog.devices)
    )
    created = list_stacks(stacks_folder())
    return Examination(
        facts=facts,
        machine=machine,
        frameworks=installed_frameworks(),
        stacks=tuple(stack.spec.name for stack in created),
        findings=findings,
        log=None if log is None else str(log),
        unexplained="" if log is None or of_output else last_error(output),
    )


def compare_files(
    before: Path, after: Path, *, tolerance_frac: float
) -> tuple[CellComparison, ...]:
    """Compare two stores or segment files.

    Raises:
        InvalidInputError: One of them holds no records.
    """
    return compare_records(read_records(before), read_records(after), tolerance_frac=tolerance_frac)


def read_records(path: Path) -> tuple[Record, ...]:
    """Records of a store folder or of one segment file.

    Raises:
        InvalidInputError: There are none.
    """
    if path.is_dir():
        records = Store(path).read().records
    elif path.is_file():
        records = tuple(record for record in read_segment(path) if record is not None)
    else:
        records = ()
    if not records:
        raise InvalidInputError(
            f"`{path}` holds no measurements", hint="name a store folder or a .jsonl file"
        )
    return records


def check_stacks(names: Sequence[str]) -> Iterator[str]:
    """One line per stack that works.

    Raises:
        WorkerError: One does not.
    """
    folder = stacks_folder()
    stacks = [find_stack(name, folder) for name in names] or list_stacks(folder)
    for stack in stacks:
        request = {"action": "hello", "framework": stack.spec.framework, "paths": []}
        result = run_worker(
            stack.command(),
            request,
            limits=Limits(timeout_s=120.0),
            environment=stack.spec.environment,
        )
        if result.ending != "ok":
            raise WorkerError(
                f"the stack `{stack.spec.name}` does not work: {result.reason}",
                hint=f"`paceline stacks remove {stack.spec.name}`, then create it again",
                details=result.details,
            )
        devices = ", ".join(result.answer["devices"]) or result.answer["platform"]
        yield f"{stack.spec.name}: {result.answer['framework_version']} on {devices}"


def _sweep(request: MeasureRequest) -> Sweep:
    return Sweep(
        workloads=tuple(map(measured_entry, request.models)),
        batches=request.batch or (),
        devices=request.devices,
        precisions=request.precision,
        compilers=request.compiler,
        modes=_modes(request.mode, request.stack),
        seq=request.seq,
        image_size=request.image_size,
        optimizer=read_word(request.optimizer, get_args(Optimizer), "optimizer"),
        channels_last=request.channels_last,
    )


def _measure(
    sweep: Sweep,
    stacks: dict[str, Stack],
    place: Place,
    store: Store,
    settings: Settings,
    talk: Callable[[Notice], None],
) -> Iterator[Record]:
    cells = sweep_cells(sweep, [stack for name, stack in stacks.items() if name != EXPORTER])
    if sweep.batches:
        yield from measure_cells(cells, stacks, place, store, settings, talk=talk)
        return
    for cell in cells:

        def attempt(wanted: Cell) -> Record:
            return next(measure_cells([wanted], stacks, place, store, settings, talk=talk))

        yield from search_largest(cell, attempt)


def place_here(num_devices: int, device: str = "auto") -> tuple[Place, str]:
    """This machine with sensors on what will be used, and whether that is ``cpu`` or ``cuda``.

    Raises:
        PacelineError: There is no such device, or not so many.
    """
    facts = probe_host()
    machine = probe_machine(load_catalog(), facts=facts)
    used = _device(device, facts)
    _check_count(num_devices, used, facts)
    sensors = Sensors(open_nvml(), range(num_devices) if used == "cuda" else ())
    place = Place(facts=facts, machine=machine, fingerprint=fingerprint(), sensors=sensors)
    return place, used


def _check_count(num_devices: int, device: str, facts: HostFacts) -> None:
    """Refuse what would run on nothing: a process that shares a core would measure its waits."""
    if device == "cuda" and num_devices > len(facts.gpus):
        raise InvalidInputError(
            f"{num_devices} devices asked for, {len(facts.gpus)} GPUs are here",
            hint="lower --devices, or measure processes with --device cpu",
        )
    if device == "cpu" and num_devices > facts.num_threads:
        raise InvalidInputError(
            f"{num_devices} processes asked for, {facts.num_threads} processors are here",
            hint=f"lower --devices to at most {facts.num_threads}",
        )


def _settings(request: MeasureRequest, facts: HostFacts, device: str) -> Settings:
    share = 1 if device == "cuda" else max(request.devices)
    free_bytes = _MEMORY_SHARE * _free_memory_bytes(facts)
    return Settings(
        timeout_s=parse_duration_s(request.timeout),
        memory_bytes=parse_bytes(request.memory) if request.memory else free_bytes,
        num_threads=request.threads or max(1, facts.num_threads // share),
        device=device,
        timing={
            **QUICK_TIMING,
            "min_s": request.seconds,
            "max_s": 20.0 * request.seconds,
            "max_warmup_s": 10.0 * request.seconds,
        },
        profile_folder=_made(request.profile),
        user_folder=Path.cwd(),
    )


def _device(name: str, facts: HostFacts) -> str:
    if name not in ("auto", "cpu", "gpu"):
        raise UnknownNameError.from_name(
            "kind of device", name, ("auto", "cpu", "gpu"), command="paceline measure --help"
        )
    has_gpu = any(gpu.vendor in ("NVIDIA", "AMD") for gpu in facts.gpus)
    if name == "gpu" and not has_gpu:
        raise InvalidInputError(
            "no GPU with a driver is here", hint="`paceline doctor` says what this machine has"
        )
    return "cpu" if name == "cpu" or not has_gpu else "cuda"


def _free_memory_bytes(facts: HostFacts) -> float:
    try:
        text = Path("/proc/meminfo").read_text()
        free = next(line for line in text.splitlines() if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return facts.host_memory_bytes
    return min(facts.host_memory_bytes, int(free.split()[1]) * 1024.0)


def _made(folder: Path | None) -> Path | None:
    if folder is not None:
        make_folder(folder)
    return folder


def _stacks(request: MeasureRequest) -> dict[str, Stack]:
    folder = stacks_folder()
    if request.python and len(request.stack) > 1:
        raise InvalidInputError(
            "one Python cannot be several stacks",
            hint="give --python with the one stack that it has, or leave it out",
        )
    if request.python:
        spec = find_spec(request.stack[0] if request.stack else "torch")
        found = [own_python(spec, Path(request.python))]
    elif request.stack:
        found = [find_stack(name, folder) for name in request.stack]
    else:
        found = [default_stack(folder)]
    stacks = {stack.spec.name: stack for stack in found}
    is_exported = not all(map(is_onnx_file, request.models))
    if is_exported and any(stack.spec.framework in ONNX_FRAMEWORKS for stack in found):
        stacks[EXPORTER] = find_stack("torch", folder)
    return stacks


def _modes(names: Sequence[str], stacks: Sequence[str] | None) -> tuple[Mode, ...]:
    """What is timed; usually a training step, and the forward pass where no stack trains."""
    known = get_args(Mode)
    able = [set(find_spec(name).modes) for name in stacks or ("torch",)]
    trained = [mode for mode in reversed(known) if any(mode in modes for modes in able)]
    usual = next(iter(trained), "step")
    typed = (usual if name == USUAL_MODE else name for name in names)
    return tuple(
        read_word(name, known, "mode", command="paceline measure --help") for name in typed
    )


def _environment() -> tuple[str, ...]:
    return tuple(os.environ)


def _log_text(log: Path) -> str:
    if str(log) == "-":
        return sys.stdin.read()
    content = read_bytes(
        log, what="log", most_bytes=MAX_LOG_BYTES, hint="name a file, or - for stdin"
    )
    return content.decode(errors="replace")


def _notice_text(notice: Notice) -> str:
    from paceline.reporting.screens.measurements import step_text

    head = f"[{notice.number}/{notice.num_cells}] {notice.cell.key}"
    if notice.record is None:
        body = notice.stage
    else:
        body = step_text(notice.record) + (" ms/step" if notice.record.median_s else "")
    left = "" if not notice.left_s else f" · about {format_duration(notice.left_s, 2)} left"
    return f"{head} · {body}{left}"
