"""Memory that a training process holds, with its allocations replayed one by one.

`Steps` has a process's peak by sums, for every candidate: live tensors, and a usual share more.
Which segments stay beside them depends on the order in which a job allocates, so that what is shown
of a job is followed allocation by allocation (`parallelism.replayed`).

Source: of 32 jobs on an H200 and an H100 (benchmarks/gpu_asked.md), segments over live blocks are
    met within 0.02 in the median by a replay; usual shares miss them by up to 0.26.
"""

from __future__ import annotations

import math

import numpy as np

from paceline.parallelism.memory.memory_fit import MEMORY_CONFIDENCE, quantile_bytes
from paceline.parallelism.replayed import (
    ReplayedRank,
    can_replay,
    can_replay_last_stage,
    replayed_rank,
)
from paceline.parallelism.steps import Steps
from paceline.planfile import Interval
from paceline.simulation.job import Job, software_of
from paceline.simulation.memory_kinds import MemoryKind, memory_of_kind


def held_memory(
    job: Job, steps: Steps, row: int = 0, *, capacity_bytes: float = math.inf
) -> Interval:  # fmt: skip
    """Peak memory of a process, with the segments that its allocations leave.

    Args:
        job: What runs in that row.
        steps: Of it and others, with their memory by sums.
        row: Which.
        capacity_bytes: Of the device.

    Returns:
        As of `held_interval`.
    """
    return held_interval(
        job, steps.memory_interval_bytes(row), capacity_bytes=capacity_bytes,
        joined_bytes=float(np.nan_to_num(steps.communicator_bytes[row])),
    )  # fmt: skip


def held_interval(
    job: Job, told: Interval, *, capacity_bytes: float, joined_bytes: float
) -> Interval:  # fmt: skip
    """The same of a peak by sums.

    Args:
        job: What runs; only training is replayed, and only where one pass stands for a rank.
        told: Lower end, median and bound that holds at 95 %.
        capacity_bytes: Of the device.
        joined_bytes: Of the process, what communicators of its ranks hold; no allocator does.

    Returns:
        The three with replayed segments; by sums where the replay finds no room.
    """
    factor = held_factor(job, told.mid, capacity_bytes=capacity_bytes, joined_bytes=joined_bytes)
    return within(told, factor, capacity_bytes)


def within(told: Interval, factor: float, capacity_bytes: float) -> Interval:
    """An interval with replayed segments, of which an allocator holds what a device has at most.

    What fits by sums fits still, what is unsure to fit stays unsure.

    >>> roomy = Interval(low=60e9, mid=70e9, high=78e9)
    >>> within(roomy, 1.2, 80e9).high == within(roomy, 1.2, 80e9).mid == 80e9
    True
    >>> unsure = Interval(low=60e9, mid=70e9, high=90e9)
    >>> within(unsure, 1.2, 80e9) == Interval(low=72e9, mid=80e9, high=90e9)
    True
    """
    fits = quantile_bytes(told.mid, told.high, MEMORY_CONFIDENCE) <= capacity_bytes
    low, mid, high = (
        min(factor * end, capacity_bytes if fits else max(capacity_bytes, end))
        for end in (told.low, told.mid, told.high)
    )
    return Interval(low=low, mid=mid, high=high)


def held_factor(
    job: Job,
    process_bytes: float,
    *,
    kind: MemoryKind = "process",
    capacity_bytes: float = math.inf,
    joined_bytes: float = 0.0,
    varies: bool = False,
) -> float:
    """A figure with replayed segments over the same with a usual share of them.

    Args:
        job: What runs.
        process_bytes: Median peak of the process by sums.
        kind: Which figure of it; live blocks are what they are.
        capacity_bytes: Of the device.
        joined_bytes: Of the process, what communicators of its ranks hold; no allocator does.
        varies: Whether shorter sequences come before one of the job's length.

    Returns:
        One where nothing is replayed, and where the replay finds no room. Of stages the last one is
        replayed: no less than one, as others may be fuller.
    """
    is_stage = can_replay_last_stage(job.how, job.strategy)
    is_open = is_stage or can_replay(job.how, job.strategy)
    if kind == "allocated" or job.workload.task != "train" or not is_open:
        return 1.0
    replayed = _replayed(job, capacity_bytes, varies=varies)
    if not replayed.fits:
        return 1.0
    live, reserved, shown = (
        memory_of_kind(process_bytes, one, platform=job.how.platform, joined_bytes=joined_bytes)
        for one in ("allocated", "reserved", kind)
    )
    if is_stage:
        return max((replayed.held_bytes + shown - reserved) / shown, 1.0)
    return (live + replayed.beside_bytes + shown - reserved) / shown


def _replayed(job: Job, capacity_bytes: float, *, varies: bool) -> ReplayedRank:
    """The pass of the job that takes most."""
    software = software_of(job)
    passes = [
        replayed_rank(
            one.graph, job.how, job.strategy, batch=job.batch, seq=float(job.length),
            capacity_bytes=capacity_bytes, varies=varies, wraps_each=software.wraps_each,
            flat_states=software.flat_states, starts_whole=software.starts_whole,
        )
        for one in job.workload.passes
        if one.runs_on == "device"
    ]  # fmt: skip
    return max(passes, key=lambda one: one.peak_bytes)
