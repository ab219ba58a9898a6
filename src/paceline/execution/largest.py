"""The largest batch that fits: double until memory runs out, then halve the gap.

Every attempt is a cell in processes of its own, so an attempt that runs out of memory, on one rank
or on all, ends those processes and nothing else: no rank is left waiting for another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from paceline.execution.cells import Cell
from paceline.measurements.records import Record

#: Search ends when the gap is below this share of the batch that fits.
_RESOLUTION_FRAC = 0.05
_LARGEST = 2**20


def search_largest(cell: Cell, attempt: Callable[[Cell], Record]) -> Iterator[Record]:
    """Records of every attempt; the last that ended ``ok`` with the largest batch is the answer.

    Any other ending than ``out-of-memory`` ends the search, for it says nothing about memory.

    Args:
        cell: What to measure; its batch is where the search begins.
        attempt: Measures one cell.
    """
    fits, fails = 0, None
    batch = cell.batch_per_device
    while batch <= _LARGEST and (fails is None or _is_worth_trying(fits, fails)):
        record = attempt(replace(cell, batch_per_device=batch))
        yield record
        if record.outcome not in ("ok", "out-of-memory"):
            return
        if record.outcome == "ok":
            fits = max(fits, batch)
        else:
            fails = batch if fails is None else min(fails, batch)
        batch = 2 * batch if fails is None else (fits + fails) // 2


def _is_worth_trying(fits: int, fails: int) -> bool:
    return fails - fits > max(1, int(_RESOLUTION_FRAC * fits))
