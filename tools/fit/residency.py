"""What a benchmark that repeats one call finds in the last-level cache.

Operator benchmarks call a kernel again and again on the same operands, or on a few copies of them
in turn. Where all of these fit the last-level cache, the calls never touch device memory: cards
with a cache of 96 or 128 MB then read at two to three times their bandwidth. In a step every layer
has operands of its own, so predictions of steps never credit this.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

#: A working set of this many caches finds nothing there; one of a single cache finds everything.
_NONE_AT = 1.3
#: A kernel is taken to be slowed by nothing but the cache at this quantile of its rates.
_FASTEST = 0.99


def with_residency(rows: pd.DataFrame, num_copies: float, bytes_per_cycle: float) -> pd.DataFrame:
    """Rows with the share of their bytes that lies in the cache, and the time to read them.

    Args:
        rows: Op rows with ``moved_bytes`` and device facts.
        num_copies: Sets of operands that the benchmark uses in turn.
        bytes_per_cycle: What one multiprocessor reads from the last-level cache.
    """
    hit = hit_frac(rows, num_copies)
    memory = rows.memory_bytes_per_s.to_numpy(float)
    cache = np.maximum(bytes_per_cycle * (rows.num_sms * rows.clock_hz).to_numpy(float), memory)
    memory_s = rows.moved_bytes.to_numpy(float) * ((1 - hit) / memory + hit / cache)
    return rows.assign(hit_frac=hit, memory_s=memory_s)


def hit_frac(rows: pd.DataFrame, num_copies: float) -> np.ndarray:
    """Share of the bytes of repeated calls that lie in the last-level cache."""
    working_sets = num_copies * (rows.moved_bytes / rows.l2_bytes).to_numpy(float)
    return np.clip((_NONE_AT - working_sets) / (_NONE_AT - 1.0), 0.0, 1.0)


def resident_bytes_per_cycle(rows: pd.DataFrame) -> float:
    """Bytes per cycle and multiprocessor from the slowest cache among these devices.

    Args:
        rows: Rows of kernels that only read, such as decode attention, on any number of devices.
    """
    rate = rows.moved_bytes / rows.time_s / (rows.num_sms * rows.clock_hz)
    resident = hit_frac(rows, 1.0) >= 1.0
    return float(rate[resident].groupby(rows.device[resident]).quantile(_FASTEST).min())
