"""Graphs of pictures of any side: known at a few sides in a row, and by polynomials at all others.

Layers of such a network divide the side without a rest, so that extents grow with the side, areas
with its second power, volumes with its third, and scores of attention with its fourth.
"""

from __future__ import annotations

import math

import numpy as np

from paceline.dtypes import ELEMENT_BYTES, DType
from paceline.errors import InvalidInputError
from paceline.model.graph.graph import FloatArray, Graph, Owner, monomials
from paceline.values import dataclass

#: Sides that determine a polynomial of the fourth power.
NUM_SIDES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The sides of pictures that a graph can be asked at.

    Attributes:
        usual: Taken where none is asked for.
        first: Smallest of the `NUM_SIDES` that were traced.
        step: From one traced side to the next; sides are as much above a multiple of it as these.
        least: Smallest that can be asked for.
    """

    usual: int
    first: int
    step: int
    least: int

    def __post_init__(self) -> None:
        if min(self.usual, self.first, self.step, self.least) < 1:
            raise ValueError("a side is not above zero")

    def traced(self) -> tuple[int, ...]:
        """The sides that were traced."""
        return tuple(self.first + number * self.step for number in range(NUM_SIDES))

    def position(self, side: int, *, name: str) -> int:
        """Steps from the first traced side to another.

        Raises:
            InvalidInputError: The layers of ``name`` do not divide that side.
        """
        rest = self.first % self.step
        if side % self.step == rest and side >= self.least:
            return (side - self.first) // self.step
        above = f"{rest} above " if rest else ""
        below = max(self.least, (side - rest) // self.step * self.step + rest)
        raise InvalidInputError(
            f"`{name}`: a side is {above}a multiple of {self.step}, from {self.least} on",
            hint=f"give --image-size {below} or {below + self.step}",
        )


def differences(values: FloatArray) -> FloatArray:
    """Newton's forward differences of values at positions 0, 1, 2 and so on of the second axis.

    >>> differences(np.array([[1.0, 2.0, 5.0, 10.0, 17.0]])).tolist()
    [[1.0, 1.0, 2.0, 0.0, 0.0]]
    """
    orders = [np.diff(values, order, axis=1)[:, 0] for order in range(values.shape[1])]
    return np.stack(orders, axis=1)


def at_position(orders: FloatArray, position: int) -> FloatArray:
    """Values at a position of polynomials with these `differences`.

    Whole numbers give whole numbers, and constants stay as they are.

    >>> at_position(np.array([[1.0, 1.0, 2.0, 0.0, 0.0]]), 10).tolist()
    [101.0]
    """
    weights = [_binomial(position, order) for order in range(orders.shape[1])]
    return np.tensordot(orders, np.array(weights), axes=(1, 0))


def _binomial(count: int, order: int) -> float:
    """Binomial coefficient, also of a negative count."""
    return math.prod(count - one for one in range(order)) / math.factorial(order)


def input_bytes(graph: Graph, seq: int) -> float:
    """Bytes of all inputs of one item."""
    storages = graph.storages
    is_input = storages.owner == Owner.INPUT
    widths = np.array([ELEMENT_BYTES[DType(code)] for code in storages.dtype[is_input]])
    return float(widths @ (storages.elements[is_input] @ monomials(1, seq)[0]))
