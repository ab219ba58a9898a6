"""Predictions at stated devices, counts and batch sizes, by the same road as the search takes.

The grid has one cell per (device, count, batch); of the configurations that the goal accepts, a
cell shows the fastest that fits, or where none fits, the one that needs least memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline.catalog import OfferLinks, machine_links, offer_links
from paceline.catalog.entities import Catalog, Device
from paceline.catalog.entities import Machine as OwnMachine
from paceline.parallel import Sharding, Strategy
from paceline.parallel.room import Z_95, bound_bytes
from paceline.parallel.spread import energy_interval_of, interval_of, is_too_wide, too_wide_words
from paceline.plan.amounts import is_generation, resolve_job
from paceline.plan.chance import chance_below, chance_text
from paceline.plan.configurations import (
    ConfiguredDevices,
    DeviceSupport,
    choose_configurations,
    why_unusable,
)
from paceline.plan.goal import Goal, Work
from paceline.plan.support import newest_support, why_unmodelled
from paceline.planfile import Interval
from paceline.predict import Calibration, builtin_calibration
from paceline.simulation import Job, Machine, Steps, simulate
from paceline.simulation.cases import Cases
from paceline.trace.costs import Checkpointing, Configuration
from paceline.trace.graph import FloatArray, IntArray
from paceline.trace.workload import Workload
from paceline.units import format_bytes

#: Devices that one machine can hold; beyond it a network is needed, which an offer names.
MAX_DEVICES_PER_MACHINE = 16

#: Where memory sets no limit, the best batch is the smallest that reaches this share of the most.
_SETTLED_FRAC = 0.98

Status = Literal["fits", "out of memory", "abstained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One prediction.

    Attributes:
        device: ``Device.name``.
        num_devices: How many, in one machine.
        batch_per_device: Items per device and step.
        precision: Name in ``dtypes.PRECISIONS``.
        compiler: ``eager``, ``compiled`` …
        status: Whether it fits, and whether the interval is narrow enough to be an answer.
        step_s: Step time; of one whole answer in generation. None unless it fits, as below.
        samples_per_s: Throughput of all devices.
        latency_s: Per output token of a generation, else of one batch; None in training.
        ttft_s: Time to first token; None where it does not apply.
        efficiency_frac: Throughput against so many single devices.
        energy_j_per_sample: Device energy; None if the power is unknown.
        energy_interval_j_per_sample: Of that; None likewise.
        memory_bytes: Peak on one device: low, median, 95 % bound.
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
    memory_capacity_bytes: float
    chance_memory: float
    bound: str
    reason: str
    step_s: Interval | None = None
    samples_per_s: Interval | None = None
    latency_s: Interval | None = None
    ttft_s: Interval | None = None
    efficiency_frac: float | None = None
    energy_j_per_sample: float | None = None
    energy_interval_j_per_sample: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnansweredDevice:
    """A device without a prediction.

    Attributes:
        device: ``Device.name``.
        reason: One sentence.
    """

    device: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionGrid:
    """The model's predictions.

    Attributes:
        model: As typed.
        title: As printed.
        task: Training or inference.
        sample_unit: What throughput counts.
        num_parameters: All parameters.
        calibration: Of the predictor.
        catalog_version: Of the facts.
        assumptions: Printed first, one sentence each.
        cells: By device, then count, then batch.
        unanswered: Devices without a prediction.
        remedies: What would make it fit where nothing does.
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
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GridAxes:
    """What the cells of a grid are, and what all of them have in common.

    Attributes:
        devices: Where.
        counts: Devices in one machine, data parallel in training, replicas in inference.
        batches: Items per device.
        seq: Sequence length; the workload's own if None.
        keeps_best_batch_only: Keep the batch of highest throughput of each device and count; where
            the memory is not limited, the smallest that nearly has it.
        checkpointing: What training recomputes in the backward pass.
        rewrite: Further settings, as `paceline.trace.settings.read_settings` reads them.
        sharding: What the devices of a training job split.
    """

    devices: Sequence[Device]
    counts: Sequence[int] = (1,)
    batches: Sequence[int] = (1,)
    seq: int | None = None
    keeps_best_batch_only: bool = False
    checkpointing: Checkpointing = "none"
    rewrite: str = ""
    sharding: Sharding = "none"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GridCases:
    """The jobs of a grid: every (place, batch, configuration), flat, in that order.

    Attributes:
        workload: The model with its task.
        goal: Its chance to fit counts.
        axes: What the cells are.
        places: Where.
        batch: Items per device, rising.
        configurations: How.
        rows: Of the whole product, those that are predicted.
        cases: What they are.
        samples_per_item: Samples that a batch item counts for.
        assumptions: Printed first, one sentence each.
        supports: Devices with software.
        unanswered: Devices without.
        catalog_version: Of the facts.
    """

    workload: Workload
    goal: Goal
    axes: GridAxes
    places: tuple[_GridPlace, ...]
    batch: FloatArray
    configurations: tuple[Configuration, ...]
    rows: IntArray
    cases: Cases
    samples_per_item: float
    assumptions: tuple[str, ...]
    supports: tuple[DeviceSupport, ...]
    unanswered: tuple[UnansweredDevice, ...]
    catalog_version: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Places, batches and configurations."""
        return len(self.places), len(self.batch), len(self.configurations)


def predict_grid(
    workload: Workload,
    goal: Goal,
    work: Work,
    catalog: Catalog,
    axes: GridAxes,
    *,
    calibration: Calibration | None = None,
) -> PredictionGrid:
    """Predict every (device, count, batch).

    Args:
        workload: The model with its task.
        goal: Its precisions, compilers and chance to fit apply; the rest does not.
        work: Prompt and output lengths of a generation.
        catalog: For links.
        axes: The cells.
        calibration: Of the predictor; the built-in one if None.
    """
    calibration = calibration or builtin_calibration()
    asked = grid_cases(workload, goal, work, catalog, axes)
    return grid_of(asked, simulate(asked.cases, calibration=calibration), calibration.name)


def grid_cases(
    workload: Workload, goal: Goal, work: Work, catalog: Catalog, axes: GridAxes
) -> GridCases:
    """List the jobs of a grid; arguments are those of `predict_grid`."""
    seq = axes.seq or workload.default_seq
    supports, unanswered = _supported(axes.devices)
    configured = choose_configurations(
        supports,
        goal,
        task=workload.task,
        num_parameters=workload.num_parameters,
        checkpointing=axes.checkpointing,
        rewrite=axes.rewrite,
    )
    places = _places(catalog, [support.device for support in supports], axes.counts)
    batch = np.array(sorted(set(axes.batches)), dtype=np.float64)
    rows, cases = _cases(workload, work, configured, places, batch, axes)
    return GridCases(
        workload=workload,
        goal=goal,
        axes=axes,
        places=places,
        batch=batch,
        configurations=tuple(one.configuration for one in configured),
        rows=rows,
        cases=cases,
        samples_per_item=resolve_job(workload, work, seq=seq).amount.samples_per_item,
        assumptions=_assumptions(workload, work, places, seq),
        supports=supports,
        unanswered=unanswered,
        catalog_version=catalog.version,
    )


def grid_of(asked: GridCases, steps: Steps, calibration: str) -> PredictionGrid:
    """The grid whose cells show these steps.

    Args:
        asked: Its jobs.
        steps: Of its cases.
        calibration: Name of the predictor's.

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
        num_parameters=workload.num_parameters,
        calibration=calibration,
        catalog_version=asked.catalog_version,
        assumptions=asked.assumptions,
        cells=cells,
        unanswered=(*asked.unanswered, *(_silent(one, goal) for one in silent)),
    )


def _cases(
    workload: Workload, work: Work, configured: Sequence[ConfiguredDevices],
    places: Sequence[_GridPlace], batch: FloatArray, axes: GridAxes,
) -> tuple[IntArray, Cases]:  # fmt: skip
    """Rows of the product that a device runs, and what they are."""
    shape = (len(places), len(batch), len(configured))
    place, item, configuration = (index.ravel() for index in np.indices(shape))
    runs = np.zeros((len(places), len(configured)), dtype=bool)
    for column, one in enumerate(configured):
        runs[:, column] = np.isin([p.row for p in places], one.rows)
    rows = np.flatnonzero(runs[place, configuration])
    counts = sorted({p.count for p in places})
    number = np.array([counts.index(p.count) for p in places], dtype=np.int64)
    is_answered = is_generation(workload)
    jobs = tuple(
        Job(
            workload=workload,
            configuration=one.configuration,
            strategy=Strategy.from_degrees(
                dp=count, sharding=axes.sharding if count > 1 else "none"
            ),
            seq=axes.seq,
            prompt_tokens=work.prompt_tokens if is_answered else None,
            output_tokens=work.output_tokens if is_answered else None,
        )
        for count in counts
        for one in configured
    )
    machines = tuple(
        Machine.of(p.device, p.count, device_link=p.links.device, node_link=p.links.node)
        for p in places
    )
    at, replicas = place[rows], np.array([p.count for p in places], dtype=np.int64)
    return rows, Cases(
        jobs=jobs,
        machines=machines,
        job=number[at] * len(configured) + configuration[rows],
        machine=at,
        batch=batch[item[rows]],
        replicas=replicas[at],
        microbatches=np.ones(len(rows), dtype=np.int64),
    )


def _places(
    catalog: Catalog, devices: Sequence[Device], counts: Sequence[int]
) -> tuple[_GridPlace, ...]:
    return tuple(
        _GridPlace(device=device, row=row, count=count, links=_links(catalog, device, count))
        for row, device in enumerate(devices)
        for count in counts
    )


def _strategy(count: int, sharding: Sharding) -> Strategy:
    """Replicas on so many devices; one alone has nobody to split with."""
    return Strategy.from_degrees(dp=count, sharding=sharding if count > 1 else "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class _GridPlace:
    """So many devices of a kind in one machine."""

    device: Device
    row: int
    count: int
    links: OfferLinks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Grid:
    """The whole product with its figures, NaN where nothing runs, and which row each cell shows.

    Attributes:
        asked: What the rows are.
        steps: Of each.
        samples_per_s: Throughput of all devices.
        fits: At the goal's chance.
        chosen: Row shown per place and batch, (num_places, P); -1 without a prediction.
    """

    asked: GridCases
    steps: Steps
    samples_per_s: FloatArray
    fits: npt.NDArray[np.bool_]
    chosen: IntArray


def _grid(asked: GridCases, steps: Steps) -> _Grid:
    shape = asked.shape
    whole = Steps.joined([(asked.rows, steps)], int(np.prod(shape)))
    place, item, _ = (index.ravel() for index in np.indices(shape))
    counts = np.array([one.count for one in asked.places], dtype=np.int64)
    capacity_bytes = np.array([_capacity_bytes(one.device) for one in asked.places])
    samples = counts[place] * asked.batch[item] * asked.samples_per_item
    samples_per_s = samples / whole.step_s
    needed_bytes = whole.needed_bytes(asked.goal.memory_confidence)
    fits = needed_bytes <= capacity_bytes[place]
    return _Grid(
        asked=asked,
        steps=whole,
        samples_per_s=samples_per_s,
        fits=fits,
        chosen=_choose(samples_per_s, whole.memory_mid_bytes, fits, shape),
    )


def _choose(
    samples_per_s: FloatArray,
    memory_bytes: FloatArray,
    fits: npt.NDArray[np.bool_],
    shape: tuple[int, int, int],
) -> npt.NDArray[np.int64]:
    """The fastest configuration that fits, else the one that needs least memory."""
    is_known = np.isfinite(samples_per_s) & np.isfinite(memory_bytes)
    score = np.where(is_known, np.where(fits, samples_per_s, -memory_bytes), -np.inf)
    if shape[2] == 0:
        return np.full(shape[:2], -1, dtype=np.int64)
    best = score.reshape(shape).argmax(axis=2)
    rows = np.arange(shape[0] * shape[1]).reshape(shape[:2]) * shape[2] + best
    return np.where(np.isfinite(score[rows]), rows, -1)


def _cells(grid: _Grid) -> tuple[GridCell, ...]:
    chosen = grid.chosen
    if grid.asked.axes.keeps_best_batch_only and chosen.size:
        rate = np.where(grid.fits, grid.samples_per_s, -1.0)[chosen]
        rate = np.where(chosen < 0, -np.inf, rate)
        places = grid.asked.places
        is_open = np.array([math.isinf(_capacity_bytes(place.device)) for place in places])
        enough = rate.max(axis=1) * np.where(is_open, _SETTLED_FRAC, 1.0)
        best = (rate >= enough[:, None]).argmax(axis=1)
        chosen = chosen[np.arange(len(chosen)), best][:, None]
    return tuple(_cell(grid, int(row)) for rows in chosen for row in rows if row >= 0)


def _cell(grid: _Grid, row: int) -> GridCell:
    asked, steps = grid.asked, grid.steps
    place, item, number = (int(one) for one in np.unravel_index(row, asked.shape))
    where, configuration = asked.places[place], asked.configurations[number]
    capacity = _capacity_bytes(where.device)
    memory = steps.memory_interval_bytes(row)
    reason = _why_no_figure(grid, row, memory, capacity)
    cell = GridCell(
        device=where.device.name,
        num_devices=where.count,
        batch_per_device=int(asked.batch[item]),
        precision=configuration.precision,
        compiler=configuration.compiler,
        status=_status(reason, fits=bool(grid.fits[row])),
        memory_bytes=memory,
        memory_capacity_bytes=capacity,
        chance_memory=chance_below(
            capacity, median=memory.mid, log_sigma=math.log(memory.high / memory.mid) / Z_95
        ),
        bound=steps.bound_word(row),
        reason=reason,
    )
    return cell if reason else _with_figures(cell, grid, row)


def _with_figures(cell: GridCell, grid: _Grid, row: int) -> GridCell:
    """A cell that fits, with its figures."""
    asked, steps = grid.asked, grid.steps
    log_sigma, step = float(steps.log_sigma[row]), steps.step_interval_s(row)
    rate = float(grid.samples_per_s[row])
    alone_s = step.mid - float(steps.exposed_s[row])
    is_inference = asked.workload.task == "infer"
    energy_j = _known(float(steps.energy_j[row]) / (cell.batch_per_device * asked.samples_per_item))
    return replace(
        cell,
        step_s=step,
        samples_per_s=Interval(
            low=rate * step.mid / step.high, mid=rate, high=rate * step.mid / step.low
        ),
        latency_s=_around(steps.per_token_s[row], log_sigma) if is_inference else None,
        ttft_s=_around(steps.first_token_s[row], log_sigma) if is_inference else None,
        efficiency_frac=alone_s / step.mid,
        energy_j_per_sample=energy_j,
        energy_interval_j_per_sample=energy_interval_of(energy_j, log_sigma),
    )


def _why_no_figure(grid: _Grid, row: int, memory: Interval, capacity_bytes: float) -> str:
    confidence = grid.asked.goal.memory_confidence
    if not grid.fits[row]:
        bound = float(bound_bytes(memory.mid, memory.high, confidence))
        return (
            f"needs {format_bytes(memory.mid)} ({format_bytes(bound)} at a chance of "
            f"{chance_text(confidence)}) of {format_bytes(capacity_bytes)}"
        )
    if grid.steps.reasons[row] is not None:
        return str(grid.steps.reasons[row])
    log_sigma = float(grid.steps.log_sigma[row])
    return too_wide_words(log_sigma) if is_too_wide(log_sigma) else ""


def _status(reason: str, *, fits: bool) -> Status:
    if not fits:
        return "out of memory"
    return "abstained" if reason else "fits"


def _around(mid: float, log_sigma: float) -> Interval | None:
    return interval_of(float(mid), log_sigma) if math.isfinite(mid) else None


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _supported(
    devices: Sequence[Device],
) -> tuple[tuple[DeviceSupport, ...], tuple[UnansweredDevice, ...]]:
    supports: list[DeviceSupport] = []
    unanswered: list[UnansweredDevice] = []
    for device in devices:
        support = newest_support(device)
        if support is None:
            reason = why_unmodelled(device)
            unanswered.append(UnansweredDevice(device=device.name, reason=reason))
        elif device.memory_bytes is None and device.kind != "cpu":
            reason = "the size of its memory is unknown"
            unanswered.append(UnansweredDevice(device=device.name, reason=reason))
        else:
            supports.append(support)
    return tuple(supports), tuple(unanswered)


def _capacity_bytes(device: Device) -> float:
    """What one device has; a CPU takes the memory of its machine, which is not said here."""
    return device.capacity_bytes or math.inf


def _silent(support: DeviceSupport, goal: Goal) -> UnansweredDevice:
    """Why a device with software for it has no figure: what was asked for, or a missing fact."""
    unusable = why_unusable(support, precisions=goal.precisions, compilers=goal.compilers)
    if unusable is None:
        reason = "a fact that the prediction needs is unknown"
    else:
        reason = f"it does not run {unusable.wanted}: {unusable.choices}"
    return UnansweredDevice(device=support.device.name, reason=reason)


def _links(catalog: Catalog, device: Device, count: int) -> OfferLinks:
    """As the largest machine for rent joins these devices, else as a machine of one's own would."""
    offers = [offer for offer in catalog.offers if offer.device_name == device.name]
    if offers:
        largest = max(offers, key=lambda offer: offer.num_devices)
        return offer_links(catalog, replace(largest, num_devices=float(count)))
    machine = OwnMachine(name="machine", device_name=device.name, num_devices=count)
    return machine_links(catalog, machine)


def _assumptions(
    workload: Workload, work: Work, places: Sequence[_GridPlace], seq: int
) -> tuple[str, ...]:
    parts = [workload.input_description]
    if is_generation(workload):
        parts.append(f"prompt {work.prompt_tokens}, answer {work.output_tokens} tokens")
    elif seq > 1:
        parts.append(f"{workload.length_name} {seq}")
    parts += [f"{workload.optimizer}"] if workload.optimizer else []
    parts.append("input fed fast enough")
    return (", ".join(part for part in parts if part), *_joints(places))


def _joints(places: Sequence[_GridPlace]) -> Iterator[str]:
    """By what several devices are joined, one sentence per device; counts where that differs."""
    joined: dict[str, dict[str, list[str]]] = {}
    for place in places:
        if place.count > 1 and place.links.device is not None:
            by_link = joined.setdefault(place.device.name, {})
            by_link.setdefault(place.links.device.name, []).append(str(place.count))
    for device, by_link in joined.items():
        if len(by_link) == 1:
            yield f"{device}: joined by {next(iter(by_link))}"
        else:
            each = (f"{' or '.join(counts)} by {link}" for link, counts in by_link.items())
            yield f"{device}: joined {', '.join(each)}"
