"""Facts that ship with the package: CSV files with their sources, in the ``data`` of a room."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


def shipped_path(room: str, name: str) -> Path:
    """Where a file of a room's ``data`` lies.

    ``importlib.resources`` would find it too: importing that takes longer than reading ten tables.

    Args:
        room: Package that owns the file, such as ``stack`` or ``app.web``.
        name: Of the file.
    """
    return Path(__file__).parent.joinpath(*room.split("."), "data", name)


@cache
def shipped_rows(room: str, table: str) -> tuple[dict[str, str], ...]:
    """Rows of one shipped table, as text, read once per process.

    Args:
        room: Package that owns the table, such as ``predict``.
        table: Name of the file.

    >>> shipped_rows("prediction", "sustained_clock.csv")[0]["name"]
    'j_per_flop'
    """
    with shipped_path(room, table).open(encoding="utf-8") as lines:
        names, *rows = csv.reader(lines)
        return tuple(dict(zip(names, row, strict=True)) for row in rows)


@cache
def shipped_toml(room: str, name: str) -> Mapping[str, Any]:
    """One shipped TOML file, read once per process.

    Args:
        room: Package that owns the file.
        name: Of the file.

    >>> sorted(shipped_toml("catalog", "feeds.toml"))[0]
    'aws'
    """
    return tomllib.loads(shipped_path(room, name).read_text(encoding="utf-8"))
