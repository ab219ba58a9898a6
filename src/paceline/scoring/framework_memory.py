"""Peak memory of a rank as its framework plans it: buffers beyond what is alive, and its start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from paceline.dtypes import DType, find_precision
from paceline.model.graph.costs import OptimizerKernel, Peaks, TrainingFormat
from paceline.parallelism.memory.memory_fit import (
    bound_bytes,
    chance_to_fit,
    peak_log_sigma,
    quantile_bytes,
)
from paceline.parallelism.steps import Steps
from paceline.planfile import Interval
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.scoring.jobs import Cell, padded_length
from paceline.scoring.naming.stated_degrees import sharding_of
from paceline.scoring.tables import fitting_lines
from paceline.simulation.held_memory import held_factor, within
from paceline.simulation.job import Job
from paceline.simulation.memory_kinds import MemoryKind, interval_of_kind
from paceline.values import dataclass

#: Figures that a trainer may print instead of the process's.
_KINDS: dict[str, MemoryKind] = {"allocated": "allocated", "reserved": "reserved"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Peak memory of one rank.

    Attributes:
        low_bytes: Lower end of the 80 % interval.
        mid_bytes: Median.
        high_bytes: What holds at a chance of 95 %.
        lasting_bytes: Parameters and optimizer state, which are there at all times.
    """

    low_bytes: float
    mid_bytes: float
    high_bytes: float
    lasting_bytes: float

    def scaled(self, factor: float) -> RankMemory:
        """So many times as much, known as surely."""
        return RankMemory(
            low_bytes=self.low_bytes * factor,
            mid_bytes=self.mid_bytes * factor,
            high_bytes=self.high_bytes * factor,
            lasting_bytes=self.lasting_bytes * factor,
        )

    def spread(self, peaks: str, held: float = 1.0) -> RankMemory:
        """The same, where peaks spread as much as is known of them.

        Args:
            peaks: As ``data/peak_spreads.csv`` of `parallelism` calls it.
            held: What an allocator holds, over this.
        """
        log_sigma = peak_log_sigma(peaks, self.lasting_bytes / (held * self.mid_bytes))
        return replace(
            self,
            low_bytes=min(self.low_bytes, self.mid_bytes * math.exp(-Z_80 * log_sigma)),
            high_bytes=float(bound_bytes(self.mid_bytes, self.high_bytes, log_sigma)),
        )

    def upper_bytes(self) -> float:
        """Upper end of the 80 % interval."""
        return float(quantile_bytes(self.mid_bytes, self.high_bytes, 0.9))

    def chance_to_fit(self, limit_bytes: float) -> float:
        """Chance that the peak stays within a limit."""
        return chance_to_fit(limit_bytes, self.mid_bytes, self.high_bytes)


def rank_memory(cell: Cell, steps: Steps) -> RankMemory:
    """Memory of a step, as the framework of the row plans it, or of the start if that is more."""
    return _planned_memory(cell, steps).spread(cell.reading.configuration.peaks)


def peaks_shown(peaks: Peaks, memory_kind: str) -> str:
    """How well the figure of a row is known, as ``data/peak_spreads.csv`` calls it.

    Live blocks are there at the longest step alone; what an allocator holds depends on every length
    that came before it, too. What a driver shows has libraries' buffers and segments that nobody
    needs in it, which a trainer's code does not settle (docs/decisions/0198).

    >>> peaks_shown("lengths", "allocated"), peaks_shown("lengths", "reserved")
    ('derived', 'lengths')
    >>> peaks_shown("derived", "reserved"), peaks_shown("derived", "")
    ('derived', 'driver')
    """
    if peaks == "lengths":
        return "derived" if memory_kind == "allocated" else peaks
    return "driver" if peaks == "derived" and memory_kind not in _KINDS else peaks


def _planned_memory(cell: Cell, steps: Steps) -> RankMemory:
    """The same, as surely as it is known of software that was measured."""
    interval = steps.memory_interval_bytes()
    step = [interval.low, interval.mid, interval.high]
    facts = _facts(cell)
    if facts is not None:
        parameter_bytes = float(steps.parameter_bytes[0])
        kept_bytes = parameter_bytes + _joined_bytes(steps)
        step = step if cell.reading.has_adapters else _planned(step, facts, kept_bytes)
        start = _start_bytes(cell, facts, parameter_bytes)
        step = [max(one, other) for one, other in zip(step, start, strict=True)]
    return _rank_memory(step, steps)


def _rank_memory(bounds: Sequence[float], steps: Steps) -> RankMemory:
    low, mid, high = bounds
    lasting = float(steps.parameter_bytes[0] + steps.optimizer_state_bytes[0])
    return RankMemory(low_bytes=low, mid_bytes=mid, high_bytes=high, lasting_bytes=lasting)


def shown_memory(cell: Cell, job: Job, steps: Steps) -> RankMemory:
    """What the tool of a row shows of a process: its live blocks, its segments, or all of it.

    Allocations of training are replayed: segments stay that a process does not need, as long as the
    device has room.
    """
    kind, platform = _KINDS.get(cell.row.memory_kind, "process"), job.how.platform
    planned = _planned_memory(cell, steps)
    process = (planned.low_bytes, planned.mid_bytes, planned.high_bytes)
    joined = _joined_bytes(steps)
    bounds = interval_of_kind(process, kind, platform=platform, joined_bytes=joined)
    shown = _rank_memory(bounds, steps)
    if cell.row.memory_rank == "last":
        last_frac = float(steps.last_memory_frac[0])
        shown = shown.scaled(1.0 if math.isnan(last_frac) else last_frac)
    peaks = peaks_shown(cell.reading.configuration.peaks, cell.row.memory_kind)
    capacity_bytes = math.inf if cell.capacities_bytes is None else cell.capacities_bytes[1]
    factor = held_factor(
        job, planned.mid_bytes, kind=kind, joined_bytes=joined, capacity_bytes=capacity_bytes,
        varies=cell.row.lengths == "vary",
    )  # fmt: skip
    shown = shown.spread(peaks, factor)
    told = Interval(low=shown.low_bytes, mid=shown.mid_bytes, high=shown.high_bytes)
    held = within(told, factor, capacity_bytes)
    return replace(shown, low_bytes=held.low, mid_bytes=held.mid, high_bytes=held.high)


def _joined_bytes(steps: Steps) -> float:
    """What communicators hold of the rank; nothing where it is alone."""
    return float(np.nan_to_num(steps.communicator_bytes[0]))


def kept_job(cell: Cell, job: Job) -> Job:
    """The job as its memory is asked for: where it peaks, and as its framework keeps weights.

    Its peak is told as of software that was measured: `rank_memory` adds what the framework plans,
    and then how much that spreads.
    """
    facts, seq = _facts(cell), cell.reading.peak_seq
    how = replace(job.configuration, peaks="measured")
    if facts is not None and facts["format"]:
        activation = find_precision(how.precision).activation_dtype
        if activation != DType.FP32:
            how = replace(how, training_format=cast("TrainingFormat", facts["format"]))
    if facts is not None and facts["update"]:
        how = replace(how, optimizer_kernel=cast("OptimizerKernel", facts["update"]))
    if seq is None:
        return replace(job, configuration=how)
    seq = padded_length(seq, job.strategy)
    prompt = seq if job.prompt_tokens else None
    return replace(job, configuration=how, seq=seq, prompt_tokens=prompt)


def _facts(cell: Cell) -> dict[str, str] | None:
    """The first line of ``data/framework_memory.csv`` that holds."""
    asked = {
        "framework": cell.row.framework,
        "task": cell.reading.task,
        "parallelism": cell.row.parallelism,
    }
    return next(fitting_lines("framework_memory.csv", asked), None)


def _planned(step: list[float], facts: dict[str, str], kept_bytes: float) -> list[float]:
    """With the buffers that a framework plans beyond what is alive; some is kept at all times."""
    if not facts["activations_high"]:
        return step
    low, mid, high = step
    activations = max(low - kept_bytes, 0.0)
    workspace = float(facts["workspace_bytes"])
    return [
        low,
        mid + activations * (float(facts["activations_mid"]) - 1.0),
        high + activations * (float(facts["activations_high"]) - 1.0) + workspace,
    ]


def _start_bytes(cell: Cell, facts: dict[str, str], parameter_bytes: float) -> list[float]:
    """All parameters and a rank's share of them, with what making the share takes."""
    if not facts["start_mid"]:
        return [0.0, 0.0, 0.0]
    ranks = cell.row.num_devices
    shares = ranks if sharding_of(cell.row.parallelism) == "zero3" else 1
    whole = parameter_bytes * shares * (1.0 + 1.0 / ranks)
    return [whole * float(facts[f"start_{bound}"]) for bound in ("low", "mid", "high")]
