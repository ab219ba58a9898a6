"""Shape numbers and FLOP of each canonical op, from the tensors that it reads and writes.

FLOP counts the arithmetic of matrix products, convolutions, attention and recurrent layers, a
multiply-add counting as two: what PyTorch's `FlopCounterMode`, torchvision and timm count. All
other kinds are bound by memory and count none. The rule of each kind stands with its other facts in
`paceline.model.ops`.
"""

from __future__ import annotations

import numpy as np

from paceline.model.graph import polynomial
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import NUM_DIMS, NUM_MONOMIALS, FloatArray, IntArray, OpKind
from paceline.model.graph.raw import RawPass
from paceline.model.ops.extents import extent, no_dims, ones
from paceline.model.ops.optable import OpRule
from paceline.model.ops.registry import FACTS, column


def op_dims(raw: RawPass, kind: IntArray, rules: list[OpRule], part: IntArray) -> FloatArray:
    """Shape numbers in the order of each kind's names, (num_ops, NUM_DIMS, 9).

    Args:
        raw: The traced pass.
        kind: ``OpKind`` per op.
        rules: Rule of each operator name.
        part: Which part of a convolution's backward each op is; -1 for all others.
    """
    dims = np.zeros((len(kind), NUM_DIMS, NUM_MONOMIALS))
    first = np.array([r.first for r in rules])[raw.op_name]
    todo = raw.outputs.lengths() > 0
    for read in dict.fromkeys(facts.read_dims for facts in FACTS.values()):
        if read is None:
            continue
        kinds = [one for one, facts in FACTS.items() if facts.read_dims is read]
        rows = np.flatnonzero(todo & np.isin(kind, kinds) & (raw.inputs.lengths() > 0))
        if rows.size:
            dims[rows] = read(raw, rows, first[rows], part[rows])
            todo[rows] = False
    rows = np.flatnonzero(todo)
    dims[rows] = _plain_dims(raw, rows, kind[rows])
    return dims


def op_flop(kind: IntArray, dims: FloatArray) -> FloatArray:
    """Floating-point operations per op, (num_ops, 9)."""
    flop = np.zeros((len(kind), NUM_MONOMIALS))
    for one in distinct(kind).tolist():
        count = FACTS[OpKind(one)].count_flop
        if count is not None:
            rows = np.flatnonzero(kind == one)
            flop[rows] = count(dims[rows])
    return flop


def _plain_dims(raw: RawPass, rows: IntArray, kind: IntArray) -> FloatArray:
    """(rows, columns, operands): columns is the last extent where the kind works along it."""
    written = raw.outputs.at(rows, 0)
    dims = no_dims(len(rows))
    elements = polynomial.product(raw.dims[written])
    last = extent(raw, written, -1)
    has_columns = (column("along_last")[kind] & (raw.tensor_ndim[written] > 0))[:, None]
    dims[:, 1] = np.where(has_columns, last, ones(len(rows)))
    dims[:, 0] = np.where(has_columns, polynomial.divide(elements, dims[:, 1]), elements)
    dims[:, 2, 0] = raw.inputs.lengths()[rows]
    return dims
