"""The small tables that tell what published names mean."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources


@cache
def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of one table of ``data/``."""
    path = resources.files("paceline.app.scoring") / "data" / name
    return tuple(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
