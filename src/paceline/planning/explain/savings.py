"""What rewrites would take off a job that does not fit, in one sentence."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import monomials
from paceline.model.graph.workload import Workload
from paceline.prediction.memory.remedies import MemoryRemedy, memory_remedies
from paceline.simulation.job import Job
from paceline.simulation.rank import RankPasses
from paceline.units import format_bytes

_NUM_SHOWN = 5


def savings_sentence(
    workload: Workload,
    configuration: Configuration,
    *,
    batch: int,
    seq: int,
    excluded: Container[str] = (),
) -> str:
    """Live bytes of the fullest pass, and how many each rewrite saves; empty if none helps.

    Args:
        workload: The model with its task.
        configuration: How it is run now.
        batch: Items.
        seq: Sequence or past length.
        excluded: Settings that cannot be chosen here.
    """
    runs = RankPasses.of(Job(workload=workload, configuration=configuration)).lowered
    lowered = [(one, runs[one.name]) for one in workload.passes]
    peaks = [_live_peak(two, batch, seq) for _, two in lowered]
    fullest, run = lowered[int(np.argmax(peaks))]
    remedies = memory_remedies(fullest.graph, run, task=workload.task, batch=batch, seq=seq)
    found = [one for one in remedies if not any(name in excluded for name in _names(one))]
    if not found:
        return ""
    saved = ", ".join(map(_saving, found[:_NUM_SHOWN]))
    return f"of {format_bytes(max(peaks))} live at batch {batch}, {saved}"


def _names(one: MemoryRemedy) -> list[str]:
    return [pair.partition("=")[0] for pair in one.settings.split(",")]


def _saving(one: MemoryRemedy) -> str:
    return f"{one.settings.replace(',', ' + ')} saves {format_bytes(one.saved_bytes)}"


def _live_peak(lowered: LoweredPass, batch: int, seq: int) -> float:
    return float((lowered.memory.by_owner.sum(axis=1) @ monomials(batch, seq)[0]).max())
