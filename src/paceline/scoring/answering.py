"""From rows that run one model to their answers: steps of their jobs, in the rows' own units."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from paceline.catalog.entities import Catalog
from paceline.errors import PacelineError
from paceline.model.graph.workload import Workload
from paceline.parallelism.steps import Steps
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.kernels.power import slowdown_under_limit
from paceline.prediction.prediction import Coverage
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.scoring.answers import Answer
from paceline.scoring.assumed import Assumed, note_of, widening
from paceline.scoring.framework_memory import RankMemory, kept_job, rank_memory, shown_memory
from paceline.scoring.jobs import Cell, RowJob, row_job, with_items, with_requests
from paceline.scoring.naming.models import UnresolvedRowError
from paceline.scoring.naming.units import items_to_unit, units_of_time
from paceline.scoring.rows import Row
from paceline.scoring.services.answering import answer_services, is_service
from paceline.scoring.sharing import as_shared
from paceline.scoring.workloads import WorkloadKey, cached_workload, with_item
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.observed import step_traits
from paceline.simulation.simulator import simulate
from paceline.values import dataclass

_POWER_LIMIT = re.compile(r"power[_ -]?limit(?:_w)?\s*[=:]?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
#: Variants whose memory differs by less are told apart by nobody.
_SAME_CAPACITY_FRAC = 0.15
#: Batches that are tried where none is stated.
_BATCHES = np.exp2(np.arange(15, dtype=np.float64))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskedRows:
    """Rows that run one model, as jobs on machines; three a row, one after the other.

    Attributes:
        given: Answers that need no job, by place in the table.
        calibration: Of the predictor.
    """

    given: Mapping[int, Answer]
    asked: tuple[tuple[Cell, RowJob], ...]
    calibration: Calibration

    @property
    def jobs(self) -> list[Job]:
        """What is timed, then the same where its memory peaks, then with one request."""
        jobs = [one.job for _, one in self.asked]
        kept = [kept_job(cell, one.job) for cell, one in self.asked]
        return [*jobs, *kept, *(_single(job) for job in jobs)]

    @property
    def machines(self) -> list[Machine]:
        """Of each job."""
        return [one.machine for _, one in self.asked] * 3

    def answers(self, steps: Steps, *, is_learned_from: bool = False) -> dict[int, Answer]:
        """Answers by place in the table.

        Args:
            steps: Of the jobs.
            is_learned_from: Whether answers say what measurements know their steps by.
        """
        count, found = len(self.asked), dict(self.given)
        for row, (cell, one) in enumerate(self.asked):
            step, peak, single = (steps.take([row + count * part]) for part in range(3))
            answer = _answer(cell, one, step, peak, single, self.calibration)
            if is_learned_from and not answer.reason:
                answer = replace(answer, step=step_traits(one.job, one.machine, self.calibration))
            found[cell.index] = answer
        return found


def ask_cells(
    key: WorkloadKey,
    cells: Sequence[Cell],
    catalog: Catalog,
    *,
    cache_folder: Path | None,
    python: str | None,
    calibration: Calibration,
) -> AskedRows:
    """What is asked of `simulate` for rows that run one model.

    Args:
        key: The model.
        cells: The rows.
        catalog: Devices and links.
        cache_folder: Where traced models are kept.
        python: Interpreter that has the model's framework.
        calibration: Of the predictor.
    """
    try:
        workload = cached_workload(key, cache_folder=cache_folder, python=python)
    except PacelineError as error:
        failed = Answer(entry=key.entry, reason=str(error))
        given = {cell.index: failed for cell in cells}
        return AskedRows(given=given, asked=(), calibration=calibration)
    pairs = with_items(cells, workload)
    given = _of_services(key.entry, pairs, catalog, calibration)
    asked: list[tuple[Cell, RowJob]] = []
    for cell, item in pairs:
        if cell.index in given:
            continue
        one = asked_of(cell, item, catalog, calibration)
        if isinstance(one, str):
            given[cell.index] = Answer(entry=key.entry, device=cell.device.name, reason=one)
        else:
            asked.append(one)
    return AskedRows(given=given, asked=tuple(asked), calibration=calibration)


def _of_services(
    entry: str, pairs: Sequence[tuple[Cell, Workload]], catalog: Catalog,
    calibration: Calibration,
) -> dict[int, Answer]:  # fmt: skip
    """Answers to rows of what serves requests, by their places in the table.

    Encoder-decoders answer whole batches.
    """
    served = [(cell, item) for cell, item in pairs if is_service(cell) and not item.encodes]
    answers = answer_services(entry, served, catalog, calibration=calibration)
    return dict(zip((cell.index for cell, _ in served), answers, strict=True))


def asked_of(
    cell: Cell, workload: Workload, catalog: Catalog, calibration: Calibration
) -> tuple[Cell, RowJob] | str:
    """A row and its job, or why it has none."""
    try:
        if math.isnan(cell.reading.batch_per_gpu) and not cell.row.strategy:
            cell = _filled(cell, workload, catalog, calibration)
        cell = as_shared(cell, workload, catalog, calibration)
        cell = with_requests(cell, workload)
        return cell, row_job(cell, with_item(workload, cell.row.item), catalog)
    except (UnresolvedRowError, PacelineError) as error:
        return str(error)


def _filled(cell: Cell, workload: Workload, catalog: Catalog, calibration: Calibration) -> Cell:
    """The row with the largest power of two that fits its device at a chance of 95 %.

    Published jobs whose batch stands nowhere are those of scripts that fill the device.
    """

    def with_batch(batch: float) -> Cell:
        return replace(cell, reading=replace(cell.reading, batch_per_gpu=batch))

    alone = replace(cell.row, num_gpus=1.0, parallelism="")
    jobs = [row_job(replace(with_batch(b), row=alone), workload, catalog) for b in _BATCHES]
    steps = simulate([o.job for o in jobs], [o.machine for o in jobs], calibration=calibration)
    capacity = cell.capacities_bytes[0] if cell.capacities_bytes else math.inf
    fitting = np.flatnonzero(steps.memory_high_bytes <= capacity)
    return with_batch(float(_BATCHES[fitting[-1] if len(fitting) else 0]))


def _single(job: Job) -> Job:
    """The job with one request of an engine; any other as it is."""
    return job if job.engine is None else replace(job, batch=1)


def step_s_of(steps: Steps, job: Job) -> float:
    """What tables time: a token of a language model, else a step or a whole answer."""
    return float(getattr(steps, figure_of(job))[0])


def figure_of(job: Job) -> str:
    """The column of `Steps` that tables time; encoder-decoders are timed by whole answers."""
    is_token = job.is_generation and not job.workload.encodes
    return "per_token_s" if is_token else "step_s"


def _answer(
    cell: Cell, asked: RowJob, steps: Steps, peak: Steps, single: Steps, calibration: Calibration
) -> Answer:
    """The answer to a row, from one row of steps and one of those at its peak."""
    reading, row = cell.reading, cell.row
    failed = Answer(entry=reading.entry, device=cell.device.name)
    try:
        steps.check()
    except PacelineError as error:
        return replace(failed, reason=str(error))
    step_s = step_s_of(steps, asked.job)
    if not math.isfinite(step_s):
        return replace(failed, reason="the link between its devices or nodes is unknown")
    power_w, slowdown = under_limit(row, steps, calibration)
    mid_s = step_s * slowdown * math.prod(factor for _, factor in stated_factors(cell))
    mid_s += added_s(cell, asked.job)
    log_sigma = beside_log_sigma(cell, asked)
    spread = _spread(float(steps.step_high_s[0] / steps.step_s[0]), log_sigma)
    workload = asked.job.workload
    rate, unit = _throughput(cell, workload, asked.job, asked.items, mid_s)
    whole = rank_memory(cell, peak)
    needed = whole if asked.job.engine is None else rank_memory(cell, single)
    memory = shown_memory(cell, kept_job(cell, asked.job), peak)
    return Answer(
        entry=reading.entry,
        device=cell.device.name,
        case=Coverage(int(steps.knowledge[0])).name.lower(),
        step_low_s=mid_s / spread,
        step_mid_s=mid_s,
        step_high_s=mid_s * spread,
        throughput_low=None if rate is None else rate / spread,
        throughput_mid=rate,
        throughput_high=None if rate is None else rate * spread,
        throughput_unit=unit,
        memory_low_bytes=None if reading.is_cut else memory.low_bytes,
        memory_mid_bytes=None if reading.is_cut else memory.mid_bytes,
        memory_high_bytes=None if reading.is_cut else memory.upper_bytes(),
        memory_lasting_bytes=None if reading.is_cut else _known(memory.lasting_bytes),
        fits=_fits(cell, needed),
        chance_to_fit=_chance_to_fit(cell, needed),
        power_w=_known(power_w),
        roofline_s=_known(float(steps.roofline_s[0])),
        note=_note(cell, asked, whole, unit),
    )


def assumed_of(cell: Cell, asked: RowJob) -> tuple[Assumed, ...]:
    """What a row does not say of its devices, and of the trainer that runs its step."""
    reading = cell.reading
    by_trainer = reading.task == "train" and reading.configuration.peaks != "measured"
    return (*asked.assumed, "trainer") if by_trainer else asked.assumed


def beside_log_sigma(cell: Cell, asked: RowJob) -> float:
    """Log sigma beside that of the step itself: of what a row leaves open (decision 0204)."""
    left_open = widening(assumed_of(cell, asked))
    reading = cell.reading
    return math.hypot(reading.log_sigma, reading.framework_log_sigma, left_open, asked.log_sigma)


def stated_factors(cell: Cell) -> tuple[tuple[str, float], ...]:
    """What a row's time is times that of its step, each by what it stands for."""
    return (
        ("passes of an item", float(cell.reading.num_passes)),
        ("framework beside its kernels", math.exp(cell.reading.log_level)),
        ("time_factor of the row", cell.row.time_factor),
    )


def added_s(cell: Cell, job: Job) -> float:
    """Seconds that a row's harness adds to a step."""
    return cell.row.added_step_s + cell.row.added_item_s * job.batch


def _known(value: float) -> float | None:
    """None where nothing tells it: ranks that hold a part of a model have no law of power."""
    return None if math.isnan(value) else value


def _throughput(
    cell: Cell, workload: Workload, job: Job, items: float, mid_s: float
) -> tuple[float | None, str]:
    """What the row's column of throughput holds, and its unit: a rate, or a time where it asks."""
    if (per_second := units_of_time(cell.row.unit)) is not None:
        return mid_s * per_second, cell.row.unit
    per_item, unit = items_to_unit(
        cell.row, workload, job.length, cell.reading.units_per_item, items_per_step=items
    )
    return (None if per_item is None else items * per_item / mid_s), unit


def under_limit(row: Row, steps: Steps, calibration: Calibration) -> tuple[float, float]:
    """Mean power, the stated limit where it is less, and by how many times that slows the step."""
    power_w = float(steps.power_w[0])
    limit = _POWER_LIMIT.search(row.flags)
    if limit is None or not power_w > float(limit.group(1)) > 0:
        return power_w, 1.0
    limit_w = float(limit.group(1))
    busy_frac = min(float(steps.device_s[0] / steps.step_s[0]), 1.0)
    slowdown = slowdown_under_limit(power_w, limit_w, calibration)
    return limit_w, 1.0 + busy_frac * (slowdown - 1.0)


def _spread(ratio: float, log_sigma: float) -> float:
    """High over mid of an 80 % interval that is wider by an independent log sigma."""
    return math.exp(math.hypot(math.log(ratio), Z_80 * log_sigma))


def _fits(cell: Cell, memory: RankMemory) -> str:
    """``yes`` and ``no`` at the chance of the bounds; between them nobody can say.

    An engine that queues requests needs the weights and one request.
    """
    if cell.capacities_bytes is None or cell.reading.is_cut or "batch" in cell.reading.assumed:
        return ""
    least, most = cell.capacities_bytes
    if memory.high_bytes <= least:
        return "yes"
    return "no" if memory.low_bytes > most else "unsure"


def _chance_to_fit(cell: Cell, memory: RankMemory) -> float | None:
    """Chance that the peak stays within the least memory that the row may mean."""
    if cell.capacities_bytes is None or cell.reading.is_cut:
        return None
    return memory.chance_to_fit(cell.capacities_bytes[0])


def _note(cell: Cell, asked: RowJob, memory: RankMemory, unit: str) -> str:
    """What was assumed where the row leaves it open."""
    least, most = cell.capacities_bytes or (math.inf, math.inf)
    said = (cell.reading.note, asked.note, note_of(assumed_of(cell, asked)))
    notes = [note for note in said if note]
    if least < (1.0 - _SAME_CAPACITY_FRAC) * most:
        sizes = f"{least / 1e9:.0f} or {most / 1e9:.0f} GB"
        notes.append(f"`{cell.row.gpu}` may have {sizes}: taken as {cell.device.name}")
    if asked.job.engine is not None and memory.mid_bytes > least:
        notes.append("its engine has no memory for so many requests at a time; some wait")
    if cell.row.unit and not unit:
        notes.append(f"its throughput in `{cell.row.unit}` is not known")
    return "; ".join(notes)
