"""Columns of whole numbers as workload files keep them: small numbers that repeat.

A column is its length, its number of planes, and a plane for each byte of its numbers, the lowest
first. A sign is the lowest bit, so that small numbers need one plane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import IntArray

_LENGTH_BYTES, _MAX_PLANES = 4, 8


def written(columns: Sequence[npt.NDArray[np.integer] | npt.NDArray[np.bool_]]) -> bytes:
    """Columns as bytes, one after the other."""
    return b"".join(_written(one.astype(np.int64)) for one in columns)


def read(content: bytes) -> Iterator[IntArray]:
    """The columns that `written` wrote.

    Raises:
        ValueError: Content that it never makes.
    """
    start = 0
    while start < len(content):
        length = int.from_bytes(content[start : start + _LENGTH_BYTES], "little")
        num_planes = content[start + _LENGTH_BYTES]
        start += _LENGTH_BYTES + 1
        end = start + length * num_planes
        if end > len(content) or not 1 <= num_planes <= _MAX_PLANES:
            raise ValueError(f"{num_planes} planes of {length} numbers end before they should")
        planes = np.frombuffer(content[start:end], dtype=np.uint8).reshape(num_planes, length)
        yield _column(planes)
        start = end


def references(numbers: IntArray) -> IntArray:
    """Each number as a reference: 0 is one above the highest so far, ``n`` is ``n`` below that.

    What is further above is negative. The highest before the first is -1.

    >>> references(np.array([0, 1, 0, 2, 5, 4])).tolist()
    [0, 0, 2, 0, -2, 2]
    """
    highest = np.maximum.accumulate(np.concatenate(([-1], numbers)))[:-1]
    back: IntArray = highest + 1 - numbers
    return back


def steps(numbers: npt.NDArray[np.integer]) -> IntArray:
    """What each number is above the one before it; the first is above 0. `numpy.cumsum` undoes it.

    >>> steps(np.array([3, 4, 2])).tolist()
    [3, 1, -2]
    """
    wide = numbers.astype(np.int64)
    apart: IntArray = wide - np.concatenate(([0], wide))[:-1]
    return apart


def referred(back: IntArray) -> IntArray:
    """The numbers of these `references`.

    >>> referred(np.array([0, 0, 2, 0, -2, 2])).tolist()
    [0, 1, 0, 2, 5, 4]
    """
    rises = np.where(back <= 0, 1 - back, 0)
    numbers: IntArray = np.cumsum(rises) - rises - back
    return numbers


def _written(column: IntArray) -> bytes:
    unsigned = ((column << 1) ^ (column >> 63)).view(np.uint64)
    num_planes = max((int(unsigned.max(initial=0)).bit_length() + 7) // 8, 1)
    planes = unsigned.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :num_planes].T
    return len(column).to_bytes(_LENGTH_BYTES, "little") + bytes([num_planes]) + planes.tobytes()


def _column(planes: npt.NDArray[np.uint8]) -> IntArray:
    unsigned = planes[0].astype(np.uint64)
    for number in range(1, len(planes)):
        unsigned |= planes[number].astype(np.uint64) << np.uint64(8 * number)
    column: IntArray = (unsigned >> np.uint64(1)).view(np.int64)
    column ^= -(unsigned & np.uint64(1)).view(np.int64)
    return column
