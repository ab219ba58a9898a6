"""A SQLite index over the segments, thrown away and rebuilt whenever they have changed.

The segments are the truth. The index is written beside them under a temporary name and moved into
place, so readers never see half of one, and a folder on a network file system needs no locking.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.measurements.records import Record, record_from_line, record_to_line
from paceline.measurements.store import Store, segment_paths

_NAME = "index.sqlite"
_COLUMNS = tuple(f.name for f in dataclasses.fields(Record) if f.name not in ("samples_s", "shape"))


def find_records(
    folder: Path, where: str = "1", parameters: Iterable[object] = ()
) -> tuple[Record, ...]:
    """Records of the store in ``folder`` for which an SQL condition holds, oldest first.

    Every field of `Record` but the lists is a column; ``median_s`` is one more.

    Args:
        folder: The store.
        where: Condition, such as ``workload = ? AND outcome = 'ok'``.
        parameters: Values for its question marks.

    Raises:
        InvalidInputError: SQLite does not understand the condition, or the store's folder cannot
            hold its index.
    """
    path = refresh_index(folder)
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        query = f"SELECT line FROM records WHERE {where} ORDER BY recorded_at, rowid"
        rows = connection.execute(query, tuple(parameters)).fetchall()
    except sqlite3.Error as error:
        raise InvalidInputError(
            f"`{where}` is not a condition: {error}",
            hint="columns are the fields of a record, such as workload = 'resnet18'",
        ) from None
    finally:
        connection.close()
    return tuple(record_from_line(line) for (line,) in rows)


def refresh_index(folder: Path) -> Path:
    """Path of an index that agrees with the segments, made anew if it did not.

    Raises:
        InvalidInputError: The folder is full or cannot be written.
    """
    path, state = folder / _NAME, _state(folder)
    if _state_of_index(path) == state:
        return path
    try:
        _build(folder, path, state)
    except (OSError, sqlite3.OperationalError) as error:
        raise InvalidInputError(
            f"cannot write the index of `{folder}`: {error}",
            hint="make room there, or copy the store to a folder that can be written",
        ) from None
    return path


def _state(folder: Path) -> str:
    """Names and sizes of the segments; they only grow, so equal sizes mean equal contents."""
    return json.dumps([(p.name, p.stat().st_size) for p in segment_paths(folder)])


def _state_of_index(path: Path) -> str | None:
    if not path.exists():
        return None
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            (state,) = connection.execute("SELECT state FROM origin").fetchone()
        finally:
            connection.close()
    except (sqlite3.Error, TypeError):
        return None
    return str(state)


def _build(folder: Path, path: Path, state: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".index-") as temporary:
        fresh = Path(temporary, _NAME)
        connection = sqlite3.connect(fresh)
        try:
            _fill(connection, Store(folder).read().records, state)
        finally:
            connection.close()
        fresh.replace(path)


def _fill(connection: sqlite3.Connection, records: Iterable[Record], state: str) -> None:
    names = ", ".join((*_COLUMNS, "median_s", "line"))
    marks = ", ".join("?" * (len(_COLUMNS) + 2))
    with connection:
        connection.execute("CREATE TABLE origin (state TEXT)")
        connection.execute("INSERT INTO origin VALUES (?)", (state,))
        connection.execute(f"CREATE TABLE records ({names})")
        connection.executemany(f"INSERT INTO records VALUES ({marks})", map(_row, records))
        connection.execute("CREATE INDEX by_cell ON records (cell, machine)")


def _row(record: Record) -> tuple[object, ...]:
    values = (getattr(record, name) for name in _COLUMNS)
    return (*values, record.median_s, record_to_line(record))
