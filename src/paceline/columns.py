"""Tables as frozen values: each field is an array with a row for each thing, in one order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any, TypeVar

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
        table: The table.
        rows: Of a table laid out in several dimensions, an index per dimension.
        alike: Fields that hold for all rows.
    """
    index = rows if isinstance(rows, tuple | slice) else np.asarray(rows)
    value: Any = table
    names = [one.name for one in fields(value)]
    columns = {name: getattr(value, name) for name in names}
    taken = {name: columns[name][index] for name in names if name not in alike}
    whole: _Table = type(value)(**{**columns, **taken})
    return whole


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
