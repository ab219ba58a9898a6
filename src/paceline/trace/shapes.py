"""Shape numbers and FLOP of each canonical op, from the tensors that it reads and writes.

FLOP counts the arithmetic of matrix products, convolutions, attention and recurrent layers, a
multiply-add counting as two: what PyTorch's `FlopCounterMode`, torchvision and timm count. All
other kinds are bound by memory and count none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from paceline.trace import polynomial
from paceline.trace.graph import NUM_DIMS, NUM_MONOMIALS, FloatArray, IntArray, OpKind
from paceline.trace.optable import OpRule
from paceline.trace.raw import RawPass

_COPIES = ("aten::clone", "aten::copy_")
_CONVOLUTIONS = (OpKind.CONV, OpKind.CONV_BACKWARD_INPUT, OpKind.CONV_BACKWARD_WEIGHT)


def op_dims(raw: RawPass, kind: IntArray, rules: list[OpRule], part: IntArray) -> FloatArray:
    """Shape numbers as `DIM_NAMES` orders them, (num_ops, NUM_DIMS, 9).

    Args:
        raw: The traced pass.
        kind: ``OpKind`` per op.
        rules: Rule of each operator name.
        part: Which part of a convolution's backward each op is; -1 for all others.
    """
    dims = np.zeros((len(kind), NUM_DIMS, NUM_MONOMIALS))
    first = np.array([r.first for r in rules])[raw.op_name]
    todo = raw.outputs.lengths() > 0
    for kinds, fill, argument in _FILLERS:
        rows = np.flatnonzero(todo & np.isin(kind, kinds) & (raw.inputs.lengths() > 0))
        if rows.size:
            dims[rows] = fill(raw, rows, (first if argument == "first" else part)[rows])
            todo[rows] = False
    rows = np.flatnonzero(todo)
    dims[rows] = _general(raw, rows, kind[rows])
    return dims


def op_flop(kind: IntArray, dims: FloatArray) -> FloatArray:
    """Floating-point operations per op, (num_ops, 9)."""
    flop = np.zeros((len(kind), NUM_MONOMIALS))
    for kinds, count in _COUNTERS:
        rows = np.flatnonzero(np.isin(kind, kinds))
        if rows.size:
            flop[rows] = count(dims[rows])
    return flop


def _matmul_dims(raw: RawPass, rows: IntArray, first: IntArray) -> FloatArray:
    left, right = raw.inputs.at(rows, first), raw.inputs.at(rows, first + 1)
    dims = np.zeros((len(rows), NUM_DIMS, NUM_MONOMIALS))
    dims[:, 0] = _leading(raw, left, 2)
    dims[:, 1] = _extent(raw, left, -2)
    dims[:, 2] = np.where(
        (raw.tensor_ndim[right] >= 2)[:, None], _extent(raw, right, -1), _ones(len(rows))
    )
    dims[:, 3] = _extent(raw, left, -1)
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
    num_experts = _extent(raw, stack, -3)[:, :1]
    for column, is_shared in ((1, is_flat & is_stack), (3, is_flat & ~is_stack & makes_stack)):
        shared = is_shared[:, None]
        dims[:, 0] = np.where(shared, polynomial.constant(num_experts[:, 0]), dims[:, 0])
        dims[:, column] /= np.where(shared, num_experts, 1.0)
    return dims


def _conv_dims(raw: RawPass, rows: IntArray, part: IntArray) -> FloatArray:
    small, weight, large = _conv_tensors(raw, rows, part)
    dims = np.zeros((len(rows), NUM_DIMS, NUM_MONOMIALS))
    dims[:, 0] = raw.dims[large, 0]
    dims[:, 1] = raw.dims[large, 1]
    dims[:, 2], dims[:, 3] = _spatial(raw, large)
    dims[:, 4] = raw.dims[small, 1]
    dims[:, 5], dims[:, 6] = _spatial(raw, weight)
    dims[:, 7], dims[:, 8] = _spatial(raw, small)
    # In a second derivative both may be the batch.
    dims[:, 9] = polynomial.divide(dims[:, 1], raw.dims[weight, 1])
    return dims


def _conv_tensors(
    raw: RawPass, rows: IntArray, part: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """(activation on the output side, weight, activation on the input side) of a convolution.

    A part of the backward pass reads (grad, weight) or (grad, input). A transposed convolution is
    a convolution with its two sides exchanged.
    """
    source, other = raw.inputs.at(rows, 0), raw.inputs.at(rows, 1)
    written = raw.outputs.at(rows, 0)
    small = np.where(part < 0, written, source)
    weight = np.where(part == 1, written, other)
    large = np.where(part < 0, source, np.where(part == 1, other, written))
    is_transposed = raw.attributes.at(rows, 0) != 0
    return np.where(is_transposed, large, small), weight, np.where(is_transposed, small, large)


def _attention_dims(raw: RawPass, rows: IntArray, _: IntArray) -> FloatArray:
    query, key = raw.inputs.at(rows, 0), raw.inputs.at(rows, 1)
    dims = np.zeros((len(rows), NUM_DIMS, NUM_MONOMIALS))
    dims[:, 0] = _leading(raw, query, 3)
    dims[:, 1] = _extent(raw, query, -3)
    dims[:, 2] = _extent(raw, key, -3)
    dims[:, 3] = _extent(raw, query, -2)
    dims[:, 4] = _extent(raw, key, -2)
    dims[:, 5] = _extent(raw, query, -1)
    dims[:, 6, 0] = raw.attributes.at(rows, 0)
    dims[:, 7, 0] = raw.attributes.at(rows, 1)
    return dims


def _recurrent_dims(raw: RawPass, rows: IntArray, _: IntArray) -> FloatArray:
    """Batch and steps, whichever comes first; packed input has both as one product in ``batch``."""
    data = raw.inputs.at(rows, 0)
    dims = np.zeros((len(rows), NUM_DIMS, NUM_MONOMIALS))
    first = raw.dims[data, 0]
    second = np.where((raw.tensor_ndim[data] > 2)[:, None], raw.dims[data, 1], _ones(len(rows)))
    is_swapped = (first[:, 1] == 0.0) & (second[:, 1] > 0.0)  # the coefficient of the batch
    dims[:, 0] = np.where(is_swapped[:, None], second, first)
    dims[:, 1] = np.where(is_swapped[:, None], first, second)
    dims[:, 2] = _extent(raw, data, -1)
    dims[:, 3, 0] = raw.attributes.at(rows, 3)
    dims[:, 4, 0] = raw.attributes.at(rows, 1)
    dims[:, 5, 0] = raw.attributes.at(rows, 2)
    dims[:, 6, 0] = raw.attributes.at(rows, 0)
    return dims


def _reduce_dims(raw: RawPass, rows: IntArray, _: IntArray) -> FloatArray:
    return _rows_and_columns(raw, raw.inputs.at(rows, 0), raw.outputs.at(rows, 0))


def _rows_and_columns(raw: RawPass, source: IntArray, reduced: IntArray) -> FloatArray:
    num_rows = polynomial.product(raw.dims[reduced])
    dims = np.zeros((len(source), NUM_DIMS, NUM_MONOMIALS))
    dims[:, 0] = num_rows
    dims[:, 1] = polynomial.divide(polynomial.product(raw.dims[source]), num_rows)
    dims[:, 2, 0] = 1.0
    return dims


def _plane_dims(raw: RawPass, rows: IntArray, _: IntArray) -> FloatArray:
    """(planes, pixels, operands) of what is written: items times channels, and the rest.

    The fourth number says how the picture that is read is stored: 0 as the model stores its
    pictures, 1 plane after plane (it was copied into the order in which it is read), 2 channels
    last (it is a view of tokens).
    """
    written = raw.outputs.at(rows, 0)
    dims = np.zeros((len(rows), NUM_DIMS, NUM_MONOMIALS))
    dims[:, 0] = polynomial.product(raw.dims[written, :2])
    dims[:, 1] = polynomial.divide(polynomial.product(raw.dims[written]), dims[:, 0])
    dims[:, 2, 0] = raw.inputs.lengths()[rows]
    dims[:, 3, 0] = [_is_copied(raw, row) for row in rows]
    told = np.flatnonzero(raw.attributes.lengths()[rows])
    is_last = told[raw.attributes.at(rows[told], 0) > 0]
    dims[is_last, 3, 0] = 2.0
    return dims


def _is_copied(raw: RawPass, row: int) -> bool:
    """Whether what an op reads first is a copy, or pointwise work on one (first operands lead)."""
    writer = _writer(raw, row)
    while writer >= 0:
        name, _, tag = raw.op_names[raw.op_name[writer]].partition("|")
        if name in _COPIES or tag != "pointwise":
            return name in _COPIES
        writer = _writer(raw, writer)
    return False


def _writer(raw: RawPass, row: int) -> int:
    """The last op before ``row`` that wrote what it reads first; -1 if none did."""
    first, last = raw.inputs.start[row : row + 2]
    if first == last:
        return -1
    written = raw.tensor_storage[raw.outputs.values[: raw.outputs.start[row]]]
    writes = np.flatnonzero(written == raw.tensor_storage[raw.inputs.values[first]])
    return (
        int(np.searchsorted(raw.outputs.start, writes[-1], side="right")) - 1 if writes.size else -1
    )


def _general(raw: RawPass, rows: IntArray, kind: IntArray) -> FloatArray:
    """(rows, columns, operands): columns is the last extent where the kind works along it."""
    written = raw.outputs.at(rows, 0)
    dims = np.zeros((len(rows), NUM_DIMS, NUM_MONOMIALS))
    elements = polynomial.product(raw.dims[written])
    last = _extent(raw, written, -1)
    has_columns = np.isin(kind, _ALONG_LAST)[:, None] & (raw.tensor_ndim[written] > 0)[:, None]
    dims[:, 1] = np.where(has_columns, last, _ones(len(rows)))
    dims[:, 0] = np.where(has_columns, polynomial.divide(elements, dims[:, 1]), elements)
    dims[:, 2, 0] = raw.inputs.lengths()[rows]
    return dims


def _matmul_flop(dims: FloatArray) -> FloatArray:
    flop: FloatArray = 2 * polynomial.product(dims[:, :4])
    return flop


def _conv_flop(dims: FloatArray) -> FloatArray:
    outputs = polynomial.product(dims[:, [0, 4, 7, 8, 1, 5, 6]])
    flop: FloatArray = 2 * outputs / dims[:, 9, :1]
    return flop


def _attention_flop(dims: FloatArray) -> FloatArray:
    """Two products over the whole square, causal or not, as `FlopCounterMode` counts them."""
    return 4 * polynomial.product(dims[:, [0, 1, 3, 4, 5]])


def _attention_backward_flop(dims: FloatArray) -> FloatArray:
    """Five products: the scores are computed again."""
    return 2.5 * _attention_flop(dims)


def _recurrent_flop(dims: FloatArray) -> FloatArray:
    """Input and hidden products of every layer and direction."""
    steps = polynomial.multiply(dims[:, 0], dims[:, 1])
    width, hidden, layers, directions, gates = dims[:, 2:7, 0].T
    inner = width + hidden + (layers - 1) * (directions * hidden + hidden)
    flop: FloatArray = steps * (2 * gates * hidden * directions * inner)[:, None]
    return flop


def _recurrent_backward_flop(dims: FloatArray) -> FloatArray:
    return 2 * _recurrent_flop(dims)


def _leading(raw: RawPass, tensor: IntArray, num_last: int) -> FloatArray:
    """Product of all extents but the last ones."""
    position = np.arange(raw.dims.shape[1])[None, :]
    is_leading = position < (raw.tensor_ndim[tensor] - num_last)[:, None]
    extents = np.where(is_leading[:, :, None], raw.dims[tensor], _ones(1))
    return polynomial.product(extents)


def _extent(raw: RawPass, tensor: IntArray, position: int) -> FloatArray:
    index = np.maximum(raw.tensor_ndim[tensor] + position, 0)
    has_it = raw.tensor_ndim[tensor] + position >= 0
    extent: FloatArray = np.where(has_it[:, None], raw.dims[tensor, index], _ones(1))
    return extent


def _spatial(raw: RawPass, tensor: IntArray) -> tuple[FloatArray, FloatArray]:
    """(height, width): of one spatial dim (1, it); of three, the first two as one."""
    num_spatial = raw.tensor_ndim[tensor] - 2
    width = _extent(raw, tensor, -1)
    position = np.arange(raw.dims.shape[1])[None, :]
    is_height = (position >= 2) & (position < (num_spatial + 1)[:, None])
    height = polynomial.product(np.where(is_height[:, :, None], raw.dims[tensor], _ones(1)))
    return height, width


def _ones(count: int) -> FloatArray:
    return polynomial.constant(np.ones(count))


_ALONG_LAST = (OpKind.NORM, OpKind.NORM_BACKWARD, OpKind.SOFTMAX, OpKind.SOFTMAX_BACKWARD,
               OpKind.EMBEDDING, OpKind.SORT, OpKind.SCAN)  # fmt: skip
_Filler = Callable[[RawPass, IntArray, IntArray], FloatArray]
_FILLERS: tuple[tuple[tuple[OpKind, ...], _Filler, str], ...] = (
    ((OpKind.MATMUL,), _matmul_dims, "first"),
    (_CONVOLUTIONS, _conv_dims, "part"),
    ((OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD), _attention_dims, "part"),
    ((OpKind.RECURRENT, OpKind.RECURRENT_BACKWARD), _recurrent_dims, "part"),
    ((OpKind.REDUCE,), _reduce_dims, "part"),
    ((OpKind.INTERPOLATE, OpKind.INTERPOLATE_BACKWARD), _plane_dims, "part"),
)
_COUNTERS: tuple[tuple[tuple[OpKind, ...], Callable[[FloatArray], FloatArray]], ...] = (
    ((OpKind.MATMUL,), _matmul_flop),
    (_CONVOLUTIONS, _conv_flop),
    ((OpKind.ATTENTION,), _attention_flop),
    ((OpKind.ATTENTION_BACKWARD,), _attention_backward_flop),
    ((OpKind.RECURRENT,), _recurrent_flop),
    ((OpKind.RECURRENT_BACKWARD,), _recurrent_backward_flop),
)
