"""Predictions to stand beside what is measured on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from paceline.app.requests.plan_request import load
from paceline.app.requests.predictions import Question, read_question
from paceline.errors import PacelineError
from paceline.execution.ceilings import SOURCE as CEILINGS
from paceline.execution.ceilings import measure_ceilings, summarize_ceilings
from paceline.execution.cells import DEFAULT_SEQ
from paceline.execution.conditions import Place, Settings
from paceline.execution.machine_model import (
    LocalModel,
    fit_local,
    predict_local,
    start_model,
    with_other_kernels,
)
from paceline.execution.machine_work import StepWork, cpu_frameworks, step_work, with_pages
from paceline.execution.recording import SOURCE as STEPS
from paceline.execution.stacks import Stack
from paceline.measurements.ledger import LedgerRow
from paceline.measurements.records import Record
from paceline.measurements.store import Store
from paceline.model.graph.costs import Compiler, Configuration, LoweredPass
from paceline.model.graph.graph import Phase
from paceline.model.graph.workload import Workload
from paceline.model.names.front_ends import default_front_end, front_end_of
from paceline.planfile import Interval
from paceline.simulation.begun_process import begun_process_bytes
from paceline.simulation.job import Job
from paceline.simulation.rank import RankPasses
from paceline.simulation.simulator import simulate

Talk = Callable[[str], None]
#: How steps ran: framework and compiler.
Way = tuple[str, str]

#: How steps run that nobody said anything about.
PLAIN: Way = ("torch", "eager")

#: What the engines' optimizers are called where models are traced: their SGD has momentum.
_TRACED_OPTIMIZERS = {"sgd": "sgd-momentum", "sgd-plain": "sgd"}
#: Outcomes of cells that no prediction is set beside: their models may not even build.
_NOT_RUN = frozenset({"failed", "skipped"})
#: Share of its cores below which a step was slowed by others, and teaches nothing.
_CALM_FRAC = 0.8


def ledger_of(
    records: Sequence[Record], models: Mapping[Way, LocalModel], *, python: str | None = None
) -> tuple[LedgerRow, ...]:
    """Each record with what the model of its way says about it, where there is one.

    Args:
        records: Measured steps.
        models: Of this machine, by way.
        python: That functions of the user's own were run in; found if not given.
    """
    return tuple(_ledger_row(record, models.get(_way(record)), python) for record in records)


def ledger_of_store(
    records: Sequence[Record], asked: Sequence[Record] | None = None, *, python: str | None = None
) -> tuple[LedgerRow, ...]:
    """Steps of a store with predictions that have not seen their model.

    Each model is predicted by the store's ceilings and the steps of the other models on the same
    machine and threads, so the errors are those of a model that is new here. A later measurement
    of a step takes the place of an earlier one.

    Args:
        records: All that the store holds, oldest first.
        asked: Those of the steps that are asked for; all of them if not given.
        python: That functions of the user's own were run in; found if not given.
    """
    newest = _newest(records)
    models: dict[tuple[object, ...], LocalModel | None] = {}
    rows: list[LedgerRow] = []
    for record in newest if asked is None else asked:
        if record.kind != "step":
            continue
        key = (
            record.workload, record.machine, record.device_name, record.num_threads, _way(record)
        )  # fmt: skip
        if key not in models:
            models[key] = _model_without(record, newest, python)
        rows.append(_ledger_row(record, models[key], python))
    return tuple(rows)


def _newest(records: Iterable[Record]) -> list[Record]:
    """The last record of each cell, in the order in which cells were first measured.

    Of the ceilings all stay: the best of them counts.
    """
    last: dict[object, Record] = {}
    for record in records:
        is_repeated = record.cell and record.source != CEILINGS
        last[(record.machine, record.num_threads, record.cell) if is_repeated else id(record)] = (
            record
        )
    return list(last.values())


def _model_without(
    record: Record, records: Sequence[Record], python: str | None
) -> LocalModel | None:
    """The model of the record's machine and way, calibrated on all but the record's workload."""
    here = [other for other in records if _same_place(record, other)]
    ceilings = [other for other in here if other.source == CEILINGS]
    others = [r for r in here if r.source == STEPS and r.workload != record.workload]
    return _of_way(ceilings, others, _way(record), python)


def _of_way(
    ceilings: Sequence[Record], records: Sequence[Record], way: Way, python: str | None = None
) -> LocalModel | None:
    """The model of steps of one way, from its own ceilings, or from those of PyTorch and steps."""
    summary = summarize_ceilings(ceilings)
    lessons = [record for record in records if _is_lesson(record, way)]
    if any(_way(record) == way for record in ceilings):
        start = start_model(summary, way[0])
    else:
        start = start_model(summary) if lessons else None
        start = None if start is None else with_other_kernels(start)
    return None if start is None else calibrated(start, lessons, python=python)


def _way(record: Record) -> Way:
    return record.framework or "", record.compiler or "eager"


def _same_place(record: Record, other: Record) -> bool:
    places = ((one.machine, one.device_name, one.num_threads) for one in (record, other))
    return next(places) == next(places)


def known_local_model(store: Store, machine: str, num_threads: int) -> LocalModel | None:
    """The model of a CPU from what a store holds; None where it lacks ceilings."""
    records = store.read().records
    here = [r for r in records if (r.machine, r.num_threads) == (machine, num_threads)]
    ceilings = [record for record in here if record.source == CEILINGS]
    return _of_way(ceilings, [record for record in here if record.kind == "step"], PLAIN)


def local_step_s(
    model: LocalModel, workload: Workload, *, batch: int, seq: int, microbatches: int, ranks: int
) -> Interval | None:
    """Time of an optimizer step of a workload in FP32, op by op; None for so many ranks.

    Args:
        model: Of this machine.
        workload: What is trained.
        batch: Items of a microbatch.
        seq: Tokens of a sequence; 1 without any.
        microbatches: Of a step; all but the last end without an update.
        ranks: Processes at once.
    """
    lowered = _lowered_here(workload)
    works = [step_work(_without_update(lowered), batch=batch, seq=seq)] * (microbatches - 1)
    steps = [
        predict_local(model, work, num_devices=ranks)
        for work in (*works, step_work(lowered, batch=batch, seq=seq))
    ]
    known = [step for step in steps if step is not None]
    if len(known) < microbatches:
        return None
    return Interval(
        low=sum(step.low_s for step in known),
        mid=sum(step.mid_s for step in known),
        high=sum(step.high_s for step in known),
    )


def local_memory_bytes(
    workload: Workload, *, batch: int, seq: int, microbatches: int, held_bytes: float, heap: str,
    is_data: bool = False,
) -> Interval:  # fmt: skip
    """Peak of a training process on a CPU in FP32: low, median and the bound at 95 %.

    Args:
        workload: What is trained.
        batch: Items of a microbatch.
        seq: Tokens of a sequence; 1 without any.
        microbatches: Of a step.
        held_bytes: What the process held with its parameters, before its first step.
        heap: Whose heap it has, as ``glibc 2.36``.
        is_data: Whether the process's own data are meant, of which it held so much.
    """
    step = _lowered_here(workload, accumulates=microbatches > 1)
    return begun_process_bytes(
        workload.passes[0].graph, step, batch=batch, seq=seq, began_bytes=held_bytes, heap=heap,
        is_data=is_data,
    )  # fmt: skip


def calibrated(
    model: LocalModel, records: Iterable[Record], *, python: str | None = None
) -> LocalModel:
    """``model`` moved to measured steps; records it cannot read are left out.

    Args:
        model: Where to begin.
        records: Steps.
        python: That functions of the user's own were run in; found if not given.
    """
    return fit_local(model, _pairs(records, python))


def measure_missing_ceilings(
    place: Place,
    settings: Settings,
    store: Store,
    stack: Stack,
    *,
    num_devices: int,
    talk: Talk = lambda text: None,
) -> None:
    """Measure the ceilings of a CPU that the store lacks, and keep them there.

    Args:
        place: Where.
        settings: How; threads must be those of the steps.
        store: Measurements of before.
        stack: PyTorch, or a backend of Keras.
        num_devices: Most processes that will run at once.
        talk: Told when something has to be measured.
    """
    framework = stack.spec.framework
    if settings.device != "cpu" or _has_ceilings(store, place, settings, num_devices, framework):
        return
    talk(f"measuring what {stack.spec.name} reaches here, to predict beside (once, some 30 s)")
    for record in measure_ceilings(stack, place, settings, num_devices=num_devices):
        store.append(record)


def _has_ceilings(
    store: Store, place: Place, settings: Settings, num_devices: int, framework: str
) -> bool:
    """Whether a model can begin with what the store has, for all numbers of processes."""
    found = [
        record
        for record in store.read().records
        if record.source == CEILINGS
        and record.machine == place.fingerprint
        and record.num_threads == settings.num_threads
    ]
    counts = {record.num_devices for record in found if record.framework == framework}
    wanted = {1, num_devices} if framework == PLAIN[0] else {1}
    return wanted <= counts and start_model(summarize_ceilings(found), framework) is not None


def _is_lesson(record: Record, way: Way) -> bool:
    """A step that teaches the model of a way: of one process that had its cores to itself."""
    share = record.utilization_frac
    had_its_cores = share is None or share >= _CALM_FRAC
    has_time = record.num_devices == 1 and record.median_s is not None
    return has_time and had_its_cores and _way(record) == way and record.precision == "fp32"


def _pairs(records: Iterable[Record], python: str | None) -> list[tuple[StepWork, float]]:
    """Work and seconds of each step, with the pages that it took where they were counted."""
    pairs = []
    for record in records:
        work = _work(record, python)
        if work is not None and record.median_s is not None:
            pairs.append((with_pages(work, record.fresh_bytes), record.median_s))
    return pairs


def _catalogue_row(record: Record) -> LedgerRow:
    """A GPU's record with what `paceline predict` says about its device."""
    if record.framework != "torch" or record.mode == "forward-backward":
        return LedgerRow(record=record)
    workload = traced_workload(record)
    question = Question(
        device=record.device_name,
        batches=(int(record.batch_per_device or 1),),
        counts=(record.num_devices,),
        precision=record.precision,
        compiler=record.compiler or "eager",
    )
    if workload is None:
        return LedgerRow(record=record)
    try:
        asked = read_question(question, workload)
        grid = asked.answer(simulate(asked.cases, calibration=asked.calibration))
    except PacelineError:
        return LedgerRow(record=record)
    cell = grid.cells[0]
    if cell.step_s is None:
        return LedgerRow(record=record, predicted_bytes=cell.memory_bytes.mid)
    return LedgerRow(
        record=record,
        predicted_s=cell.step_s.mid,
        predicted_low_s=cell.step_s.low,
        predicted_high_s=cell.step_s.high,
        predicted_bytes=cell.memory_bytes.mid,
        calibration=grid.calibration,
    )


def _ledger_row(record: Record, model: LocalModel | None, python: str | None) -> LedgerRow:
    """The record with its prediction; a cell that did not run has none to be judged by."""
    if record.outcome in _NOT_RUN:
        return LedgerRow(record=record)
    if model is None and record.power_limit_w is not None:
        return _catalogue_row(record)
    work = _work(record, python) if model is not None and record.precision == "fp32" else None
    if model is None or work is None:
        return LedgerRow(record=record)
    step = predict_local(model, work, num_devices=record.num_devices)
    if step is None:
        return LedgerRow(record=record)
    return LedgerRow(
        record=record,
        predicted_s=step.mid_s,
        predicted_low_s=step.low_s,
        predicted_high_s=step.high_s,
        calibration=model.name,
    )


def _work(record: Record, python: str | None = None) -> StepWork | None:
    """What the record's step asks for; None for a model that cannot be traced here."""
    lowered = _lowered(
        record.workload, record.task, record.mode, _optimizer(record), record.image_size,
        _compiler(record), python,
    )  # fmt: skip
    if lowered is None or record.batch_per_device is None:
        return None
    seq = int(record.seq or DEFAULT_SEQ)
    return step_work(
        lowered, batch=int(record.batch_per_device), seq=seq, framework=record.framework or ""
    )


def _compiler(record: Record) -> str:
    """What a compiler of the record's framework makes of ops: a graph may run them one by one."""
    compiler = record.compiler or "eager"
    lowered = cpu_frameworks().get(record.framework or "", {}).get("lowered")
    return "eager" if (lowered, compiler) == ("eager", "compiled") else compiler


def traced_workload(record: Record) -> Workload | None:
    """The model of a record as its step ran; None where it cannot be traced here."""
    return _traced(record.workload, record.task, _optimizer(record), record.image_size)


def _optimizer(record: Record) -> str:
    name = record.optimizer or "sgd"
    return _TRACED_OPTIMIZERS.get(name, name)


@cache
def _lowered(
    workload: str, task: str, mode: str, optimizer: str, image_size: float | None,
    compiler: Compiler, python: str | None,
) -> LoweredPass | None:  # fmt: skip
    traced = _traced(workload, task, optimizer, image_size, python)
    if traced is None:
        return None
    lowered = _lowered_here(traced, compiler)
    return _without_update(lowered) if mode == "forward-backward" else lowered


def _lowered_here(
    workload: Workload, compiler: Compiler = "eager", *, accumulates: bool = False
) -> LoweredPass:
    """What one step asks of a CPU in FP32, where optimizers take tensors one by one.

    A compiler makes one kernel of what an optimizer does to a tensor.
    """
    configuration = Configuration(
        precision="fp32", platform="cpu", channels_last=False, compiler=compiler,
        optimizer_kernel="plain" if compiler == "eager" else "fused", accumulates=accumulates,
    )  # fmt: skip
    passes = RankPasses.of(Job(workload=workload, configuration=configuration))
    return next(iter(passes.lowered.values()))


@cache
def _traced(
    workload: str, task: str, optimizer: str, image_size: float | None, python: str | None = None
) -> Workload | None:
    """The workload as `measure` understands its name: torchvision needs no prefix there."""
    is_function = ":" in workload and front_end_of(workload) is default_front_end()
    for entry in (workload,) if ":" in workload else (workload, f"torchvision:{workload}"):
        try:
            return load(
                entry,
                task=task,
                seq=None,
                image_size=None if image_size is None else int(image_size),
                optimizer=optimizer if task == "train" else None,
                python=python if is_function else None,
            )
        except PacelineError:
            # Measured all the same: the prediction beside it is a courtesy.
            continue
    return None


def _without_update(lowered: LoweredPass) -> LoweredPass:
    keeps = lowered.costs.phase != int(Phase.OPTIMIZER)
    return replace(lowered, costs=replace(lowered.costs, count=lowered.costs.count * keeps))
