"""What is taken where a row is silent: said in its note, and paid for with a wider interval.

A precision is never taken: tables that state none are of tuned code that runs two to three times
faster than a framework does (MLPerf), and no interval below a factor of two holds that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from paceline.scoring.tables import read_table

Assumed = Literal[
    "framework", "batch", "network", "strategy", "tokens", "trainer", "power-mode", "requests"
]


def widening(assumed: Iterable[Assumed]) -> float:
    """Log sigma that assumptions add to an interval."""
    known = {row["what"]: float(row["log_sigma"]) for row in read_table("assumptions.csv")}
    return math.hypot(*(known[one] for one in assumed))


def note_of(assumed: Iterable[Assumed]) -> str:
    """What was taken, in words.

    >>> note_of(["framework"])
    'framework is not known: taken as PyTorch'
    """
    known = {row["what"]: row["note"] for row in read_table("assumptions.csv")}
    return "; ".join(filter(None, (known[one] for one in assumed)))
