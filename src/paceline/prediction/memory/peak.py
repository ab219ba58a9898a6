"""Peak device memory of a process, for all points at once.

Tier one, here, takes the live bytes at the moments that can be the peak and adds what the caching
allocator, the libraries and the driver add. Tier two (`memory.allocator`) replays one
pass allocation by allocation; tier one's upper bound is never below it.

Three figures are easily confused: *allocated* (live tensors, rounded), *reserved* (the segments
that the allocator holds) and *process* (reserved, workspaces and the driver's context: what
``nvidia-smi`` shows). `peak_memory_bytes` gives the last, as that is what must fit.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from paceline.model.graph.costs import Configuration, MemoryTable, Platform
from paceline.model.graph.graph import FloatArray, monomials
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.prediction import Points
from paceline.values import dataclass

_CHUNK_POINTS = 4096

#: Whose memory a process holds: that of a platform's framework, or of an engine that makes all of
#: its buffers once, as large as they have to be.
Allocator: TypeAlias = Platform | Literal["ggml"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """What a platform adds to live tensors.

    Attributes:
        context_low_bytes: Driver context and loaded kernels, lower end of the 80 % interval.
        context_mid_bytes: Median.
        context_high_bytes: Bound that holds at a chance of 95 %.
        workspace_bytes: Workspaces of the matrix libraries, allocated once.
        fragmentation_mid_frac: Reserved over allocated, above one, median.
        fragmentation_high_frac: The same, bound.
        slack_mid_bytes: Parts of segments that no tensor uses, however small the job, median.
        slack_high_bytes: The same, bound.
        spare_tensors_high: Of the largest tensor, how many more may find no free block that is
            large enough, bound.
        round_bytes: Granularity of an allocation.
    """

    context_low_bytes: float
    context_mid_bytes: float
    context_high_bytes: float
    workspace_bytes: float
    fragmentation_mid_frac: float
    fragmentation_high_frac: float
    slack_mid_bytes: float
    slack_high_bytes: float
    spare_tensors_high: float
    round_bytes: float


def allocator_of(configuration: Configuration) -> Allocator:
    """Whose allocator holds what runs so."""
    platform = configuration.platform
    is_portable = configuration.engine_kernels == "portable" and platform in ("cuda", "rocm")
    return "ggml" if is_portable else platform


def process_memory(platform: Allocator, calibration: Calibration | None = None) -> ProcessMemory:
    """The constants of a platform; those of the built-in calibration if None is given."""
    row = (calibration or builtin_calibration()).constants["process_memory"][platform]
    return ProcessMemory(**{name: float(row[name]) for name in ProcessMemory.__dataclass_fields__})


def peak_memory_bytes(
    memory: MemoryTable,
    points: Points,
    *,
    platform: Allocator,
    calibration: Calibration | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Peak memory of the process.

    Args:
        memory: Candidate moments of a lowered pass.
        points: Where to evaluate, P of them.
        platform: Whose allocator, libraries and driver.
        calibration: What a process adds; the built-in one if None.

    Returns:
        Lower end of the 80 % interval, median, and the bound that holds at a chance of 95 %, each
        (P,).
    """
    live, count = live_at_peak(memory, points)
    return process_bytes(
        live, count, _largest(memory, points), platform=platform, calibration=calibration
    )


def process_bytes(
    live_bytes: FloatArray,
    num_allocations: FloatArray | float,
    largest_bytes: FloatArray,
    *,
    platform: Allocator,
    calibration: Calibration | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Peak memory of a process from that of its live tensors.

    Args:
        live_bytes: Bytes of the tensors that are alive at the peak.
        num_allocations: How many of them; none where that is not known.
        largest_bytes: The largest tensor that comes and goes, same shape.
        platform: Whose allocator, libraries and driver.
        calibration: What a process adds; the built-in one if None.

    Returns:
        Lower end of the 80 % interval, median, and the bound that holds at a chance of 95 %, each
        of that shape.
    """
    added = process_memory(platform, calibration)
    allocated = live_bytes + 0.5 * added.round_bytes * num_allocations
    mid = allocated * (1 + added.fragmentation_mid_frac) + added.slack_mid_bytes
    all_rounded = live_bytes + added.round_bytes * num_allocations
    high = all_rounded * (1 + added.fragmentation_high_frac) + added.slack_high_bytes
    high = high + added.spare_tensors_high * largest_bytes
    return (
        live_bytes + added.context_low_bytes,
        mid + added.workspace_bytes + added.context_mid_bytes,
        high + added.workspace_bytes + added.context_high_bytes,
    )


def _largest(memory: MemoryTable, points: Points) -> FloatArray:
    """Bytes of the largest tensor, (P,)."""
    largest: FloatArray = (monomials(points.batch, points.seq) @ memory.largest_bytes.T).max(
        axis=1, initial=0.0
    )
    return largest


def live_at_peak(memory: MemoryTable, points: Points) -> tuple[FloatArray, FloatArray]:
    """Live bytes at the peak, and how many allocations are alive then; (P,) each."""
    total = memory.by_owner.sum(axis=1)
    used = np.flatnonzero(total.any(axis=0))
    live = np.empty(len(points.batch))
    count = np.empty(len(points.batch))
    for start in range(0, len(points.batch), _CHUNK_POINTS):
        part = slice(start, start + _CHUNK_POINTS)
        at_points = monomials(points.batch[part], points.seq[part])[:, used] @ total[:, used].T
        moment = at_points.argmax(axis=1)
        live[part] = at_points[np.arange(len(moment)), moment]
        count[part] = memory.num_allocations[moment]
    return live, count


def peak_by_owner_bytes(memory: MemoryTable, points: Points) -> FloatArray:
    """Live bytes at the peak by ``Owner``, (num_owners, P); they sum to the live peak."""
    total = memory.by_owner.sum(axis=1)
    terms = monomials(points.batch, points.seq)
    moment = (terms @ total.T).argmax(axis=1)
    by_owner: FloatArray = np.einsum("pon,pn->op", memory.by_owner[moment], terms)
    return by_owner
