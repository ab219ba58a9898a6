"""From jobs to answers: one vectorised prediction per model and configuration."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline.catalog import Catalog
from paceline.errors import PacelineError
from paceline.predict import (
    Calibration,
    DeviceTable,
    Knowledge,
    Points,
    StepPrediction,
    abstentions,
    predict_pass,
)
from paceline.predict.intervals import Z_80
from paceline.predict.memory import peak_memory_bytes
from paceline.predict.power import slowdown_under_limit
from paceline.predict.told import pass_traits
from paceline.predict.traits import StepTraits
from paceline.scoring.answers import Answer
from paceline.scoring.groups import Group, GroupKey, JobStep
from paceline.scoring.inference_ranks import shared_workload
from paceline.scoring.jobs import Cell
from paceline.scoring.many_devices import scale_out
from paceline.scoring.memory import (
    KeptInHalf,
    RankMemory,
    kept_in_half,
    rank_memory,
    split_memory,
)
from paceline.scoring.readings import UnresolvedRowError
from paceline.scoring.rows import Row
from paceline.scoring.served_rows import served_token_s
from paceline.scoring.units import items_to_unit, units_of_time
from paceline.scoring.workloads import cached_workload, scored_pass
from paceline.trace.costs import LoweredPass
from paceline.trace.lowering import lower
from paceline.trace.workload import Workload

_POWER_LIMIT = re.compile(r"power[_ -]?limit(?:_w)?\s*[=:]?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
#: Variants whose memory differs by less are told apart by nobody.
_SAME_CAPACITY_FRAC = 0.15


def answer_group(
    key: GroupKey,
    cells: Sequence[Cell],
    catalog: Catalog,
    *,
    cache_folder: Path | None,
    python: str | None,
    calibration: Calibration,
    is_learned_from: bool = False,
) -> list[Answer]:
    """Answers to cells that share a key, in their order."""
    workload_key, configuration, framework, split = key
    try:
        traced = cached_workload(workload_key, cache_folder=cache_folder, python=python)
        workload, passes = shared_workload(traced, split)
        one = scored_pass(workload)
        lowered = lower(one.graph, configuration)
        in_half = kept_in_half(one.graph, lowered, cells)
    except PacelineError as error:
        return [Answer(entry=workload_key.entry, reason=str(error)) for _ in cells]
    devices = list({cell.device.name: cell.device for cell in cells}.values())
    sizes = [_size(cell, _seq(cell, workload)) for cell in cells]
    peaks = [_size(cell, cell.reading.peak_seq or _seq(cell, workload)) for cell in cells]
    distinct = list(dict.fromkeys([*sizes, *peaks]))
    table = DeviceTable.from_devices(devices)
    batch, seq = np.array(distinct, dtype=np.float64).T
    points = Points(batch=batch, seq=seq)
    prediction = predict_pass(lowered, table, points, calibration=calibration, framework=framework)
    reasons = dict(zip(table.names, abstentions(lowered, table), strict=True))
    where = {device.name: number for number, device in enumerate(devices)}
    token_s = served_token_s(
        traced, configuration, framework, split, cells, catalog=catalog, calibration=calibration
    )
    group = Group(
        workload=workload, lowered=lowered, catalog=catalog, prediction=prediction,
        calibration=calibration, passes=passes, framework=framework,
        is_learned_from=is_learned_from,
    )  # fmt: skip
    return [
        _answer(
            cell, group, (where[cell.device.name], distinct.index(size)),
            reasons[cell.device.name], token_s.get(cell.index),
            distinct.index(peak), in_half,
        )
        for cell, size, peak in zip(cells, sizes, peaks, strict=True)
    ]  # fmt: skip


def _size(cell: Cell, seq: int) -> tuple[float, int]:
    """Batch and sequence length."""
    return cell.reading.batch_per_gpu, seq


def _seq(cell: Cell, workload: Workload) -> int:
    return cell.reading.seq or workload.default_seq


def _answer(
    cell: Cell, group: Group, place: tuple[int, int], reason: str | None, token_s: float | None,
    peak_point: int, in_half: KeptInHalf | None,
) -> Answer:  # fmt: skip
    entry, device, prediction = cell.reading.entry, cell.device, group.prediction
    if reason is not None:
        return Answer(entry=entry, device=device.name, reason=reason)
    try:
        step = scale_out(cell, group, place)
    except (UnresolvedRowError, PacelineError) as error:
        return Answer(entry=entry, device=device.name, reason=str(error))
    power_w, slowdown = _under_limit(cell.row, prediction, place, group.calibration)
    step_s = step.step_s if token_s is None else token_s
    mid_s = step_s * cell.reading.num_passes * slowdown * math.exp(cell.reading.log_level)
    mid_s *= cell.row.time_factor
    mid_s += cell.row.added_step_s + cell.row.added_item_s * cell.reading.batch_per_gpu
    log_sigma = math.hypot(cell.reading.log_sigma, step.log_sigma)
    spread = _spread(float(prediction.high_s[place] / prediction.mid_s[place]), log_sigma)
    devices = cell.row.num_devices
    items = step.items or cell.reading.batch_per_gpu * cell.reading.grad_accumulation * devices
    rate, unit = _throughput(cell, group.workload, items, mid_s)
    longest = cell.reading.peak_seq or _seq(cell, group.workload)
    peak = (place[0], peak_point)
    memory = (
        rank_memory(cell, group.lowered, prediction, peak, longest, in_half)
        if step.memory_bytes is None
        else split_memory(step.memory_bytes, prediction, peak)
    )
    return Answer(
        entry=entry,
        device=device.name,
        case=Knowledge(int(prediction.knowledge[place[0]])).name.lower(),
        step_low_s=mid_s / spread,
        step_mid_s=mid_s,
        step_high_s=mid_s * spread,
        throughput_low=None if rate is None else rate / spread,
        throughput_mid=rate,
        throughput_high=None if rate is None else rate * spread,
        throughput_unit=unit,
        memory_low_bytes=None if cell.reading.is_cut else memory.low_bytes,
        memory_mid_bytes=None if cell.reading.is_cut else memory.mid_bytes,
        memory_high_bytes=None if cell.reading.is_cut else memory.high_bytes,
        fits=_fits(cell, group.lowered, memory, longest),
        power_w=power_w,
        roofline_s=float(prediction.roofline_s[place]),
        note=_note(cell, step, memory, unit),
        step=(step.traits or _traits(cell, group)) if group.is_learned_from else None,
    )


def _traits(cell: Cell, group: Group) -> StepTraits:
    """What measurements know the pass of one device by."""
    point = Points.of([cell.reading.batch_per_gpu], seq=_seq(cell, group.workload))
    device = DeviceTable.from_devices([cell.device])
    found = pass_traits(group.lowered, device, point, group.calibration, framework=group.framework)
    return found[0]


def _throughput(
    cell: Cell, workload: Workload, items: float, mid_s: float
) -> tuple[float | None, str]:
    """What the row's column of throughput holds, and its unit: a rate, or a time where it asks."""
    if (per_second := units_of_time(cell.row.unit)) is not None:
        return mid_s * per_second, cell.row.unit
    per_item, unit = items_to_unit(
        cell.row, workload, _seq(cell, workload), cell.reading.units_per_item, items_per_step=items
    )
    return (None if per_item is None else items * per_item / mid_s), unit


def _under_limit(
    row: Row, prediction: StepPrediction, place: tuple[int, int], calibration: Calibration
) -> tuple[float, float]:
    """Mean power, and by how many times a stated limit of it slows the step."""
    power_w = float(prediction.power_w[place])
    limit = _POWER_LIMIT.search(row.flags)
    if limit is None or not power_w > float(limit.group(1)) > 0:
        return power_w, 1.0
    limit_w = float(limit.group(1))
    busy_frac = min(float(prediction.device_s[place] / prediction.mid_s[place]), 1.0)
    slowdown = slowdown_under_limit(power_w, limit_w, calibration)
    return limit_w, 1.0 + busy_frac * (slowdown - 1.0)


def _spread(ratio: float, log_sigma: float) -> float:
    """High over mid of an 80 % interval that is wider by an independent log sigma."""
    return math.exp(math.hypot(math.log(ratio), Z_80 * log_sigma))


def _fits(cell: Cell, lowered: LoweredPass, memory: RankMemory, seq: float) -> str:
    """``yes`` and ``no`` at the chance of the bounds; between them nobody can say.

    An engine that queues requests needs the weights and one request.
    """
    if cell.capacities_bytes is None or cell.reading.is_cut or "batch" in cell.reading.assumed:
        return ""
    least, most = cell.capacities_bytes
    low_bytes, high_bytes = memory.low_bytes, memory.high_bytes
    if cell.reading.requests is not None:
        one = Points.of([1], seq=seq)
        platform = lowered.configuration.platform
        bounds = peak_memory_bytes(lowered.memory, one, platform=platform)
        low_bytes, high_bytes = float(bounds[0][0]), float(bounds[2][0])
    if high_bytes <= least:
        return "yes"
    return "no" if low_bytes > most else "unsure"


def _note(cell: Cell, step: JobStep, memory: RankMemory, unit: str) -> str:
    """What was assumed where the row leaves it open."""
    least, most = cell.capacities_bytes or (math.inf, math.inf)
    notes = [note for note in (cell.reading.note, step.note) if note]
    if least < (1.0 - _SAME_CAPACITY_FRAC) * most:
        sizes = f"{least / 1e9:.0f} or {most / 1e9:.0f} GB"
        notes.append(f"`{cell.row.gpu}` may have {sizes}: taken as {cell.device.name}")
    if cell.reading.requests is not None and memory.mid_bytes > least:
        notes.append("its engine has no memory for so many requests at a time; some wait")
    if cell.row.unit and not unit:
        notes.append(f"its throughput in `{cell.row.unit}` is not known")
    return "; ".join(notes)
