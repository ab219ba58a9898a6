"""The small tables that tell what published names mean."""

from __future__ import annotations

from functools import cache

from paceline.shipped import shipped_rows


@cache
def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of one table of ``data/``."""
    return tuple(shipped_rows("app.scoring", name))
