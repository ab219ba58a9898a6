"""One graph, many ranks: what one of them runs of a pass, keeps, and exchanges with the others.

A file for each way to share: `tensor` (widths and heads, by `roles`), `heads`, `words`,
`sequence` and `tokens` (ring and Ulysses), `experts`, `guidance`.
"""

from __future__ import annotations

from paceline.parallelism.split.calls import CallTable, Wires, calls_s
from paceline.parallelism.split.rank_graph import RankGraph, busiest_frac, calls_when_run, split
from paceline.parallelism.split.routing import Routing
from paceline.parallelism.split.shape import SplitShape

__all__ = [
    "CallTable",
    "RankGraph",
    "Routing",
    "SplitShape",
    "Wires",
    "busiest_frac",
    "calls_s",
    "calls_when_run",
    "split",
]
