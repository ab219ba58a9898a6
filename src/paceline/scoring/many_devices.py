"""The step of a job on several devices, from the step of one."""

from __future__ import annotations

import re

from paceline.parallel.sharded_memory import peak_moments, saved_bytes
from paceline.predict import Points
from paceline.scoring.groups import Group, JobStep
from paceline.scoring.jobs import Cell
from paceline.scoring.split_inference import shared_step
from paceline.scoring.stated_degrees import sharding_of
from paceline.trace.costs import LoweredPass

_REDUCES_IN_FP32 = re.compile(r"mp_mode=DEFAULT")


def scale_out(cell: Cell, group: Group, place: tuple[int, int]) -> JobStep:
    """One step of the whole job.

    Raises:
        UnresolvedRowError: How its devices share the work, or what joins them, is not known.
        PacelineError: The model cannot be shared so, or a fact is missing that this needs.
    """
    alone_s = _alone_s(cell, group, place)
    if cell.row.num_devices <= 1:
        return JobStep(step_s=alone_s)
    return shared_step(cell, group, alone_s, place)


def _alone_s(cell: Cell, group: Group, place: tuple[int, int]) -> float:
    """Seconds of a device's own part of a step.

    Parameters are updated once a step, by a rank that shards them only its own.
    """
    prediction, num_devices = group.prediction, cell.row.num_devices
    is_whole = num_devices <= 1 or sharding_of(cell.row.parallelism) == "none"
    mid_s, update_s = float(prediction.mid_s[place]), float(prediction.update_s[place])
    kept_s = update_s if is_whole else update_s / num_devices
    return cell.reading.grad_accumulation * max(mid_s - update_s, 0.0) + min(kept_s, mid_s)


def rank_memory_frac(cell: Cell, lowered: LoweredPass, seq: float) -> float:
    """Peak of a rank that shards, over that of a device that keeps everything."""
    num_ranks = cell.row.num_devices
    if num_ranks <= 1 or cell.reading.task == "infer":
        return 1.0
    points = Points.of([cell.reading.batch_per_gpu], seq=seq)
    moments = peak_moments(lowered, points)
    saved = saved_bytes(moments, num_ranks, sharding_of(cell.row.parallelism))
    return 1.0 - float(saved[0] / moments.whole.max())


def state_frac(cell: Cell) -> float:
    """Share of the optimizer's state that one rank keeps."""
    ranks = cell.row.num_devices
    return 1.0 if sharding_of(cell.row.parallelism) == "none" else 1.0 / ranks
