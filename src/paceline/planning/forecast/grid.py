"""Predictions at stated devices, counts and batch sizes, by the same road as the search takes.

The grid has one cell per (device, count, way, batch). A way is a precision with a compiler where
the goal names several; else there is one. Of the configurations of a way, a cell shows the fastest
that fits, or where none fits, the one that needs least memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from paceline.catalog.entities import Catalog
from paceline.dtypes import find_precision
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.graph.workload import Task, Workload
from paceline.parallelism.memory.memory_fit import chance_to_fit, quantile_bytes
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Sharding
from paceline.parallelism.uncertainty import (
    energy_interval_of,
    interval_of,
    is_rough,
    is_too_wide,
    width_words,
)
from paceline.planfile import Interval
from paceline.planning.forecast.grid_jobs import (
    GridAxes,
    GridCases,
    UnansweredDevice,
    capacity_bytes,
    grid_cases,
)
from paceline.planning.goal.chance import chance_text
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.goal.service import service_of
from paceline.planning.places.configurations import (
    DeviceSupport,
    as_run,
    why_unusable,
)
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.kernels.power import idle_power_w
from paceline.simulation.held_memory import held_memory
from paceline.simulation.memory_kinds import live_bytes
from paceline.simulation.simulator import simulate
from paceline.stack.engines import shipped_engine
from paceline.units import format_bytes
from paceline.values import dataclass

if TYPE_CHECKING:
    from paceline.planning.forecast.services import ServiceCell

_MANY = 1_000_000
#: Where memory sets no limit, the best batch is the smallest that reaches this share of the most.
_SETTLED_FRAC = 0.98
#: Share of a device's memory that engines use, weights and cache together, unless told otherwise.
#: Source: docs.vllm.ai, engine arguments, gpu_memory_utilization (recalled).
_ENGINE_MEMORY_FRAC = 0.9

Status = Literal["fits", "out of memory", "abstained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryParts:
    """Whose the memory of one device is at the peak; the parts sum to the median.

    Attributes:
        weights_bytes: Parameters as they are stored.
        optimizer_bytes: States of the optimizer, master weights included.
        process_bytes: The driver's context, libraries, and what the allocator adds.
        rest_bytes: Of training gradients and activations, of inference caches and activations;
            work space too.
    """

    weights_bytes: float
    optimizer_bytes: float
    process_bytes: float
    rest_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One prediction.

    Attributes:
        device: ``Device.name``.
        num_devices: How many, in one machine.
        tensor_degree: How many of them share every layer, and then a batch; the rest are replicas.
        stages: Groups of those that have the layers one after the other, each with a batch.
        sharding: What the devices of a training job split.
        batch_per_device: Items per device and step.
        precision: Name in ``dtypes.PRECISIONS``.
        compiler: ``eager``, ``compiled`` …
        engine: What runs a batch as it is, where that is no PyTorch, such as ``OpenVINO``.
        status: Whether it fits, and whether the interval is narrow enough to be an answer.
        is_rough: Whether the interval is wider than half to double: a figure, but no ground for a
            choice.
        step_s: Step time; of one whole answer in generation. None unless it fits, as below.
        samples_per_s: Throughput of all devices.
        latency_s: Per output token of a generation, else of one batch; None in training.
        ttft_s: Time to first token; None where it does not apply.
        efficiency_frac: Throughput against so many single devices.
        mfu_frac: Model FLOP per second over a device's dense peak; None where no peak is known, and
            of generation, which memory holds back.
        energy_j_per_sample: Device energy; None if the power is unknown.
        energy_interval_j_per_sample: Of that; None likewise.
        memory_bytes: Peak on one device: low, median, 95 % bound.
        memory_parts: Whose the median is.
        memory_capacity_bytes: What one device has; infinite for a CPU, whose machine is not said.
        chance_memory: Chance to fit.
        bound: What holds it back, as a word.
        reason: Why there is no figure; empty where there is one.
    """

    device: str
    num_devices: int
    batch_per_device: int
    precision: str
    compiler: str
    status: Status
    memory_bytes: Interval
    memory_parts: MemoryParts
    memory_capacity_bytes: float
    chance_memory: float
    bound: str
    reason: str
    step_s: Interval | None = None
    samples_per_s: Interval | None = None
    latency_s: Interval | None = None
    ttft_s: Interval | None = None
    efficiency_frac: float | None = None
    mfu_frac: float | None = None
    energy_j_per_sample: float | None = None
    energy_interval_j_per_sample: Interval | None = None
    tensor_degree: int = 1
    stages: int = 1
    sharding: Sharding = "none"
    is_rough: bool = False
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionGrid:
    """The model's predictions.

    Attributes:
        model: As typed.
        title: As printed.
        task: Training or inference.
        sample_unit: What throughput counts.
        calibration: Of the predictor.
        catalog_version: Of the facts.
        assumptions: Printed first, one sentence each.
        cells: By device, then count, then precision and compiler, then batch.
        unanswered: Devices without a prediction.
        generates: Whether answers are written token by token.
        remedies: What would make it fit where nothing does.
        load: The requests that come to a service, in words; empty where batches are asked for.
        services: What these requests see, by device and count; none likewise.
    """

    model: str
    title: str
    task: Literal["train", "infer"]
    sample_unit: str
    num_parameters: int
    calibration: str
    catalog_version: str
    assumptions: tuple[str, ...]
    cells: tuple[GridCell, ...]
    unanswered: tuple[UnansweredDevice, ...]
    generates: bool = False
    remedies: tuple[str, ...] = ()
    load: str = ""
    services: tuple[ServiceCell, ...] = ()


def predict_grid(
    workload: Workload,
    goal: Goal,
    work: Work,
    catalog: Catalog,
    axes: GridAxes,
) -> PredictionGrid:
    """Predict every (device, count, batch) with the built-in calibration.

    Args:
        workload: The model with its task.
        goal: Its precisions, compilers and chance to fit apply; the rest does not.
        work: Prompt and output lengths of a generation.
        catalog: For links.
        axes: The cells.
    """
    calibration = builtin_calibration()
    asked = grid_cases(workload, goal, work, catalog, axes)
    return grid_of(asked, simulate(asked.cases, calibration=calibration), calibration.name)


def grid_of(asked: GridCases, steps: Steps, calibration: str) -> PredictionGrid:
    """The grid whose cells show these steps.

    Raises:
        PacelineError: What was asked cannot be.
    """
    steps.check_asked()
    workload, goal = asked.workload, asked.goal
    cells = _cells(_grid(asked, steps))
    answered = {cell.device for cell in cells}
    silent = [one for one in asked.supports if one.device.name not in answered]
    return PredictionGrid(
        model=workload.name,
        title=workload.title,
        task=workload.task,
        sample_unit=workload.sample_unit,
        generates=workload.generates,
        num_parameters=workload.num_parameters,
        calibration=calibration,
        catalog_version=asked.catalog.version,
        assumptions=(
            *asked.assumptions,
            *_shared_words(cells, splits_layers=_splits_layers(asked)),
            *(_split_words(cells) if asked.axes.sharding == "auto" else ()),
        ),
        cells=cells,
        unanswered=(
            *asked.unanswered,
            *(_silent(one, goal, workload.task) for one in silent),
            *(one for one in _partly_silent(asked) if one.device in answered),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Grid:
    """The whole product with its figures, NaN where nothing runs, and which row each cell shows.

    Attributes:
        samples_per_s: Throughput of all devices.
        fits: At the goal's chance.
        chosen: Row shown per place, way and batch, (num_places, num_ways, P); -1 without one.
    """

    asked: GridCases
    steps: Steps
    samples_per_s: FloatArray
    fits: npt.NDArray[np.bool_]
    chosen: IntArray


def _grid(asked: GridCases, steps: Steps) -> _Grid:
    shape = asked.shape
    whole = Steps.joined([(asked.rows, steps)], int(np.prod(shape)))
    place, item, number = (index.ravel() for index in np.indices(shape))
    counts = np.array([one.count for one in asked.places], dtype=np.int64)
    capacities_bytes = np.array([capacity_bytes(one.device) for one in asked.places])
    degrees = np.array([one.tensor_degree for one in asked.configured], dtype=np.int64)
    is_inference = asked.workload.task == "infer"
    room_bytes = capacities_bytes * (_ENGINE_MEMORY_FRAC if is_inference else 1.0)
    samples = counts[place] / degrees[number] * asked.batch[item] * asked.samples_per_item
    samples_per_s = samples / whole.step_s
    needed_bytes = whole.needed_bytes(asked.goal.memory_confidence)
    fits = needed_bytes <= capacities_bytes[place]
    is_lone = (asked.batch[item] == 1) & (service_of(asked.goal, asked.workload) is not None)
    merit = np.where(is_lone, 1.0 / whole.per_token_s, samples_per_s)
    return _Grid(
        asked=asked,
        steps=whole,
        samples_per_s=samples_per_s,
        fits=fits,
        chosen=np.stack(
            [
                _choose(np.where(mine[number], merit, np.nan), whole.memory_mid_bytes,
                        fits, _sharing(asked), shape, room_bytes[place], is_lone)
                for mine in _ways(asked)
            ],
            axis=1,
        ),
    )  # fmt: skip


def _sharing(asked: GridCases) -> IntArray:
    """How much ranks share: layers of an inference, or the state of a training job at the end."""
    return np.array(
        [one.num_sharing + (one.sharding != "none") for one in asked.configured], dtype=np.int64
    )


def _ways(asked: GridCases) -> list[npt.NDArray[np.bool_]]:
    """Which configurations are each way that has cells of its own, (num_configured,).

    A ranking shows each device once, at its best.
    """
    goal, configured = asked.goal, [one.configuration for one in asked.configured]
    several = max(len(goal.widths), len(goal.compilers)) > 1
    if asked.axes.keeps_best_batch_only or not several:
        return [np.ones(len(configured), dtype=bool)]
    found = dict.fromkeys((c.precision, c.compiler) for c in configured)
    return [
        np.array([(c.precision, c.compiler) == way for c in configured], dtype=bool)
        for way in found
    ]


def _choose(
    merit: FloatArray,
    memory_bytes: FloatArray,
    fits: npt.NDArray[np.bool_],
    sharing: IntArray,
    shape: tuple[int, int, int],
    room_bytes: FloatArray,
    is_lone: npt.NDArray[np.bool_],
) -> npt.NDArray[np.int64]:
    """The best configuration that fits, else the one that needs least memory.

    Ranks share something only where one of them alone holds no batch in its room, or else no batch
    at all; or where a request is alone, which all of them may write together.

    Args:
        merit: Of each row, the most is best.
        memory_bytes: Likewise.
        fits: At the goal's chance.
        sharing: How much ranks share, of each configuration.
        shape: Of the rows.
        room_bytes: What a device leaves for the job.
        is_lone: Rows of one request in flight.
    """
    is_known = np.isfinite(merit) & np.isfinite(memory_bytes)
    score = np.where(is_known, np.where(fits, merit, -memory_bytes), -np.inf)
    if shape[2] == 0:
        return np.full(shape[:2], -1, dtype=np.int64)
    holds = (is_known & fits).reshape(shape).any(axis=1)
    is_roomy = is_known & fits & (memory_bytes <= room_bytes)
    roomy: npt.NDArray[np.bool_] = np.any(is_roomy.reshape(shape), axis=1)
    holds = np.where(roomy.max(axis=1, initial=False)[:, None], roomy, holds)
    least = np.where(holds, sharing, _MANY).min(axis=1)
    is_open = ((least == _MANY)[:, None] | (sharing == least[:, None]))[:, None, :]
    is_open = is_open | is_lone.reshape(shape)
    score = np.where(is_open, score.reshape(shape), -np.inf).reshape(score.shape)
    best = score.reshape(shape).argmax(axis=2)
    rows = np.arange(shape[0] * shape[1]).reshape(shape[:2]) * shape[2] + best
    return np.where(np.isfinite(score[rows]), rows, -1)


def _cells(grid: _Grid) -> tuple[GridCell, ...]:
    chosen = grid.chosen
    if grid.asked.axes.keeps_best_batch_only and chosen.size:
        chosen = chosen[:, 0]
        if not len(grid.samples_per_s):
            return ()
        rate = np.where(grid.fits, grid.samples_per_s, -1.0)[chosen]
        rate = np.where(chosen < 0, -np.inf, rate)
        places = grid.asked.places
        is_open = np.array([math.isinf(capacity_bytes(place.device)) for place in places])
        enough = rate.max(axis=1) * np.where(is_open, _SETTLED_FRAC, 1.0)
        best = (rate >= enough[:, None]).argmax(axis=1)
        chosen = chosen[np.arange(len(chosen)), best]
    return tuple(_cell(grid, int(row)) for row in chosen.ravel() if row >= 0)


def _cell(grid: _Grid, row: int) -> GridCell:
    asked, steps = grid.asked, grid.steps
    place, item, number = (int(one) for one in np.unravel_index(row, asked.shape))
    where, configured = asked.places[place], asked.configured[number]
    configuration = configured.configuration
    capacity = capacity_bytes(where.device)
    told = steps.memory_interval_bytes(row)
    memory = _held_memory(grid, row, capacity) if grid.fits[row] else told
    reason = _why_no_figure(grid, row, told, capacity)
    cell = GridCell(
        device=where.device.name,
        num_devices=where.count,
        tensor_degree=configured.tensor_degree,
        stages=configured.stages,
        sharding=configured.sharding if where.count > 1 else "none",
        batch_per_device=int(asked.batch[item]),
        precision=configuration.precision,
        compiler=configuration.compiler,
        engine=_runs_by_itself(asked.goal, configuration),
        status=_status(reason, fits=bool(grid.fits[row])),
        memory_bytes=memory,
        memory_parts=_memory_parts(grid, row, memory.mid),
        memory_capacity_bytes=capacity,
        chance_memory=chance_to_fit(capacity, told.mid, told.high),
        bound=steps.bound_word(row),
        reason=reason,
    )
    return cell if reason else _with_figures(cell, grid, row)


def _runs_by_itself(goal: Goal, configuration: Configuration) -> str:
    """What the goal or the way names, where that has kernels of its own for batches; else empty."""
    engine = goal.engine or shipped_engine(configuration.compiler)
    return "" if engine is None or not engine.is_own or configuration.is_served else engine.title


def _held_memory(grid: _Grid, row: int, capacity_bytes: float) -> Interval:
    """What a process holds of a device where it fits."""
    asked = grid.asked
    job = asked.cases.job_at(int(np.searchsorted(asked.rows, row)))
    return held_memory(job, grid.steps, row, capacity_bytes=capacity_bytes)


def _memory_parts(grid: _Grid, row: int, whole_bytes: float) -> MemoryParts:
    steps, configured = grid.steps, grid.asked.configured[row % len(grid.asked.configured)]
    how, engine = configured.configuration, configured.engine
    if engine is not None:
        how = replace(how, engine_kernels=engine.kernels)
    joined = float(np.nan_to_num(steps.communicator_bytes[row]))
    live = live_bytes(float(steps.memory_mid_bytes[row]), how, joined_bytes=joined)
    weights, state = (
        float(np.nan_to_num(column[row]))
        for column in (steps.parameter_bytes, steps.optimizer_state_bytes)
    )
    return MemoryParts(
        weights_bytes=weights,
        optimizer_bytes=state,
        process_bytes=whole_bytes - live,
        rest_bytes=max(live - weights - state, 0.0),
    )


def _with_figures(cell: GridCell, grid: _Grid, row: int) -> GridCell:
    """A cell that fits, with its figures."""
    asked, steps = grid.asked, grid.steps
    log_sigma, step = float(steps.log_sigma[row]), steps.step_interval_s(row)
    rate = float(grid.samples_per_s[row])
    alone_s = step.mid - float(steps.exposed_s[row] + steps.tensor_s[row])
    is_inference = asked.workload.task == "infer"
    batch_j = (float(steps.energy_j[row]) + _waiting_j(grid, row)) * cell.tensor_degree
    energy_j = _known(batch_j / (cell.batch_per_device * asked.samples_per_item))
    return replace(
        cell,
        is_rough=bool(is_rough(log_sigma)),
        step_s=step,
        samples_per_s=Interval(
            low=rate * step.mid / step.high, mid=rate, high=rate * step.mid / step.low
        ),
        latency_s=_around(steps.per_token_s[row], log_sigma) if is_inference else None,
        ttft_s=_around(steps.first_token_s[row], log_sigma) if is_inference else None,
        efficiency_frac=alone_s / step.mid,
        mfu_frac=_mfu_frac(grid, row, step.mid),
        energy_j_per_sample=energy_j,
        energy_interval_j_per_sample=energy_interval_of(energy_j, log_sigma),
    )


def _waiting_j(grid: _Grid, row: int) -> float:
    """What a device draws while it waits for others; nothing where it waits for none."""
    place, _, _ = np.unravel_index(row, grid.asked.shape)
    lost_s, tdp_w = grid.steps.lost_of(row), grid.asked.places[int(place)].device.tdp_w
    if not lost_s > 0.0:
        return 0.0
    return lost_s * float(idle_power_w(np.nan if tdp_w is None else tdp_w, builtin_calibration()))


def _mfu_frac(grid: _Grid, row: int, step_s: float) -> float | None:
    asked = grid.asked
    place, _, number = np.unravel_index(row, asked.shape)
    precision = find_precision(asked.configured[int(number)].configuration.precision)
    if asked.workload.generates:
        return None
    device = asked.places[int(place)].device
    return device.peak_frac(float(grid.steps.flop[row]) / step_s, precision)


def _why_no_figure(grid: _Grid, row: int, memory: Interval, capacity_bytes: float) -> str:
    confidence = grid.asked.goal.memory_confidence
    if not grid.fits[row]:
        bound = float(quantile_bytes(memory.mid, memory.high, confidence))
        return (
            f"needs {format_bytes(memory.mid)} ({format_bytes(bound)} at a chance of "
            f"{chance_text(confidence)}) of {format_bytes(capacity_bytes)}"
        )
    if grid.steps.reasons[row] is not None:
        return str(grid.steps.reasons[row])
    log_sigma = float(grid.steps.log_sigma[row])
    count = grid.asked.places[int(np.unravel_index(row, grid.asked.shape)[0])].count
    return width_words(log_sigma, count) if is_too_wide(log_sigma) else ""


def _status(reason: str, *, fits: bool) -> Status:
    if not fits:
        return "out of memory"
    return "abstained" if reason else "fits"


def _around(mid: float, log_sigma: float) -> Interval | None:
    return interval_of(float(mid), log_sigma) if math.isfinite(mid) else None


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _silent(support: DeviceSupport, goal: Goal, task: Task) -> UnansweredDevice:
    """Why a device with software for it has no figure: what was asked for, or a missing fact."""
    unusable = why_unusable(support, precisions=goal.widths, compilers=goal.compilers, task=task)
    if unusable is not None:
        reason = f"it does not run {unusable.wanted}: {unusable.choices}"
    elif goal.precisions:
        reason = f"how fast it runs this in {', '.join(goal.precisions)} is not known"
    else:
        reason = "a fact that the prediction needs is unknown"
    return UnansweredDevice(device=support.device.name, reason=reason)


def _partly_silent(asked: GridCases) -> Iterator[UnansweredDevice]:
    """What of several precisions or compilers a device does not run; a ranking names none."""
    goal, service = asked.goal, service_of(asked.goal, asked.workload)
    for support in () if asked.axes.keeps_best_batch_only else asked.supports:
        engine = None if service is None else service.on(support.device, support.platform)
        missing = [
            *(n for n in goal.widths if as_run(n, support, engine) not in support.precisions),
            *(name for name in goal.compilers if name not in support.compilers),
        ]
        if missing:
            reason = f"it does not run {', '.join(missing)}"
            yield UnansweredDevice(device=support.device.name, reason=reason)


def _splits_layers(asked: GridCases) -> bool:
    """Whether devices that share a model hold its layers one after the other."""
    engines = [one.engine for one in asked.configured if one.tensor_degree > 1]
    return bool(engines) and all(one is not None and one.splits_layers for one in engines)


def _shared_words(cells: Sequence[GridCell], *, splits_layers: bool) -> Iterator[str]:
    """Which devices share the model, one sentence per device and count."""
    shared = {
        (c.device, c.num_devices, c.tensor_degree, c.stages) for c in cells if c.tensor_degree > 1
    }
    copied = {(c.device, c.num_devices) for c in cells if c.tensor_degree == 1}
    for device, count, degree, stages in sorted(shared):
        if stages > 1:
            yield _staged_words(device, count, degree, stages)
            continue
        replicas = f", in {count // degree} replicas" if count > degree else ""
        when = " at batch 1; else each holds a copy" if (device, count) in copied else ""
        how = f"share every layer (tp{degree})"
        if splits_layers:
            how = "hold its layers one after the other, and work in turn"
        of_all = f"{degree} of {count} devices {how}"
        yield f"{device}: {of_all}{replicas}{when}"


def _staged_words(device: str, count: int, degree: int, stages: int) -> str:
    whole = degree * stages
    replicas = f", in {count // whole} replicas" if count > whole else ""
    return (
        f"{device}: {whole} of {count} devices hold the model in {stages} stages of {degree} that "
        f"share each layer (pp{stages}.tp{degree}), a machine each, with a batch in each{replicas}"
    )


def _split_words(cells: Sequence[GridCell]) -> Iterator[str]:
    """Which devices share the training state though nobody said so; like counts together."""
    counts: dict[str, set[int]] = {}
    for cell in cells:
        if cell.sharding != "none" and cell.status == "fits":
            counts.setdefault(cell.device, set()).add(cell.num_devices)
    for like in sorted({tuple(sorted(some)) for some in counts.values()}):
        names = " and ".join(name for name, some in counts.items() if tuple(sorted(some)) == like)
        yield (
            f"{names}: {' or '.join(map(str, like))} devices share weights, gradients and "
            "optimizer states (zero3, as FSDP does), which one alone cannot hold (--sharding none)"
        )
