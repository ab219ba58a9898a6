"""Widths of left-out sources, each source as one."""

import numpy as np
import pandas as pd
import pytest
from accuracy_time.widths import coverage, factor


def errors_of(**sources: np.ndarray) -> pd.DataFrame:
    parts = [pd.DataFrame({"log_error": e, "source_name": name}) for name, e in sources.items()]
    return pd.concat(parts, ignore_index=True)


def normal(sigma: float, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, sigma, count)


def test_widths_that_are_right_cover_four_of_five_and_are_left_as_they_are():
    rows = errors_of(a=normal(0.1, 20_000), b=normal(0.3, 20_000, 1))
    sigma = rows.source_name.map({"a": 0.1, "b": 0.3})
    assert coverage(rows, sigma) == pytest.approx(0.8, abs=0.01)
    assert factor(rows, sigma) == pytest.approx(1.0, rel=0.03)


def test_a_source_of_many_rows_counts_as_one_of_few():
    few, many = (errors_of(a=normal(0.1, n), b=normal(0.4, 200, 1)) for n in (200, 20_000))
    ones = [factor(rows, pd.Series(0.1, rows.index)) for rows in (few, many)]
    assert ones[0] == pytest.approx(ones[1], rel=0.15)
    assert coverage(many, np.full(len(many), ones[1] * 0.1)) > 0.9


def test_a_few_broken_rows_set_no_width():
    rows = errors_of(a=np.append(normal(0.1, 1000), np.full(20, 6.0)))
    assert factor(rows, pd.Series(0.1, rows.index)) == pytest.approx(1.0, rel=0.1)


def test_a_source_of_two_rows_says_nothing():
    rows = errors_of(a=normal(0.1, 1000), b=np.array([5.0, 5.0]))
    alone = rows[rows.source_name == "a"]
    assert factor(rows, pd.Series(0.1, rows.index)) == factor(alone, pd.Series(0.1, alone.index))
