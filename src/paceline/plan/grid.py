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
from paceline.catalog.entities import Catalog, Device, Machine
from paceline.parallel import LinkTable, Sharding
from paceline.parallel.room import bound_bytes
from paceline.parallel.sharded_memory import saved_process_bytes
from paceline.parallel.spread import energy_interval_of, interval_of, is_too_wide, too_wide_words
from paceline.plan.amounts import is_generation, resolve_job
from paceline.plan.candidates import SHARDINGS, CandidateTable
from paceline.plan.chance import chance_below, chance_text
from paceline.plan.configurations import DeviceSupport, choose_configurations, why_unusable
from paceline.plan.evaluation import Amount, Evaluation, evaluate
from paceline.plan.forecasts import Forecast, forecast, step_interval_of
from paceline.plan.goal import Goal, Work
from paceline.plan.place_table import PlaceTable
from paceline.plan.support import newest_support, why_unmodelled
from paceline.planfile import Interval
from paceline.predict import Bound, Calibration, builtin_calibration
from paceline.trace.costs import Checkpointing
from paceline.trace.graph import FloatArray
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
    seq = axes.seq or workload.default_seq
    supports, unanswered = _supported(axes.devices)
    known = [support.device for support in supports]
    configured = choose_configurations(
        supports,
        goal,
        task=workload.task,
        num_parameters=workload.num_parameters,
        checkpointing=axes.checkpointing,
        rewrite=axes.rewrite,
    )
    places = _places(catalog, known, axes.counts)
    batch = np.array(sorted(set(axes.batches)), dtype=np.float64)
    predictions = forecast(
        workload, configured, known, batch, work, seq=seq, calibration=calibration
    )
    amount = resolve_job(workload, work, seq=seq).amount
    grid = _evaluate(places, predictions, amount, goal, axes.sharding)
    cells = _cells(workload, places, grid, keeps_best_batch_only=axes.keeps_best_batch_only)
    answered = {cell.device for cell in cells}
    silent = [one for one in supports if one.device.name not in answered]
    return PredictionGrid(
        model=workload.name,
        title=workload.title,
        task=workload.task,
        sample_unit=workload.sample_unit,
        num_parameters=workload.num_parameters,
        calibration=calibration.name,
        catalog_version=catalog.version,
        assumptions=_assumptions(workload, work, places, seq),
        cells=cells,
        unanswered=(*unanswered, *(_silent(one, goal) for one in silent)),
    )


def _places(
    catalog: Catalog, devices: Sequence[Device], counts: Sequence[int]
) -> tuple[_GridPlace, ...]:
    return tuple(
        _GridPlace(device=device, row=row, count=count, links=_links(catalog, device, count))
        for row, device in enumerate(devices)
        for count in counts
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _GridPlace:
    """So many devices of a kind in one machine."""

    device: Device
    row: int
    count: int
    links: OfferLinks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Grid:
    """Everything predicted, by (place, batch, configuration), flat, and which row each cell shows.

    Attributes:
        predictions: Of one device each.
        candidates: The whole product, rows in that order.
        evaluation: Of it.
        memory_confidence: The goal's chance to fit.
        fits: At that chance.
        chosen: Candidate shown per place and batch, (num_places, P); -1 without a prediction.
    """

    predictions: Forecast
    candidates: CandidateTable
    evaluation: Evaluation
    memory_confidence: float
    fits: npt.NDArray[np.bool_]
    chosen: npt.NDArray[np.int64]


def _evaluate(
    places: Sequence[_GridPlace],
    predictions: Forecast,
    amount: Amount,
    goal: Goal,
    sharding: Sharding,
) -> _Grid:
    shape = (len(places), len(predictions.batch), len(predictions.configurations))
    place, batch, configuration = (index.ravel() for index in np.indices(shape))
    table = _place_table(places)
    cell = (configuration, table.device[place], batch)
    memory, bound = (
        whole[cell] - _saved(places, predictions, sharding, is_bound=is_bound).ravel()
        for whole, is_bound in (
            (predictions.memory_mid_bytes, False),
            (predictions.memory_high_bytes, True),
        )
    )
    ones = np.ones_like(place)
    candidates = CandidateTable(
        place=place,
        num_nodes=ones,
        num_devices=table.devices_per_node[place],
        num_groups=table.devices_per_node[place],
        sharding=np.full_like(place, SHARDINGS.index(sharding)),
        configuration=configuration,
        batch=batch,
        microbatches=ones,
        memory_mid_bytes=memory,
        memory_high_bytes=bound,
    )
    device_link = LinkTable.from_links([p.links.device for p in places])
    node_link = LinkTable.from_links([p.links.node for p in places])
    evaluation = evaluate(candidates, table, predictions, amount, device_link, node_link)
    fits = bound_bytes(memory, bound, goal.memory_confidence) <= table.memory_bytes[place]
    return _Grid(
        predictions=predictions,
        candidates=candidates,
        evaluation=evaluation,
        memory_confidence=goal.memory_confidence,
        fits=fits,
        chosen=_choose(evaluation.samples_per_s, memory, fits, shape),
    )


def _saved(
    places: Sequence[_GridPlace], predictions: Forecast, sharding: Sharding, *, is_bound: bool
) -> FloatArray:
    """Bytes that sharding takes off one device's median or bound, (num_places, P, C)."""
    counts = sorted({place.count for place in places})
    by_count = {
        count: np.array(
            [
                saved_process_bytes(moments, count, sharding, is_bound=is_bound)
                for moments in predictions.moments
            ]
        )
        for count in counts
    }
    shape = (len(predictions.configurations), len(predictions.batch))
    return np.array([by_count[place.count].reshape(shape).T for place in places])


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


def _place_table(places: Sequence[_GridPlace]) -> PlaceTable:
    return PlaceTable.unpriced(
        device=np.array([p.row for p in places], dtype=np.int64),
        devices_per_node=np.array([p.count for p in places], dtype=np.int64),
        memory_bytes=np.array([_capacity_bytes(p.device) for p in places]),
        tdp_w=np.array([np.nan if p.device.tdp_w is None else p.device.tdp_w for p in places]),
        has_device_link=np.array([p.links.device is not None for p in places], dtype=bool),
    )


def _cells(
    workload: Workload,
    places: Sequence[_GridPlace],
    grid: _Grid,
    *,
    keeps_best_batch_only: bool,
) -> tuple[GridCell, ...]:
    chosen = grid.chosen
    if keeps_best_batch_only and chosen.size:
        rate = np.where(grid.fits, grid.evaluation.samples_per_s, -1.0)[chosen]
        rate = np.where(chosen < 0, -np.inf, rate)
        is_open = np.array([math.isinf(_capacity_bytes(place.device)) for place in places])
        enough = rate.max(axis=1) * np.where(is_open, _SETTLED_FRAC, 1.0)
        best = (rate >= enough[:, None]).argmax(axis=1)
        chosen = chosen[np.arange(len(chosen)), best][:, None]
    return tuple(
        _cell(workload, place, grid, int(row))
        for place, rows in zip(places, chosen, strict=True)
        for row in rows
        if row >= 0
    )


def _cell(workload: Workload, place: _GridPlace, grid: _Grid, row: int) -> GridCell:
    index = _index(place, grid, row)
    configuration = grid.predictions.configurations[index[0]]
    capacity = _capacity_bytes(place.device)
    memory = _memory(grid, index, row)
    reason = _why_no_figure(place, grid, row, memory, capacity)
    cell = GridCell(
        device=place.device.name,
        num_devices=place.count,
        batch_per_device=int(grid.predictions.batch[index[2]]),
        precision=configuration.precision,
        compiler=configuration.compiler,
        status=_status(reason, fits=bool(grid.fits[row])),
        memory_bytes=memory,
        memory_capacity_bytes=capacity,
        chance_memory=chance_below(
            capacity,
            median=memory.mid,
            log_sigma=float(grid.candidates.memory_log_sigma[row]),
        ),
        bound=Bound(int(grid.predictions.bound[index])).name.lower(),
        reason=reason,
    )
    return cell if reason else _with_figures(cell, workload, grid, index, row)


def _with_figures(
    cell: GridCell, workload: Workload, grid: _Grid, index: tuple[int, int, int], row: int
) -> GridCell:
    """A cell that fits, with its figures."""
    figures = grid.evaluation
    log_sigma = float(figures.log_sigma[row])
    step = step_interval_of(grid.predictions, index, float(figures.step_s[row]), log_sigma)
    samples_per_step = float(figures.samples_per_s[row]) * step.mid
    is_inference = workload.task == "infer"
    energy_j = _known(figures.energy_j_per_sample[row])
    return replace(
        cell,
        step_s=step,
        samples_per_s=Interval(
            low=samples_per_step / step.high,
            mid=float(figures.samples_per_s[row]),
            high=samples_per_step / step.low,
        ),
        latency_s=_around(figures.latency_s[row], log_sigma) if is_inference else None,
        ttft_s=_around(figures.ttft_s[row], log_sigma) if is_inference else None,
        efficiency_frac=float(figures.efficiency_frac[row]),
        energy_j_per_sample=energy_j,
        energy_interval_j_per_sample=energy_interval_of(energy_j, log_sigma),
    )


def _index(place: _GridPlace, grid: _Grid, row: int) -> tuple[int, int, int]:
    """Where the candidate stands in the forecast's (C, D, P) arrays."""
    return int(grid.candidates.configuration[row]), place.row, int(grid.candidates.batch[row])


def _memory(grid: _Grid, index: tuple[int, int, int], row: int) -> Interval:
    """Sharding takes a known amount away; the lower end goes with the median."""
    mid = float(grid.candidates.memory_mid_bytes[row])
    share = mid / float(grid.predictions.memory_mid_bytes[index])
    return Interval(
        low=float(grid.predictions.memory_low_bytes[index]) * share,
        mid=mid,
        high=float(grid.candidates.memory_high_bytes[row]),
    )


def _why_no_figure(
    place: _GridPlace, grid: _Grid, row: int, memory: Interval, capacity_bytes: float
) -> str:
    if not grid.fits[row]:
        bound = float(bound_bytes(memory.mid, memory.high, grid.memory_confidence))
        return (
            f"needs {format_bytes(memory.mid)} ({format_bytes(bound)} at a chance of "
            f"{chance_text(grid.memory_confidence)}) of {format_bytes(capacity_bytes)}"
        )
    if place.count > 1 and not np.isfinite(grid.evaluation.step_s[row]):
        return f"no known link between {place.count} devices"
    log_sigma = float(grid.evaluation.log_sigma[row])
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
    machine = Machine(name="machine", device_name=device.name, num_devices=count)
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
