"""Ops that are launched once for each item of a batch, by a loop in the model's code.

Where a kind has nine shape numbers or fewer, the last one says how often an op is launched: the
batch, or nothing for what runs once for all items. Its other numbers are those of all turns.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import NUM_DIMS, FloatArray
from paceline.model.graph.kinds import OpKind
from paceline.model.ops.registry import FACTS, is_one_of

_TURNS = NUM_DIMS - 1
_BY_BATCH = 1
_CAN_TURN = is_one_of(kind for kind in OpKind if len(FACTS[kind].dims) < NUM_DIMS)


def with_turns(
    kind: npt.NDArray[np.integer], dims: FloatArray, is_per_item: npt.NDArray[np.bool_]
) -> FloatArray:
    """Shape numbers, (num_ops, NUM_DIMS, 9), that say which ops are launched once per item."""
    dims = dims.copy()
    dims[is_per_item & _CAN_TURN[kind], _TURNS, _BY_BATCH] = 1.0
    return dims


def without_turns(kind: npt.NDArray[np.integer], dims: FloatArray) -> FloatArray:
    """Shape numbers of a graph that a compiler has made of all turns at once."""
    dims = dims.copy()
    dims[_CAN_TURN[kind], _TURNS] = 0.0
    return dims


def turning_rows(kind: npt.NDArray[np.integer], dims: FloatArray) -> npt.NDArray[np.intp]:
    """Rows with several turns, of shape numbers in coefficients."""
    return np.flatnonzero(_CAN_TURN[kind] & dims[:, _TURNS].any(axis=-1))


def turns_of(
    kind: npt.NDArray[np.integer], dims: npt.NDArray[np.floating]
) -> npt.NDArray[np.floating]:
    """How often each row is launched for one occurrence, (num_points, num_rows).

    Args:
        kind: ``OpKind``, (num_rows,).
        dims: Shape numbers at points, (num_points, num_rows, NUM_DIMS).
    """
    return np.where(_CAN_TURN[kind], np.maximum(dims[..., _TURNS], 1.0), 1.0)
