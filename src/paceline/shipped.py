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
    read = _reading(kind, tuple(row), tuple(given))  # type: ignore[arg-type]
    for name, reader, is_optional in read:
        cell = row[name]
        given[name] = reader(cell) if cell or not is_optional else None
    return kind(**given)


@cache
def _reading(
    kind: type, columns: tuple[str, ...], given: tuple[str, ...]
) -> tuple[tuple[str, Callable[[str], Any], bool], ...]:
    """The columns that are read, with what reads each and whether an empty cell is None."""
    hints = get_type_hints(kind).items()
    return tuple((n, *_reader(h)) for n, h in hints if n in columns and n not in given)


def _reader(hint: Any) -> tuple[Callable[[str], Any], bool]:
    """What reads a cell as a type, and whether an empty one is None."""
    kinds = get_args(hint)
    if NoneType in kinds:
        return _reader(next(kind for kind in kinds if kind is not NoneType))[0], True
    if get_origin(hint) in (tuple, frozenset):
        many = get_origin(hint)
        return (lambda cell: many(cell.split())), False
    known: dict[Any, Callable[[str], Any]] = {
        bool: lambda cell: cell == "yes", int: int, float: float, date: date.fromisoformat,
    }  # fmt: skip
    return known.get(hint, str), False
