"""A transformer that states less than its sizes says which were taken."""

from __future__ import annotations

import pytest
from tests.sampled import sampled
from traced import trace_here

pytest.importorskip("torch")

SIZES = {"layers": "1", "hidden": "32", "heads": "2", "ffn": "64", "vocab": "50"}


def title_of(*left_out: str) -> str:
    stated = ",".join(f"{k}={v}" for k, v in SIZES.items() if k not in left_out)
    return trace_here(f"transformer:{stated}", task="infer").title


def test_what_is_stated_in_full_is_its_name() -> None:
    assert title_of() == "transformer:layers=1,hidden=32,heads=2,ffn=64,vocab=50"


@pytest.mark.parametrize(
    ("left_out", "taken"),
    sampled([("ffn", "ffn=128"), ("heads", "heads=12"), ("layers", "layers=12")], "ffn", "heads"),
)
def test_a_size_that_was_taken_is_said(left_out: str, taken: str) -> None:
    more = ("hidden",) if left_out == "heads" else ()
    said = title_of(left_out, *more).partition("assumed: ")[2]
    assert taken in said
    assert all(name not in said for name in SIZES if name not in (left_out, *more))
