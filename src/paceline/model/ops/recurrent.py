"""Recurrent layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.model.graph import polynomial
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.graph.kinds import OpKind
from paceline.model.graph.raw import RawPass
from paceline.model.ops.extents import extent, no_dims, ones
from paceline.model.ops.facts import KindFacts, Numbers


def _recurrent_dims(raw: RawPass, rows: IntArray, _first: IntArray, _part: IntArray) -> FloatArray:
    """Batch and steps, whichever comes first; packed input has both as one product in ``batch``."""
    data = raw.inputs.at(rows, 0)
    dims = no_dims(len(rows))
    first = raw.dims[data, 0]
    second = np.where((raw.tensor_ndim[data] > 2)[:, None], raw.dims[data, 1], ones(len(rows)))
    is_swapped = (first[:, 1] == 0.0) & (second[:, 1] > 0.0)  # the coefficient of the batch
    dims[:, 0] = np.where(is_swapped[:, None], second, first)
    dims[:, 1] = np.where(is_swapped[:, None], first, second)
    dims[:, 2] = extent(raw, data, -1)
    dims[:, 3, 0] = raw.attributes.at(rows, 3)
    dims[:, 4, 0] = raw.attributes.at(rows, 1)
    dims[:, 5, 0] = raw.attributes.at(rows, 2)
    dims[:, 6, 0] = raw.attributes.at(rows, 0)
    return dims


def _recurrent_flop(dims: FloatArray) -> FloatArray:
    """Input and hidden products of every layer and direction."""
    steps = polynomial.multiply(dims[:, 0], dims[:, 1])
    width, hidden, layers, directions, gates = dims[:, 2:7, 0].T
    inner = width + hidden + (layers - 1) * (directions * hidden + hidden)
    flop: FloatArray = steps * (2 * gates * hidden * directions * inner)[:, None]
    return flop


def _recurrent_backward_flop(dims: FloatArray) -> FloatArray:
    return 2 * _recurrent_flop(dims)


def _cell_product(dims: Numbers) -> tuple[Numbers, ...]:
    """One step of one layer: input and hidden products of all gates, of one batch."""
    batch, _, width, hidden, layers, directions, gates = np.moveaxis(dims[..., :7], -1, 0)
    layers = np.maximum(layers, 1)
    inputs = (width + (layers - 1) * directions * hidden) / layers
    return directions, batch, gates * hidden, inputs + hidden


def _cell_backward_product(dims: Numbers) -> tuple[Numbers, ...]:
    """The same against the gradients of the data and of the weights."""
    count, batch, columns, inner = _cell_product(dims)
    return count, batch, columns, 2 * inner


_FORWARD = KindFacts(
    kind=OpKind.RECURRENT,
    dims=("batch", "steps", "input", "hidden", "layers", "directions", "gates"),
    read_dims=_recurrent_dims,
    count_flop=_recurrent_flop,
    efficiency="product",
    as_product=_cell_product,
    is_cell=True,
    is_narrow=True,
    feature_dims=("batch",),
    sequence="in_order",
)
KINDS = (
    _FORWARD,
    replace(
        _FORWARD,
        kind=OpKind.RECURRENT_BACKWARD,
        count_flop=_recurrent_backward_flop,
        as_product=_cell_backward_product,
        backward_of=OpKind.RECURRENT,
        masks_gradients=True,
    ),
)
