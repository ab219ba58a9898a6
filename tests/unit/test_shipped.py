"""Rows of tables as values."""

from __future__ import annotations

from datetime import date
from typing import Literal

import pytest

from paceline.shipped import read_as
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    name: str
    kind: Literal["gpu", "cpu"]
    is_known: bool
    num_parts: int
    peak_w: float | None
    seen_on: date | None
    words: tuple[str, ...]
    places: frozenset[str]
    note: str = "none"
    limits: dict[str, float]


ROW = {
    "name": "a", "kind": "gpu", "is_known": "yes", "num_parts": "3", "peak_w": "", "words": "b c",
    "seen_on": "2026-11-20", "places": "x y x", "other": "passed over",
}  # fmt: skip


def test_cells_are_read_as_the_types_of_their_fields():
    assert read_as(Fact, ROW, limits={"x": 1.0}) == Fact(
        name="a", kind="gpu", is_known=True, num_parts=3, peak_w=None, words=("b", "c"),
        seen_on=date(2026, 11, 20), places=frozenset("xy"), limits={"x": 1.0},
    )  # fmt: skip


def test_what_is_given_goes_before_a_cell():
    assert read_as(Fact, ROW, limits={}, name="given", num_parts=1).name == "given"


def test_an_empty_cell_is_none_only_where_the_field_may_be():
    with pytest.raises(ValueError, match="invalid literal for int"):
        read_as(Fact, ROW | {"num_parts": ""}, limits={})


def test_a_field_without_cell_and_default_is_missing():
    with pytest.raises(TypeError, match="limits"):
        read_as(Fact, ROW)
