"""Columns of integers as workload files keep them: what differs from one block to the next.

The blocks of a network refer to each other alike. So the differences of a column repeat from block
to block, or grow by as much each time; after differences over the length of a block, little but
zeros is left. Blocks of the forward pass, of the backward pass and of the update have lengths of
their own.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

IntColumn = npt.NDArray[np.int32]
#: Longest block that is looked for, and how many lengths of blocks a column may have.
_MAX_LAG, _MAX_LAGS = 1500, 4
#: Lengths of blocks that are tried at a time.
_NUM_TRIED = 8
#: What another length must save to be worth its mention.
_WORTHWHILE_BYTES = 16


def packed(column: IntColumn) -> tuple[npt.NDArray[np.uint8], tuple[int, ...]]:
    """A column as bytes that compress well: a row for each byte of its differences.

    Returns:
        Rows, (4, len(column)), and the lags of the differences after those of neighbours.
    """
    left = _differences(column, 1)
    lags: tuple[int, ...] = ()
    while len(lags) < _MAX_LAGS:
        tried = [(_packed_bytes(_differences(left, lag)), lag) for lag in _likely_lags(left)]
        least, lag = min(tried, default=(_packed_bytes(left), 0))
        if least > _packed_bytes(left) - _WORTHWHILE_BYTES:
            break
        left, lags = _differences(left, lag), (*lags, lag)
    return _planes(left), lags


def unpacked(planes: npt.NDArray[np.uint8], lags: tuple[int, ...]) -> IntColumn:
    """The column that `packed` took apart.

    Raises:
        ValueError: Rows or lags that it never makes.
    """
    if planes.dtype != np.uint8 or planes.ndim != 2 or len(planes) != 4:
        raise ValueError(f"planes of type {planes.dtype} and shape {planes.shape}")
    if len(lags) > _MAX_LAGS or not all(1 <= lag <= _MAX_LAG for lag in lags):
        raise ValueError(f"lags of {lags}")
    column = np.ascontiguousarray(planes.T).view("<i4").reshape(-1)
    for lag in (*reversed(lags), 1):
        column = _summed(column, lag)
    return column


def _likely_lags(column: IntColumn) -> list[int]:
    """Lags at which most of a column repeats or grows evenly, the likeliest first."""
    longest = min(len(column) // 3, _MAX_LAG)
    num_even = [_num_even(column, lag) for lag in range(1, longest + 1)]
    return [int(index) + 1 for index in np.argsort(num_even, kind="stable")[::-1][:_NUM_TRIED]]


def _num_even(column: IntColumn, lag: int) -> int:
    """How many values differ from the one ``lag`` before as that one does from its own."""
    steps = column[lag:] - column[:-lag]
    return int(np.count_nonzero(steps[lag:] == steps[:-lag]))


def _differences(column: IntColumn, lag: int) -> IntColumn:
    """What differs from what stands ``lag`` before; the first ones stay. Overflow wraps around."""
    return np.concatenate([column[:lag], column[lag:] - column[:-lag]])


def _summed(column: IntColumn, lag: int) -> IntColumn:
    """The column whose `_differences` these are."""
    rows = np.pad(column, (0, -len(column) % lag)).reshape(-1, lag)
    return np.cumsum(rows, axis=0, dtype=np.int32).reshape(-1)[: len(column)]


def _planes(column: IntColumn) -> npt.NDArray[np.uint8]:
    return column.astype("<i4").view(np.uint8).reshape(len(column), 4).T


def _packed_bytes(column: IntColumn) -> int:
    return len(zlib.compress(np.ascontiguousarray(_planes(column)).tobytes()))
