"""What is taken where a row is silent: said in its note, and paid for with a wider interval.

A precision is never taken: tables that state none are of tuned code that runs two to three times
faster than a framework does (MLPerf), and no interval below a factor of two holds that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from paceline.predict import Points
from paceline.predict.memory import peak_memory_bytes
from paceline.scoring.tables import read_table
from paceline.trace.costs import LoweredPass

if TYPE_CHECKING:
    from paceline.scoring.groups import Cell

Assumed = Literal["framework", "batch", "network", "strategy", "tokens"]
#: Batches that are tried where none is stated.
_BATCHES = np.exp2(np.arange(15, dtype=np.float64))


def widening(assumed: Iterable[Assumed]) -> float:
    """Log sigma that assumptions add to an interval."""
    known = {row["what"]: float(row["log_sigma"]) for row in read_table("assumptions.csv")}
    return math.hypot(*(known[one] for one in assumed))


def note_of(assumed: Iterable[Assumed]) -> str:
    """What was taken, in words.

    >>> note_of(["framework"])
    'framework is not known: taken as PyTorch'
    """
    known = {row["what"]: row["note"] for row in read_table("assumptions.csv")}
    return "; ".join(known[one] for one in assumed)


def with_batch(cell: Cell, lowered: LoweredPass, seq: float) -> Cell:
    """The cell with the largest power of two that fits its device at a chance of 95 %.

    Published jobs whose batch stands nowhere are those of scripts that fill the device.
    """
    if not math.isnan(cell.job.batch_per_gpu):
        return cell
    points = Points.of(_BATCHES, seq=seq)
    platform = lowered.configuration.platform
    high_bytes = peak_memory_bytes(lowered.memory, points, platform=platform)[2]
    capacity = cell.capacities_bytes[0] if cell.capacities_bytes else math.inf
    fitting = np.flatnonzero(high_bytes <= capacity)
    batch = float(_BATCHES[fitting[-1] if len(fitting) else 0])
    return replace(cell, job=replace(cell.job, batch_per_gpu=batch))
