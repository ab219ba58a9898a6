"""What a scaling curve is made of: one job on several numbers of devices."""

from __future__ import annotations

from typing import Literal

from paceline.planfile import Interval
from paceline.planning.decisions.knee_point import Knee
from paceline.values import dataclass

Limit = Literal["nothing", "collective", "batch floor", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedStep:
    """The job on one number of devices, run as well as it can be.

    Attributes:
        num_nodes: Nodes they take.
        strategy: Canonical strategy string.
        microbatch: Items per device and microbatch.
        global_batch: Items per step over all devices.
        step_s: Step time.
        items_per_s: Batch items per second of all devices.
        memory_bytes: What a device must have, at the chance at which it must fit.
        memory_interval_bytes: Peak per device of a process: lower end, median and the bound that
            holds at 95 %, with the segments that a replay holds (`simulation.held_memory`).
        communication_s: Communication per step, hidden or not.
        exposed_communication_s: Of it, what nothing hides.
        log_sigma: Standard deviation of log step time, communication and input included.
    """

    count: int
    num_nodes: int
    strategy: str
    microbatch: int
    global_batch: int
    step_s: float
    items_per_s: float
    memory_bytes: float
    memory_interval_bytes: Interval
    communication_s: float
    exposed_communication_s: float
    log_sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint(CountedStep):
    """One count beside the others; every interval holds at a chance of 80 %.

    Attributes:
        step_interval_s: Of the step time.
        items_per_s_interval: Of the throughput, slow where the step is long.
        time_s: Time for the whole job; None if its size is not known.
        time_interval_s: Of that; None likewise.
        cost_usd: Price of that; None if time or price are not known.
        cost_interval_usd: Of that, which adds the age of the price; None likewise.
        usd_per_million_items: Price of a million batch items; None without a price.
        efficiency_frac: Throughput per device against the smallest count, or against the best one
            where that is clearly faster.
        limit: What costs most of the lost efficiency.
        next_device_items_per_s: Throughput that each further device adds up to the next count;
            None at the last.
        next_device_usd_per_million_items: What a million of the added items cost.
    """

    step_interval_s: Interval
    items_per_s_interval: Interval
    time_s: float | None
    time_interval_s: Interval | None
    cost_usd: float | None
    cost_interval_usd: Interval | None
    usd_per_million_items: float | None
    efficiency_frac: float
    limit: Limit
    next_device_items_per_s: float | None
    next_device_usd_per_million_items: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCurve:
    """A job on several numbers of devices.

    Attributes:
        points: One per count that works, fewest devices first.
        rejected: Counts that do not, each with the reason.
        knee: The last count worth going to.
        reason: Why it stops paying there, in one sentence.
    """

    points: tuple[ScalingPoint, ...]
    rejected: tuple[tuple[int, str], ...]
    knee: Knee
    reason: str
