"""Columns of whole numbers, written for a file: what comes back is what went in."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from paceline.model.graph.columns import read, references, referred, written

INT64 = np.iinfo(np.int64)
any_column = arrays.arrays(np.int64, st.integers(0, 60), elements=st.integers(INT64.min, INT64.max))


@given(st.lists(any_column, max_size=4))
def test_any_columns_come_back(columns: list[np.ndarray]) -> None:
    for wrote, came in zip(columns, read(written(columns)), strict=True):
        assert np.array_equal(wrote, came)


@given(arrays.arrays(np.int64, st.integers(0, 90), elements=st.integers(0, 10**9)))
def test_any_references_come_back(numbers: np.ndarray) -> None:
    assert np.array_equal(referred(references(numbers)), numbers)


def test_blocks_that_refer_alike_are_the_same_references() -> None:
    block = np.array([0, 1, 0, 2, 3, 1])
    blocks = (block + 4 * np.arange(50)[:, None]).reshape(-1)
    back = references(blocks).reshape(50, -1)
    assert (back == back[0]).all()


def test_twice_the_blocks_take_hardly_more_bytes() -> None:
    block = np.random.default_rng(3).integers(0, 200, 97)
    few, many = (len(zlib.compress(written([np.tile(block, n)]))) for n in (40, 80))
    assert many < few + 60


@pytest.mark.parametrize(
    "content",
    [b"\x05\0\0\0\x01abc", b"\x01\0\0\0\x00", b"\x01\0\0\0\x09abcdefghi", b"\xff\xff\xff\xff\x08"],
    ids=["short", "no planes", "nine planes", "long"],
)
def test_content_that_is_never_written_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="planes"):
        list(read(content))
