"""Polynomials in batch and sequence length, as rows of nine coefficients.

A traced extent is known at a few points only. Every extent of a model lies in the span of
``1, B, S, B·S`` (where none does, in that of one monomial and a constant), so that four corners
of a rectangle give its coefficients and a point outside the rectangle proves them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import EXPONENTS, NUM_MONOMIALS, FloatArray, monomials


class GrowthError(InvalidInputError):
    """A quantity with a higher power of batch or length than polynomials here have."""


_INDEX = {exponent: i for i, exponent in enumerate(EXPONENTS)}
_TOLERANCE = 1e-6


def constant(values: FloatArray) -> FloatArray:
    """Rows that do not depend on batch or sequence length, (num_rows, 9)."""
    rows = np.zeros((len(values), NUM_MONOMIALS))
    rows[:, 0] = values
    return rows


def at_length(rows: FloatArray, length: float) -> FloatArray:
    """The same rows at one length, which then depend on the batch alone, (…, 9).

    >>> at_length(np.eye(9)[[EXPONENTS.index((1, 1))]], 5.0)[0, :4].tolist()
    [0.0, 5.0, 0.0, 0.0]
    """
    collapse = np.zeros((NUM_MONOMIALS, NUM_MONOMIALS))
    for row, (batch, seq) in enumerate(EXPONENTS):
        collapse[row, EXPONENTS.index((batch, 0))] = length**seq
    return np.asarray(rows @ collapse)


def fit(points: FloatArray, values: FloatArray) -> FloatArray:
    """Coefficients of quantities seen at the traced points.

    Args:
        points: (batch, seq) of each trace, (num_points, 2): three points along the batch, or the
            four corners of a rectangle and a fifth point outside it.
        values: What was seen, (num_points, num_rows).

    Returns:
        Coefficients, (num_rows, 9).

    Raises:
        InvalidInputError: A quantity is no polynomial of this kind.

    >>> fit(np.array([[3.0, 1], [5, 1], [7, 1]]), np.array([[6.0], [10], [14]]))[0, :3].tolist()
    [0.0, 2.0, 0.0]
    """
    rows = fit_or_nan(points, values)
    if np.isnan(rows).any():
        raise InvalidInputError(
            "a tensor of the model does not grow like a polynomial in batch and length",
            hint="trace it at a fixed length",
        )
    return rows


def fit_or_nan(points: FloatArray, values: FloatArray) -> FloatArray:
    """As `fit`, with rows of NaN for quantities that are no polynomial of this kind."""
    basis = [_INDEX[0, 0], _INDEX[1, 0]]
    if len(points) > 3:
        basis += [_INDEX[0, 1], _INDEX[1, 1]]
    at_points = monomials(points[:, 0], points[:, 1])
    rows = np.zeros((values.shape[1], NUM_MONOMIALS))
    rows[:, basis] = np.linalg.solve(at_points[: len(basis), basis], values[: len(basis)]).T
    rows = _cleaned(rows)
    wrong = np.flatnonzero(~_agrees(rows, at_points, values))
    if wrong.size:
        rows[wrong] = _fit_single(at_points, values[:, wrong])
    return rows


def multiply(left: FloatArray, right: FloatArray) -> FloatArray:
    """Row-wise products, (num_rows, 9).

    Raises:
        GrowthError: A product has a power above two.

    >>> b = np.eye(9)[[1]]
    >>> multiply(b, b)[0].tolist() == np.eye(9)[6].tolist()
    True
    """
    if not left[:, 1:].any():
        return left[:, :1] * right
    if not right[:, 1:].any():
        return right[:, :1] * left
    products = (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)
    if products[:, _OVERFLOWS].any():
        raise GrowthError(
            "a tensor grows with a higher power of batch or length than the second",
            hint="trace it at a fixed length",
        )
    product: FloatArray = products @ _PRODUCT
    return product


def product(factors: FloatArray) -> FloatArray:
    """Products over the middle axis: (num_rows, num_factors, 9) to (num_rows, 9)."""
    result = constant(np.ones(len(factors)))
    for position in range(factors.shape[1]):
        result = multiply(result, factors[:, position])
    return result


def divide(dividend: FloatArray, divisor: FloatArray) -> FloatArray:
    """Row-wise quotients where they are polynomials; rows of zeros where they are not."""
    quotient = np.zeros_like(dividend)
    for index in range(NUM_MONOMIALS):
        single = (divisor[:, index] != 0) & ((divisor != 0).sum(axis=1) == 1)
        if single.any():
            quotient[single] = _divide_by_monomial(dividend[single], divisor[single, index], index)
    return quotient


def _divide_by_monomial(dividend: FloatArray, factor: FloatArray, index: int) -> FloatArray:
    quotient = np.zeros_like(dividend)
    is_exact = np.ones(len(dividend), dtype=bool)
    for source, (i, j) in enumerate(EXPONENTS):
        target = _INDEX.get((i - EXPONENTS[index][0], j - EXPONENTS[index][1]))
        if target is None:
            is_exact &= dividend[:, source] == 0
        else:
            quotient[:, target] = dividend[:, source] / factor
    return quotient * is_exact[:, None]


def _fit_single(at_points: FloatArray, values: FloatArray) -> FloatArray:
    """Fit ``a + c × monomial``, the simplest that agrees at every point."""
    rows = np.full((values.shape[1], NUM_MONOMIALS), np.nan)
    for index in range(1, NUM_MONOMIALS):
        candidate = np.zeros_like(rows)
        span = at_points[1:, index] - at_points[0, index]
        if not span.any():
            continue
        slope = (values[-1] - values[0]) / span[-1]
        candidate[:, index] = slope
        candidate[:, 0] = values[0] - slope * at_points[0, index]
        candidate = _cleaned(candidate)
        fits = np.isnan(rows[:, 0]) & _agrees(candidate, at_points, values)
        rows[fits] = candidate[fits]
    return rows


def _agrees(rows: FloatArray, at_points: FloatArray, values: FloatArray) -> npt.NDArray[np.bool_]:
    error = np.abs(at_points @ rows.T - values)
    agrees: npt.NDArray[np.bool_] = np.all(error <= _TOLERANCE * (1 + np.abs(values)), axis=0)
    return agrees


def _cleaned(rows: FloatArray) -> FloatArray:
    """Whole numbers where rounding has left almost whole ones."""
    whole = np.round(rows)
    close = np.abs(rows - whole) <= 1e-7 * (1 + np.abs(rows).max(axis=1, keepdims=True))
    cleaned: FloatArray = np.where(close, whole, rows) + 0.0
    return cleaned


def _product_table() -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    table = np.zeros((NUM_MONOMIALS, NUM_MONOMIALS, NUM_MONOMIALS))
    for i, (a, b) in enumerate(EXPONENTS):
        for j, (c, d) in enumerate(EXPONENTS):
            target = _INDEX.get((a + c, b + d))
            if target is not None:
                table[i, j, target] = 1.0
    flat = table.reshape(-1, NUM_MONOMIALS)
    return flat, np.asarray(~flat.any(axis=1))


_PRODUCT, _OVERFLOWS = _product_table()
