"""The largest batch that fits, of each device, count and way of a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from paceline.errors import InvalidInputError

if TYPE_CHECKING:
    from paceline.planning.forecast.grid import GridCell

#: The search ends where the gap is below this share of the batch that fits.
_RESOLUTION_FRAC = 0.01
_NUM_BETWEEN = 15
_LARGEST = 2**29

_Row = tuple[str, int, str, str]


def row_of_cell(cell: GridCell) -> _Row:
    """What the cells of one row of batches share."""
    return (cell.device, cell.num_devices, cell.precision, cell.compiler)


def largest_batches(cells_at: Callable[[Sequence[int]], Sequence[GridCell]]) -> tuple[int, ...]:
    """The largest batch that fits, of every row of a grid; 1 where none does.

    Powers of two are tried first, then batches between the last that fits and the first that does
    not. What a process needs never falls as its batch grows.

    Args:
        cells_at: The cells of the grid at some batches.

    Raises:
        InvalidInputError: A device's memory has no stated end.
    """
    fits: dict[_Row, int] = {}
    fails: dict[_Row, int] = {}
    tried: Sequence[int] = [2**power for power in range(_LARGEST.bit_length())]
    while tried:
        for cell in cells_at(tried):
            row, batch = row_of_cell(cell), cell.batch_per_device
            if cell.status == "out of memory":
                fails[row] = min(fails.get(row, batch), batch)
            else:
                fits[row] = max(fits.get(row, 0), batch)
        _check_ends(fits, fails)
        tried = sorted({b for row in fits for b in _between(fits[row], fails[row])})
    return tuple(sorted({fits.get(row, 1) for row in {**fits, **fails}}))


def _check_ends(fits: dict[_Row, int], fails: dict[_Row, int]) -> None:
    endless = next((row for row in fits if row not in fails), None)
    if endless is not None:
        raise InvalidInputError(
            f"no batch is too large for {endless[0]}: its memory is not stated, or not the limit",
            hint="give --batch 1,8,32",
        )


def _between(fits: int, fails: int) -> Iterator[int]:
    """Batches inside a gap that is still worth a look."""
    gap = fails - fits
    if gap > max(1, int(_RESOLUTION_FRAC * fits)):
        parts = min(gap, _NUM_BETWEEN + 1)
        yield from (fits + gap * part // parts for part in range(1, parts))


def largest_cells(cells: Sequence[GridCell]) -> Iterator[GridCell]:
    """Of each row the cell with the largest batch that fits; else its smallest."""
    for _, group in groupby(cells, key=row_of_cell):
        row = list(group)
        fitting = [cell for cell in row if cell.status != "out of memory"]
        yield fitting[-1] if fitting else row[0]
