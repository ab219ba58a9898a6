"""Cutting a row of blocks into pipeline stages."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import FloatArray, IntArray

#: Relative width at which the search for the bottleneck ends.
_TOLERANCE = 1e-9


def balanced_cuts(block_cost: FloatArray, num_stages: int) -> IntArray:
    """First block of each stage, so that the dearest stage is as cheap as it can be.

    A limit is feasible if filling stages greedily up to it takes no more than ``num_stages`` of
    them. Only sums of blocks that follow each other can be bottlenecks, so each trial moves its end
    of the interval on to the next such sum. Two trials of three are at the lower end, where the
    bottleneck is found at once if layers are alike; the third halves the interval. Stages are never
    empty.

    Args:
        block_cost: Cost of each block, (num_blocks,).
        num_stages: Contiguous stages.

    Returns:
        Rising block indices starting with 0, (num_stages,).

    Raises:
        InvalidInputError: More stages than blocks.

    >>> balanced_cuts(np.array([1.0, 1.0, 1.0, 3.0]), 2).tolist()
    [0, 3]
    """
    num_blocks = len(block_cost)
    if num_stages > num_blocks:
        raise InvalidInputError(
            f"{num_stages} pipeline stages are more than the model's {num_blocks} blocks",
            hint=f"use at most {num_blocks} stages (degree × chunks)",
        )
    before = [0.0, *np.cumsum(block_cost).tolist()]
    low = max(float(block_cost.max()), before[-1] / num_stages)
    cuts, high, num_tried = [0], before[-1], 0
    while low < high * (1 - _TOLERANCE):
        is_middle = num_tried % 3 == 2
        limit = (low + high) / 2 if is_middle else low * (1 + _TOLERANCE / 2)
        num_tried += 1
        tried = _greedy_cuts(before, limit, num_stages)
        if tried[-1] < num_blocks:
            low = max(limit, _next_limit(before, tried))
        else:
            cuts = tried[:-1]
            high = _dearest(before, tried)
    return _split_further(cuts, num_blocks, num_stages)


def even_cuts(names: tuple[str, ...], num_stages: int) -> IntArray:
    """First block of each stage with as many numbered layers in each, as Megatron-LM cuts.

    What comes before the first layer goes to the first stage, what follows to the last.

    Raises:
        InvalidInputError: The layers do not divide.
    """
    layers = np.flatnonzero([name[-1:].isdigit() for name in names])
    if not len(layers) or len(layers) % num_stages:
        raise InvalidInputError(
            f"{len(layers)} layers do not divide into {num_stages} equal stages",
            hint="choose a pipeline degree that divides the number of layers",
        )
    starts = layers[:: len(layers) // num_stages].copy()
    starts[0] = 0
    return np.asarray(starts, dtype=np.int64)


def per_stage(values: FloatArray, cuts: IntArray) -> FloatArray:
    """Sums over the blocks of each stage, (..., num_stages)."""
    return np.asarray(np.add.reduceat(values, cuts, axis=-1))


def _greedy_cuts(before: list[float], limit: float, num_stages: int) -> list[int]:
    """Borders of stages filled one after the other up to a limit; all blocks if they suffice.

    Args:
        before: Sums of the blocks before each one, and of all.
        limit: Most that a stage may cost, no less than any block.
        num_stages: Stages to fill.
    """
    cuts, start, num_blocks = [0], 0, len(before) - 1
    while start < num_blocks and len(cuts) <= num_stages:
        start = bisect_right(before, before[start] + limit, start + 1) - 1
        cuts.append(start)
    return cuts


def _dearest(before: list[float], cuts: list[int]) -> float:
    """Cost of the dearest stage between borders."""
    return max(before[end] - before[start] for start, end in pairwise(cuts))


def _next_limit(before: list[float], cuts: list[int]) -> float:
    """The least limit under which a stage takes one block more."""
    return min(before[end + 1] - before[start] for start, end in pairwise(cuts))


def _split_further(cuts: list[int], num_blocks: int, num_stages: int) -> IntArray:
    """Cut again where a stage has more than one block, until there are enough stages."""
    chosen = set(cuts)
    spare = (block for block in range(num_blocks - 1, 0, -1) if block not in chosen)
    while len(chosen) < num_stages:
        chosen.add(next(spare))
    return np.array(sorted(chosen), dtype=np.int64)
