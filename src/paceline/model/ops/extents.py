"""Extents of traced tensors, as shape numbers are made of them."""

from __future__ import annotations

import numpy as np

from paceline.model.graph import polynomial
from paceline.model.graph.graph import NUM_DIMS, NUM_MONOMIALS, FloatArray, IntArray
from paceline.model.graph.raw import RawPass


def no_dims(count: int) -> FloatArray:
    """Shape numbers to be filled in, (count, NUM_DIMS, 9)."""
    return np.zeros((count, NUM_DIMS, NUM_MONOMIALS))


def ones(count: int) -> FloatArray:
    """The polynomial 1, (count, 9)."""
    return polynomial.constant(np.ones(count))


def leading(raw: RawPass, tensor: IntArray, num_last: int) -> FloatArray:
    """Product of all extents but the last ones."""
    position = np.arange(raw.dims.shape[1])[None, :]
    is_leading = position < (raw.tensor_ndim[tensor] - num_last)[:, None]
    extents = np.where(is_leading[:, :, None], raw.dims[tensor], ones(1))
    return polynomial.product(extents)


def extent(raw: RawPass, tensor: IntArray, position: int) -> FloatArray:
    """One extent, counted from the last (-1); 1 where a tensor has none there."""
    index = np.maximum(raw.tensor_ndim[tensor] + position, 0)
    has_it = raw.tensor_ndim[tensor] + position >= 0
    found: FloatArray = np.where(has_it[:, None], raw.dims[tensor, index], ones(1))
    return found


def spatial(raw: RawPass, tensor: IntArray) -> tuple[FloatArray, FloatArray]:
    """(height, width): of one spatial dim (1, it); of three, the first two as one."""
    num_spatial = raw.tensor_ndim[tensor] - 2
    width = extent(raw, tensor, -1)
    position = np.arange(raw.dims.shape[1])[None, :]
    is_height = (position >= 2) & (position < (num_spatial + 1)[:, None])
    height = polynomial.product(np.where(is_height[:, :, None], raw.dims[tensor], ones(1)))
    return height, width


def rows_and_columns(raw: RawPass, source: IntArray, reduced: IntArray) -> FloatArray:
    """(rows, columns, 1): elements of what is written, and how many each was made of."""
    num_rows = polynomial.product(raw.dims[reduced])
    dims = no_dims(len(source))
    dims[:, 0] = num_rows
    dims[:, 1] = polynomial.divide(polynomial.product(raw.dims[source]), num_rows)
    dims[:, 2, 0] = 1.0
    return dims
