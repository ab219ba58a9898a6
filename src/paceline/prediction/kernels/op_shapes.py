"""What each launch of a cost table's rows works on at some points.

Shape legend: P points, R rows of the cost table.
"""

from __future__ import annotations

import numpy as np

from paceline.model.graph.costs import CostTable
from paceline.model.graph.graph import NUM_MONOMIALS, FloatArray, monomials
from paceline.model.ops.turns import turning_rows, turns_of
from paceline.prediction.features import Array
from paceline.prediction.kernels.attention_tiles import computed_frac
from paceline.prediction.kernels.groups import sequential_launches
from paceline.prediction.prediction import Points
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpShapes:
    """The cost table evaluated at the points; all (P, R), dims (P, R, NUM_DIMS).

    Attributes:
        flop: FLOP of one launch.
        moved_bytes: Device-memory bytes of one launch.
        dims: Shape numbers of the kind.
        launches: Launches that must follow one another in one occurrence: the steps and layers
            of recurrent cells, the items that a loop goes through, else 1.
    """

    flop: Array
    moved_bytes: Array
    dims: Array
    launches: Array


def evaluate_shapes(costs: CostTable, points: Points) -> OpShapes:
    """Evaluate the polynomials of ``costs`` at ``points`` with one matrix product each."""
    powers = monomials(points.batch, points.seq)
    num_rows, num_dims = costs.dims.shape[:2]
    dims = powers @ costs.dims.reshape(num_rows * num_dims, -1).T
    dims = dims.reshape(len(powers), num_rows, num_dims)
    launches = sequential_launches(costs.kind, dims) * turns_of(costs.kind, dims)
    moved = costs.moved_bytes(powers)
    flop = powers @ costs.flop.T * computed_frac(costs.kind, dims)
    dims = _of_one_turn(costs, points, dims)
    return OpShapes(
        flop=(flop / launches).astype(np.float32),
        moved_bytes=(moved / launches).astype(np.float32),
        dims=dims.astype(np.float32),
        launches=launches.astype(np.float32),
    )


def _of_one_turn(costs: CostTable, points: Points, dims: FloatArray) -> FloatArray:
    """Shape numbers of one launch, where a loop takes the items of the batch one by one."""
    rows = turning_rows(costs.kind, costs.dims)
    if not rows.size:
        return dims
    coefficients = costs.dims[rows].reshape(-1, NUM_MONOMIALS)
    alone = monomials(np.ones(len(points.batch)), points.seq) @ coefficients.T
    dims[:, rows, :-1] = alone.reshape(len(dims), len(rows), -1)[..., :-1]
    return dims
