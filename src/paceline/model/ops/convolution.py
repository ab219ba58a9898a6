"""Convolutions, forward and backward; a transposed one is one with its two sides exchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.model.graph import polynomial
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.graph.kinds import OpKind
from paceline.model.graph.raw import RawPass
from paceline.model.ops.extents import no_dims, spatial
from paceline.model.ops.facts import KindFacts, Numbers


def _conv_dims(raw: RawPass, rows: IntArray, _: IntArray, part: IntArray) -> FloatArray:
    small, weight, large = _conv_tensors(raw, rows, part)
    dims = no_dims(len(rows))
    dims[:, 0] = raw.dims[large, 0]
    dims[:, 1] = raw.dims[large, 1]
    dims[:, 2], dims[:, 3] = spatial(raw, large)
    dims[:, 4] = raw.dims[small, 1]
    dims[:, 5], dims[:, 6] = spatial(raw, weight)
    dims[:, 7], dims[:, 8] = spatial(raw, small)
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


def _conv_flop(dims: FloatArray) -> FloatArray:
    outputs = polynomial.product(dims[:, [0, 4, 7, 8, 1, 5, 6]])
    flop: FloatArray = 2 * outputs / dims[:, 9, :1]
    return flop


def _forward_product(dims: Numbers) -> tuple[Numbers, ...]:
    n, c, _, _, k, r, s, out_h, out_w, groups = np.moveaxis(dims, -1, 0)
    groups = np.maximum(groups, 1)
    return groups, n * out_h * out_w, k / groups, c / groups * r * s


def _backward_input_product(dims: Numbers) -> tuple[Numbers, ...]:
    n, c, h, w, k, r, s, _, _, groups = np.moveaxis(dims, -1, 0)
    groups = np.maximum(groups, 1)
    return groups, n * h * w, c / groups, k / groups * r * s


def _backward_weight_product(dims: Numbers) -> tuple[Numbers, ...]:
    n, c, _, _, k, r, s, out_h, out_w, groups = np.moveaxis(dims, -1, 0)
    groups = np.maximum(groups, 1)
    return groups, c / groups * r * s, k / groups, n * out_h * out_w


_FORWARD = KindFacts(
    kind=OpKind.CONV,
    dims=("n", "c", "h", "w", "k", "r", "s", "out_h", "out_w", "groups"),
    read_dims=_conv_dims,
    count_flop=_conv_flop,
    efficiency="convolution",
    as_product=_forward_product,
    is_narrow=True,
    takes_epilogue=True,
    feature_dims=("n",),
    weight_dims=("c", "k"),
    sequence="in_order",
)
KINDS = (
    _FORWARD,
    replace(
        _FORWARD,
        kind=OpKind.CONV_BACKWARD_INPUT,
        as_product=_backward_input_product,
        backward_of=OpKind.CONV,
    ),
    replace(
        _FORWARD,
        kind=OpKind.CONV_BACKWARD_WEIGHT,
        as_product=_backward_weight_product,
        backward_of=OpKind.CONV,
        takes_epilogue=False,
    ),
)
