"""Tables as frozen values: each field is an array with a row for each thing, in one order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

_Table = TypeVar("_Table")


def take_rows(
    table: _Table,
    rows: npt.ArrayLike | slice | tuple[npt.NDArray[np.int64], ...],
    *,
    alike: Collection[str] = (),
) -> _Table:
    """Some rows of a table, by a mask or by numbers, which may repeat.

    Args:
        table: The table; columns are arrays, tuples with something for each row, or tables.
        rows: Of a table laid out in several dimensions, an index per dimension.
        alike: Fields that hold for all rows.
    """
    index = rows if isinstance(rows, tuple | slice) else np.asarray(rows)
    value: Any = table
    names = [one.name for one in fields(value)]
    columns = {name: getattr(value, name) for name in names}
    taken = {name: _taken(columns[name], index) for name in names if name not in alike}
    whole: _Table = type(value)(**{**columns, **taken})
    return whole


def _taken(column: Any, index: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column[index]
    if isinstance(column, tuple):
        return tuple(column[row] for row in np.arange(len(column))[index].tolist())
    return column.take(index)


def join_tables(first: _Table, *others: _Table, axis: int = 0) -> _Table:
    """The rows of all tables, one table after the other."""
    value: Any = first
    tables = (first, *others)
    columns = {
        one.name: np.concatenate([getattr(table, one.name) for table in tables], axis=axis)
        for one in fields(value)
    }
    joined: _Table = replace(value, **columns)
    return joined


class ByContent(Generic[_Table]):
    """A table that is equal to each with the same values, by which an answer is kept.

    Things in a tuple that have no hash are the same where they are one thing.
    """

    __slots__ = ("_content", "table")

    def __init__(self, table: _Table) -> None:
        value: Any = table
        self.table = table
        self._content = tuple(_content(getattr(value, one.name)) for one in fields(value))

    def __hash__(self) -> int:
        return hash(self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByContent) and self._content == other._content


def _content(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return column.shape, column.dtype.str, column.tobytes()
    try:
        hash(column)
    except TypeError:
        if not isinstance(column, tuple):
            raise
        return tuple(map(id, column))
    return column
