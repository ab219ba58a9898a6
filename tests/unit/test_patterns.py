"""Patterns find what `re` finds, and say how what they match begins."""

from __future__ import annotations

import re

import pytest

from paceline.patterns import opening, pattern


def test_a_pattern_finds_what_re_finds() -> None:
    late, usual = pattern(r"(\d+)\s*gb?\b", re.IGNORECASE), re.compile(r"(\d+)\s*gb?\b", re.I)
    for text in ("A100 80GB", "a100 80 g 40gb", "none"):
        assert late.findall(text) == late.findall(text) == usual.findall(text)
        assert late.sub("-", text) == usual.sub("-", text)


@pytest.mark.parametrize(
    ("text", "matched"),
    [("sd35?_.*", "sd3_a"), ("a|b", "b"), ("x(a)y|z(b)", "zb"), ("ab*", "a"), ("ab{0,2}c", "ac"),
     ("hf:(nllb|m2m)", "hf:m2m"), (r"intel\(r\)|amd", "amd"), ("(?!a).+", "b"), ("a-b", "a-b")],
)  # fmt: skip
def test_all_that_matches_begins_with_its_opening(text: str, matched: str) -> None:
    assert re.fullmatch(text, matched)
    assert matched.startswith(opening(text))


def test_an_opening_is_as_long_as_it_is_plain() -> None:
    assert [opening(text) for text in ("hf:(a|b)", "published_x:y", "ab?c")] == [
        "hf:", "published_x:y", "a",
    ]  # fmt: skip
