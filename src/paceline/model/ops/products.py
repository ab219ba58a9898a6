"""Matrix products."""

from __future__ import annotations

import numpy as np

from paceline.model.graph import polynomial
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.graph.kinds import OpKind
from paceline.model.graph.raw import RawPass
from paceline.model.ops.extents import extent, leading, no_dims, ones
from paceline.model.ops.facts import KindFacts, Numbers


def _matmul_dims(raw: RawPass, rows: IntArray, first: IntArray, _: IntArray) -> FloatArray:
    left, right = raw.inputs.at(rows, first), raw.inputs.at(rows, first + 1)
    dims = no_dims(len(rows))
    dims[:, 0] = leading(raw, left, 2)
    dims[:, 1] = extent(raw, left, -2)
    dims[:, 2] = np.where(
        (raw.tensor_ndim[right] >= 2)[:, None], extent(raw, right, -1), ones(len(rows))
    )
    dims[:, 3] = extent(raw, left, -1)
    return _shared_among_experts(raw, rows, dims, left, right)


def _shared_among_experts(
    raw: RawPass, rows: IntArray, dims: FloatArray, left: IntArray, right: IntArray
) -> FloatArray:
    """A product whose rows go to different weights: a batch of products of equally many rows.

    Which expert a token is sent to depends on data. Taken is what training aims at: every expert
    gets the same number of tokens.
    """
    is_flat, is_stack = raw.tensor_ndim[left] == 2, raw.tensor_ndim[right] == 3
    makes_stack = raw.tensor_ndim[raw.outputs.at(rows, 0)] == 3
    stack = np.where(is_stack, right, raw.outputs.at(rows, 0))
    num_experts = extent(raw, stack, -3)[:, :1]
    for column, is_shared in ((1, is_flat & is_stack), (3, is_flat & ~is_stack & makes_stack)):
        shared = is_shared[:, None]
        dims[:, 0] = np.where(shared, polynomial.constant(num_experts[:, 0]), dims[:, 0])
        dims[:, column] /= np.where(shared, num_experts, 1.0)
    return dims


def _matmul_flop(dims: FloatArray) -> FloatArray:
    flop: FloatArray = 2 * polynomial.product(dims[:, :4])
    return flop


def _itself(dims: Numbers) -> tuple[Numbers, ...]:
    return dims[..., 0], dims[..., 1], dims[..., 2], dims[..., 3]


KINDS = (
    KindFacts(
        kind=OpKind.MATMUL,
        dims=("batch", "m", "n", "k"),
        read_dims=_matmul_dims,
        count_flop=_matmul_flop,
        efficiency="product",
        as_product=_itself,
        is_narrow=True,
        takes_epilogue=True,
        features="apart",
        feature_dims=("batch",),
        weight_dims=("k", "n"),
    ),
)
