"""Columns of integers, packed for a file: what comes back is what went in, whatever it is."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from paceline.model.graph.columns import packed, unpacked

INT32 = np.iinfo(np.int32)


def packed_bytes(column: np.ndarray) -> int:
    return len(zlib.compress(np.ascontiguousarray(packed(column)[0]).tobytes()))


@given(arrays.arrays(np.int32, st.integers(0, 120), elements=st.integers(INT32.min, INT32.max)))
def test_any_column_comes_back(column: np.ndarray) -> None:
    planes, lags = packed(column)
    assert np.array_equal(unpacked(planes, lags), column)


@given(
    block=arrays.arrays(np.int32, st.integers(2, 30), elements=st.integers(-1000, 1000)),
    growth=st.integers(-50, 50),
)
def test_blocks_that_grow_evenly_come_back(block: np.ndarray, growth: int) -> None:
    column = (block + growth * np.arange(40, dtype=np.int32)[:, None]).reshape(-1)
    planes, lags = packed(column)
    assert np.array_equal(unpacked(planes, lags), column)


def test_twice_the_blocks_take_hardly_more_bytes() -> None:
    """What references of layers are: each a few steps back, all a layer further on."""
    block = np.random.default_rng(3).integers(0, 10_000, 97).astype(np.int32)
    few, many = (
        (block + 613 * np.arange(layers, dtype=np.int32)[:, None]).reshape(-1)
        for layers in (40, 80)
    )
    assert packed(few)[1] == packed(many)[1]
    assert packed_bytes(many) < packed_bytes(few) + 60
    assert packed_bytes(many) < 0.05 * len(zlib.compress(many.tobytes()))


@pytest.mark.parametrize("lags", [(0,), (-3,), (10**6,), (1, 2, 3, 4, 5)])
def test_lags_that_are_never_written_are_refused(lags: tuple[int, ...]) -> None:
    planes, _ = packed(np.arange(50, dtype=np.int32))
    with pytest.raises(ValueError, match="lags"):
        unpacked(planes, lags)
