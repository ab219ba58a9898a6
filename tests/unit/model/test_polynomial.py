import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidInputError
from paceline.model.graph import polynomial
from paceline.model.graph.graph import EXPONENTS, monomials

POINTS = np.array([[3.0, 11], [5, 11], [3, 17], [5, 17], [7, 23]])
AFFINE = [(0, 0), (1, 0), (0, 1), (1, 1)]
whole = st.integers(0, 2**20)


def rows_of(coefficients):
    row = np.zeros((1, 9))
    for exponent, value in coefficients.items():
        row[0, EXPONENTS.index(exponent)] = value
    return row


@given(st.tuples(whole, whole, whole, whole))
def test_an_extent_in_the_span_is_found_exactly(values):
    row = rows_of(dict(zip(AFFINE, values, strict=True)))
    seen = (monomials(*POINTS.T) @ row.T).astype(np.float64)
    assert np.array_equal(polynomial.fit(POINTS, seen), row)


@pytest.mark.parametrize("exponent", [(0, 2), (2, 0), (1, 2), (2, 2)])
def test_a_single_higher_monomial_is_found(exponent):
    row = rows_of({exponent: 6.0})
    assert np.allclose(polynomial.fit(POINTS, monomials(*POINTS.T) @ row.T), row)


def test_a_quantity_that_is_no_polynomial_is_refused():
    with pytest.raises(InvalidInputError, match="polynomial"):
        polynomial.fit(POINTS, np.array([[1.0], [9], [4], [25], [2]]))


@given(st.tuples(whole, whole, whole, whole), st.tuples(whole, whole, whole, whole))
def test_the_product_of_polynomials_is_the_product_of_values(left, right):
    a = rows_of(dict(zip(AFFINE, left, strict=True)))
    b = rows_of(dict(zip(AFFINE, right, strict=True)))
    at = monomials([2, 5], [3, 7])
    product = at @ polynomial.multiply(a, b).T
    assert np.allclose(product, (at @ a.T) * (at @ b.T), rtol=1e-9)


def test_a_third_power_is_refused():
    square = rows_of({(0, 2): 1.0})
    with pytest.raises(InvalidInputError, match="higher power"):
        polynomial.multiply(square, square)


def test_division_undoes_multiplication_by_a_monomial():
    dividend, divisor = rows_of({(1, 1): 6.0, (1, 0): 4.0}), rows_of({(1, 0): 2.0})
    assert np.array_equal(polynomial.divide(dividend, divisor), rows_of({(0, 1): 3.0, (0, 0): 2.0}))
