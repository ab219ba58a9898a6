"""Peak memory of a rank of a published job: of its steps, its framework and its start."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from paceline.app.scoring.many_devices import rank_memory_frac
from paceline.app.scoring.tables import read_table
from paceline.predict import StepPrediction
from paceline.trace.costs import LoweredPass

if TYPE_CHECKING:
    from paceline.app.scoring.predictions import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMemory:
    """Peak memory of one rank.

    Attributes:
        low_bytes: Lower end of the 80 % interval.
        mid_bytes: Median.
        high_bytes: What holds at a chance of 95 %.
    """

    low_bytes: float
    mid_bytes: float
    high_bytes: float


def rank_memory(
    cell: Cell,
    lowered: LoweredPass,
    prediction: StepPrediction,
    place: tuple[int, int],
    seq: float,
) -> RankMemory:
    """Memory of a step, as the framework of the row plans it, or of the start if that is more.

    Args:
        cell: The row and its job.
        lowered: Its pass.
        prediction: Of the pass.
        place: Device and point at which memory is asked.
        seq: Length at that point.
    """
    share = rank_memory_frac(cell, lowered, seq)
    step = [
        share * float(bound[place])
        for bound in (
            prediction.memory_low_bytes, prediction.memory_mid_bytes, prediction.memory_high_bytes,
        )
    ]  # fmt: skip
    facts = _facts(cell)
    if facts is not None:
        step = _planned(step, facts, lowered)
        start = _start_bytes(cell, lowered, facts)
        step = [max(one, other) for one, other in zip(step, start, strict=True)]
    return RankMemory(low_bytes=step[0], mid_bytes=step[1], high_bytes=step[2])


def _facts(cell: Cell) -> dict[str, str] | None:
    for known in read_table("framework_memory.csv"):
        if (
            re.fullmatch(known["framework"], cell.row.framework, re.IGNORECASE)
            and known["task"] == cell.job.task
            and re.fullmatch(known["parallelism"] or ".*", cell.row.parallelism, re.IGNORECASE)
        ):
            return known
    return None


def _planned(step: list[float], facts: dict[str, str], lowered: LoweredPass) -> list[float]:
    """With the buffers that a framework plans beyond what is alive."""
    if not facts["activations_high"]:
        return step
    low, mid, high = step
    activations = max(low - lowered.parameter_bytes, 0.0)
    workspace = float(facts["workspace_bytes"])
    return [
        low,
        mid + activations * (float(facts["activations_mid"]) - 1.0),
        high + activations * (float(facts["activations_high"]) - 1.0) + workspace,
    ]


def _start_bytes(cell: Cell, lowered: LoweredPass, facts: dict[str, str]) -> list[float]:
    """All parameters and a rank's share of them, with what making the share takes."""
    if not facts["start_mid"]:
        return [0.0, 0.0, 0.0]
    ranks = np.maximum(cell.row.num_gpus or 1.0, 1.0)
    whole = float(lowered.parameter_bytes * (1.0 + 1.0 / ranks))
    return [whole * float(facts[f"start_{bound}"]) for bound in ("low", "mid", "high")]
