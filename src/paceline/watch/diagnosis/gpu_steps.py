"""Where the time of a step goes on a GPU: from what ran on its streams in profiled steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.values import dataclass

#: Letters of a record by what they count as; the first that is there takes the time.
_CLASSES = ("kw", "nb", "hpd")
_PAGEABLE = "h"
#: Calls of the CUDA runtime in which a host starts kernels, and in which it waits for the GPU.
_LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch")
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuStep:
    """A step on a GPU; its four parts add up to it.

    Attributes:
        step_s: Mean of the profiled steps.
        compute_s: At least one kernel runs.
        communication_s: A collective or a copy between GPUs runs, and no kernel.
        copies_s: A copy from or to the host runs, and neither of those.
        idle_s: Nothing runs.
        pageable_s: Of the copies, from memory that is not pinned, hidden or not.
        num_launches: Kernels and graphs that the host starts.
        num_waits: Times that the host waits for the GPU.
    """

    step_s: float
    compute_s: float
    communication_s: float
    copies_s: float
    idle_s: float
    pageable_s: float
    num_launches: float
    num_waits: float


def gpu_step_of(record: Mapping[str, Any]) -> GpuStep | None:
    """A record of the observer as parts of a step; None where it holds none.

    Args:
        record: ``bounds_ns`` of the steps; ``kinds``, ``starts_ns`` and ``durations_ns`` of what
            ran; ``calls`` of the runtime by name, each how many and how long.
    """
    bounds = record.get("bounds_ns") or []
    kinds = np.array(list(record.get("kinds") or ""))
    if len(bounds) < 2 or bounds[-1] <= bounds[0] or not len(kinds):
        return None
    num_steps = len(bounds) - 1
    starts = np.clip(1e-9 * np.array(record["starts_ns"]), 1e-9 * bounds[0], 1e-9 * bounds[-1])
    ends = 1e-9 * (np.array(record["starts_ns"]) + np.array(record["durations_ns"]))
    ends = np.clip(ends, starts, 1e-9 * bounds[-1])
    which = np.argmax([np.isin(kinds, list(one)) for one in _CLASSES], axis=0)
    step_s = 1e-9 * (bounds[-1] - bounds[0]) / num_steps
    by_class_s = (shown_s(starts, ends, which, len(_CLASSES)) / num_steps).tolist()
    compute_s, communication_s, copies_s = by_class_s
    is_pageable = kinds == _PAGEABLE
    calls = record.get("calls") or {}
    return GpuStep(
        step_s=step_s,
        compute_s=compute_s,
        communication_s=communication_s,
        copies_s=copies_s,
        idle_s=max(0.0, step_s - compute_s - communication_s - copies_s),
        pageable_s=float((ends - starts)[is_pageable].sum()) / num_steps,
        num_launches=_number(calls, _LAUNCHES) / num_steps,
        num_waits=_number(calls, _WAITS) / num_steps,
    )


def _number(calls: Mapping[str, Any], names: tuple[str, ...]) -> float:
    return float(sum(seen[0] for name, seen in calls.items() if name.startswith(names)))


def shown_s(
    starts: Seconds, ends: Seconds, which: npt.NDArray[np.int64], num_classes: int
) -> Seconds:
    """Seconds in which something of a class runs, and nothing of a class before it.

    Args:
        starts: Of each interval.
        ends: Of each.
        which: Class of each, from 0.
        num_classes: How many there are.

    >>> shown_s(np.array([0.0, 1.0]), np.array([2.0, 5.0]), np.array([0, 1]), 2)
    array([2., 3.])
    """
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    changes = np.zeros((len(times), num_classes))
    rows = np.arange(len(starts))
    changes[rows, which] = 1.0
    changes[rows + len(starts), which] = -1.0
    runs = np.cumsum(changes[order], axis=0)[:-1] > 0.5
    is_first = runs & (np.cumsum(runs, axis=1) == 1)
    lengths: Seconds = np.diff(times[order]) @ is_first
    return lengths
