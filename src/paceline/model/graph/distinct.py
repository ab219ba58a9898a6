"""The distinct values of an array, without what ``numpy.unique`` imports for them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Kind = TypeVar("Kind", bound=np.generic)
Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
#: Numbers that fit into 64 bits.
_MOST_CODES = 2**62
#: More than any enumeration has.
_MOST_NUMBERS = 64


def distinct(values: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
    """Each value once, in order, of an array of any shape, (num_values,).

    ``numpy.unique`` imports ``numpy.ma`` when it is asked for values alone, which takes as long as
    predicting a small model.

    >>> distinct(np.array([[3, 1], [1, 2]])).tolist()
    [1, 2, 3]
    """
    ordered: npt.NDArray[Any] = np.sort(values, axis=None)
    is_new = np.ones(len(ordered), dtype=np.bool_)
    is_new[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_new]


def among(values: npt.NDArray[np.integer], numbers: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """Whether each value is one of a few numbers of an enumeration, same shape.

    As ``numpy.isin``, which turns the numbers into an array and sorts them at each call.

    >>> among(np.array([3, 0, 1]), (1, 3)).tolist()
    [True, False, True]
    """
    return np.asarray(_mask(numbers)[values])


@cache
def _mask(numbers: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    mask = np.zeros(_MOST_NUMBERS, dtype=np.bool_)
    mask[list(numbers)] = True
    return mask


def summed_rows(rows: Floats, place: Indices, num_places: int) -> Floats:
    """The sum of the rows of each place, (num_places, num_columns); most columns may be empty.

    >>> summed_rows(np.array([[1.0, 0], [2, 0], [5, 1]]), np.array([0, 0, 2]), 3).tolist()
    [[3.0, 0.0], [0.0, 0.0], [5.0, 1.0]]
    """
    total = np.zeros((num_places, rows.shape[1]))
    for column in np.flatnonzero(rows.any(axis=0)).tolist():
        total[:, column] = np.bincount(place, rows[:, column], num_places)
    return total


def largest_rows(rows: Floats, place: Indices, num_places: int) -> Floats:
    """The largest of each column of the rows of each place, at least zero, as `summed_rows`."""
    largest = np.zeros((rows.shape[1], num_places))
    for found, column in zip(largest, np.ascontiguousarray(rows.T), strict=True):
        np.maximum.at(found, place, column)
    return largest.T


def distinct_columns(columns: Sequence[npt.NDArray[Any]]) -> tuple[Indices, Indices]:
    """First place of each distinct tuple, ordered by the tuples, and the tuple of each place.

    As ``numpy.unique`` over an axis, which compares whole rows byte by byte.

    >>> first, of_place = distinct_columns([np.array([2, 1, 2]), np.array([0.5, 9.0, 0.5])])
    >>> first.tolist(), of_place.tolist()
    ([1, 0], [1, 0, 1])
    """
    code, num_codes = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        if column.dtype.kind != "i":
            column = np.unique(column, return_inverse=True)[1]
        least = int(column.min(initial=0))
        size = int(column.max(initial=0)) - least + 1
        if num_codes * size > _MOST_CODES:
            code = np.unique(code, return_inverse=True)[1]
            num_codes = len(code)
        code, num_codes = code * size + (column - least), num_codes * size
    _, first, of_place = np.unique(code, return_index=True, return_inverse=True)
    return first, of_place


def distinct_rows(rows: Floats) -> tuple[Indices, Indices, Indices]:
    """First row of each distinct one, the distinct row of each row, and counts.

    Rows are compared by a 64-bit hash of their bits (multiply and add modulo 2⁶⁴), of columns that
    are not the same everywhere.
    """
    rows = rows[:, (rows != rows[:1]).any(axis=0)]
    bits = np.ascontiguousarray(rows + 0.0).view(np.uint64)
    bits ^= bits >> np.uint64(29)
    hashes = (bits * _odd_factors(bits.shape[1])).sum(axis=1, dtype=np.uint64)
    _, first, index, count = np.unique(
        hashes, return_index=True, return_inverse=True, return_counts=True
    )
    return first, index, count


def _odd_factors(count: int) -> npt.NDArray[np.uint64]:
    """Numbers of 64 bits that have nothing in common, (count,).

    They are drawn by SplitMix64 and not by ``numpy.random``, which takes as long to import as a
    small model to lower.

    Source:
        Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    drawn = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    drawn = (drawn ^ (drawn >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    drawn = (drawn ^ (drawn >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(drawn ^ (drawn >> np.uint64(31))) | np.uint64(1)
