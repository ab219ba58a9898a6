"""Memory of a process on a CPU that has begun: what it will hold at most, from what it holds."""

from __future__ import annotations

import numpy as np

from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.graph import Graph
from paceline.model.lowering import lifetimes
from paceline.planfile import Interval
from paceline.prediction.memory.heap import heap_peaks_bytes
from paceline.prediction.memory.peak import live_at_peak, process_memory
from paceline.prediction.prediction import Points
from paceline.prediction.uncertainty.intervals import Z_80

#: What libraries load and keep in the first steps: 20 to 80 MB in six scripts of PyTorch 2.13.
_LOADED_MID_BYTES, _LOADED_HIGH_BYTES = 50e6, 120e6
#: Of that, data of the process's own: end of the data of the same scripts less their heap is -34 to
#: 24 MB, 0 in the mean, as is what a heap is off by. Libraries are files that are mapped.
_LOADED_DATA_HIGH_BYTES = 8e6
#: By how much a replayed heap is off: root of the mean square of ten scripts around a memory cap
#: (`benchmarks/watch.md`).
_HEAP_LOG_SIGMA = 0.11
_Z_95 = 1.6448536269514722
_NUM_DRAWS = 8
#: Release of glibc from which the ends of aligned chunks join their neighbours.
_JOINS_FROM = (2, 39)


def begun_process_bytes(
    graph: Graph, step: LoweredPass, *, batch: int, seq: int, began_bytes: float, heap: str,
    is_data: bool = False,
) -> Interval:  # fmt: skip
    """Peak of the process: low, median and the bound that holds at a chance of 95 %.

    Args:
        graph: Of a step.
        step: The same in its configuration.
        batch: Items of a microbatch.
        seq: Tokens of a sequence; 1 without any.
        began_bytes: What the process held with its parameters, before its first step.
        heap: Whose heap it has, as ``glibc 2.36``; that of others is not known by its chunks.
        is_data: Whether the process's own data are meant, as a limit of them counts them
            (``RLIMIT_DATA``), and not all that is resident.
    """
    points = Points.of([batch], seq=seq)
    live = float(live_at_peak(step.memory, points)[0][0]) - step.parameter_bytes
    release = _glibc_release(heap)
    if release is None:
        added = process_memory("cpu")
        mid = live * (1 + added.fragmentation_mid_frac)
        kept = live + step.gradient_bytes
        high = kept * (1 + added.fragmentation_high_frac)
        sigma = max(0.0, high - mid) / _Z_95
    else:
        peaks = heap_peaks_bytes(
            lifetimes(graph, step.configuration),
            batch=batch,
            seq=seq,
            joins_ends=release >= _JOINS_FROM,
            num_draws=_NUM_DRAWS,
        )
        mid = float(peaks.mean())
        sigma = float(np.hypot(peaks.std(ddof=1), _HEAP_LOG_SIGMA * mid))
    loaded_mid, loaded_high = _LOADED_MID_BYTES, _LOADED_HIGH_BYTES
    if is_data:
        loaded_mid, loaded_high = 0.0, _LOADED_DATA_HIGH_BYTES
    middle = began_bytes + mid + loaded_mid
    doubt = float(np.hypot(sigma, (loaded_high - loaded_mid) / _Z_95))
    return Interval(
        low=max(began_bytes + min(live, mid), middle - Z_80 * doubt),
        mid=middle,
        high=middle + _Z_95 * doubt,
    )


def _glibc_release(heap: str) -> tuple[int, ...] | None:
    """Of a heap's name; None for another one.

    >>> _glibc_release("glibc 2.36"), _glibc_release("musl")
    ((2, 36), None)
    """
    name, _, release = heap.partition(" ")
    numbers = release.split(".")
    is_read = name == "glibc" and all(one.isdigit() for one in numbers)
    return tuple(map(int, numbers)) if is_read else None
