from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidInputError
from paceline.stack.versions import parse_range, same_line, version_key

_VERSIONS = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(
    lambda n: ".".join(map(str, n))
)


@given(_VERSIONS)
def test_trailing_zeros_do_not_count(version: str) -> None:
    assert version_key(version) == version_key(version + ".0")


@given(_VERSIONS, _VERSIONS)
def test_a_floor_and_its_complement_divide_the_versions(version: str, bound: str) -> None:
    above, below = (parse_range(symbol + bound).contains(version) for symbol in (">=", "<"))
    assert above != below


def test_equality_compares_the_places_it_names() -> None:
    assert parse_range("==11.0").contains("11.0.3")
    assert not parse_range("==11.0").contains("11.8")
    assert parse_range("==8.6").contains("8.6")


def test_ten_is_newer_than_nine() -> None:
    assert version_key("2.10") > version_key("2.9")


def test_a_line_is_not_a_prefix_of_characters() -> None:
    assert same_line("2.1.2", "2.1")
    assert not same_line("2.11.0", "2.1")


@pytest.mark.parametrize("text", ["new", "1.x", "", "1..2"])
def test_no_version(text: str) -> None:
    with pytest.raises(InvalidInputError):
        version_key(text)


@pytest.mark.parametrize("text", ["~=1.0", ">=x", "1.0"])
def test_no_range(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_range(text)
