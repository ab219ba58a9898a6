"""What would lower the peak of a pass, by how much, and at what price.

Each remedy is a rewrite that is carried out: the figures are those of the rewritten pass, so that
``paceline trace --rewrite`` with the same settings shows them again.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from paceline.errors import PacelineError
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import Graph, monomials
from paceline.model.graph.workload import Task
from paceline.model.lowering import lower
from paceline.model.settings import read_settings
from paceline.shipped import shipped_rows
from paceline.values import dataclass

#: Less than this share of the peak is no remedy.
LEAST_SAVED_FRAC = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRemedy:
    """One way to need less.

    Attributes:
        settings: The rewrite, as ``--rewrite`` reads it.
        price: What it costs, in words.
        peak_bytes: Live bytes at the peak with it, before allocator and context.
        saved_bytes: How much that is less than without it.
        flop_factor: Work of the pass with it over without it.
    """

    settings: str
    price: str
    peak_bytes: float
    saved_bytes: float
    flop_factor: float


def memory_remedies(
    graph: Graph, lowered: LoweredPass, *, task: Task, batch: int, seq: int
) -> tuple[MemoryRemedy, ...]:
    """The rewrites that save at least one part in a hundred of the peak, most first.

    Of settings of one kind that save the same, only the first, cheapest, is given.

    Args:
        graph: The pass.
        lowered: The pass as it is run now.
        task: What the pass is for.
        batch: Items.
        seq: Sequence or past length.
    """
    now = _peak_and_flop(lowered, batch, seq)
    found: dict[float, MemoryRemedy] = {}
    for settings, price in known_remedies(task):
        changed = _rewritten(graph, lowered.configuration, settings)
        if changed is None:
            continue
        peak, flop = _peak_and_flop(changed, batch, seq)
        if now[0] - peak >= LEAST_SAVED_FRAC * now[0]:
            remedy = MemoryRemedy(
                settings=settings, price=price, peak_bytes=peak, saved_bytes=now[0] - peak,
                flop_factor=flop / max(now[1], 1.0),
            )  # fmt: skip
            found.setdefault(round(peak), remedy)
    return tuple(sorted(found.values(), key=lambda one: one.peak_bytes))


@cache
def known_remedies(task: Task) -> tuple[tuple[str, str], ...]:
    """Settings and price of each rewrite that can lower a peak."""
    rows = shipped_rows("prediction", "memory_remedies.csv")
    return tuple((row["settings"], row["price"]) for row in rows if row["task"] == task)


def _rewritten(graph: Graph, now: Configuration, settings: str) -> LoweredPass | None:
    """The pass with those settings; None where they change nothing or cannot be."""
    try:
        configuration = read_settings(settings, now)
        return None if configuration == now else lower(graph, configuration)
    except PacelineError:
        return None


def _peak_and_flop(lowered: LoweredPass, batch: int, seq: int) -> tuple[float, float]:
    point = monomials(batch, seq)[0]
    peak = (lowered.memory.by_owner.sum(axis=1) @ point).max(initial=0.0)
    flop = np.dot(lowered.costs.flop @ point, lowered.costs.count)
    return float(peak), float(flop)
