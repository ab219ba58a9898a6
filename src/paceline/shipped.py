"""Facts that ship with the package: CSV files with their sources, in the ``data`` of a room."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def shipped_path(room: str, name: str) -> Path:
    """Where a file of a room's ``data`` lies.

    ``importlib.resources`` would find it too: importing that takes longer than reading ten tables.

    ``room``: package that owns the file, such as ``stack`` or ``app.web``.
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

    >>> sorted(shipped_toml("catalog", "feeds.toml"))[0]
    'aws'
    """
    return tomllib.loads(shipped_path(room, name).read_text(encoding="utf-8"))


def read_as(kind: type[T], row: Mapping[str, str], **given: Any) -> T:
    """A dataclass from the cells of a row, each read as the type of the field of its name says.

    Yes or no, a number, a day, a word, or words with blanks between; an empty cell is None where
    the field may be. A field without a cell keeps its default.

    Args:
        kind: The dataclass.
        row: Cells by column; those without a field are passed over.
        given: Fields that no cell says alone.
    """
    readers = _readers(kind)  # type: ignore[arg-type]
    cells = {
        name: read(row[name]) for name, read in readers.items() if name not in given and name in row
    }
    return kind(**cells, **given)


@cache
def _readers(kind: type) -> dict[str, Callable[[str], Any]]:
    return {name: _reader(hint) for name, hint in get_type_hints(kind).items()}


def _reader(hint: Any) -> Callable[[str], Any]:
    """What reads a cell as a type."""
    kinds = get_args(hint)
    if NoneType in kinds:
        read = _reader(next(kind for kind in kinds if kind is not NoneType))
        return lambda cell: read(cell) if cell else None
    if get_origin(hint) in (tuple, frozenset):
        many = get_origin(hint)
        return lambda cell: many(cell.split())
    known: dict[Any, Callable[[str], Any]] = {
        bool: lambda cell: cell == "yes", int: int, float: float, date: date.fromisoformat,
    }  # fmt: skip
    return known.get(hint, str)
