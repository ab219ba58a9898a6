from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.reporting.tables import (
    Column,
    Table,
    continued_table,
    cut,
    display_width,
    markdown_table,
    table_width,
    text_table,
)

_DEVICES = Table(
    columns=(
        Column(title="device", min_width=8),
        Column(title="W", is_number=True),
        Column(title="note", drop_order=1),
    ),
    rows=(("GeForce RTX 4090", "450", "consumer"), ("L4", "72", "data centre")),
)


def test_numbers_stand_right_and_words_left() -> None:
    assert text_table(_DEVICES).splitlines() == [
        "device              W  note",
        "GeForce RTX 4090  450  consumer",
        "L4                 72  data centre",
    ]


def test_a_narrow_table_is_cut_before_a_column_goes() -> None:
    assert text_table(_DEVICES, width=28).splitlines() == [
        "device        W  note",
        "GeForce R…  450  consumer",
        "L4           72  data centre",
    ]


def test_a_very_narrow_table_drops_columns_in_their_order() -> None:
    lines = text_table(_DEVICES, width=16).splitlines()
    assert lines == ["device         W", "GeForce RT…  450", "L4            72"]


def test_remarks_stand_below_their_row() -> None:
    table = Table(columns=(Column(title="a"),), rows=(("1",), ("2",)), remarks=("", "fastest"))
    assert text_table(table).splitlines() == ["a", "1", "2", "   ↳ fastest"]


def test_markdown_escapes_bars() -> None:
    table = Table(columns=(Column(title="a"),), rows=(("x|y",),))
    assert markdown_table(table).splitlines()[-1] == "| x\\|y |"


def test_wide_characters_take_two_cells() -> None:
    assert display_width("漢字") == 4
    table = Table(columns=(Column(title="n"), Column(title="x")), rows=(("漢字", "1"), ("ab", "2")))
    assert text_table(table).splitlines()[1:] == ["漢字  1", "ab    2"]


def test_ragged_rows_are_our_bug() -> None:
    with pytest.raises(AssertionError):
        Table(columns=(Column(title="a"),), rows=(("1", "2"),))


_CELLS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=30)


@given(rows=st.lists(st.tuples(_CELLS, _CELLS, _CELLS), max_size=5), width=st.integers(40, 120))
def test_no_line_is_wider_than_asked(rows: list[tuple[str, str, str]], width: int) -> None:
    table = Table(
        columns=(
            Column(title="a", min_width=10),
            Column(title="b", min_width=10, is_number=True),
            Column(title="c", min_width=10, drop_order=1),
        ),
        rows=tuple(rows),
    )
    assert all(display_width(line) <= width for line in text_table(table, width=width).split("\n"))


@given(text=_CELLS, width=st.integers(1, 40))
def test_cut_never_exceeds_the_width_and_keeps_what_fits(text: str, width: int) -> None:
    assert display_width(cut(text, width)) <= width
    if display_width(text) <= width:
        assert cut(text, width) == text


_WORDS = st.text("abc×·", min_size=1, max_size=30)


@given(
    rows=st.lists(st.tuples(_WORDS, _WORDS, _WORDS), min_size=1, max_size=4),
    width=st.integers(40, 120),
)
def test_what_is_told_below_is_lost_at_no_width(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    """Whether its column is cut or goes; it stands below only where something is missing."""
    table = Table(
        columns=(
            Column(title="name", min_width=8, told_below=True),
            Column(title="figure", is_number=True),
            Column(title="how", min_width=8, drop_order=1, told_below=True),
        ),
        rows=tuple(rows),
        remarks=("",) * len(rows),
    )
    text = text_table(table, width=width)
    assert max(map(display_width, text.splitlines())) <= width
    joined = "".join(text.split())
    assert all(name in joined and how in joined for name, _, how in rows)
    if table_width(table) <= width:
        assert "↳" not in text


@given(
    rows=st.lists(st.tuples(_WORDS, _WORDS, _WORDS), min_size=1, max_size=4),
    width=st.integers(40, 120),
)
def test_a_table_that_goes_on_below_lacks_no_column_and_names_its_rows_again(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    titles = ("name", "figure", "how")
    table = Table(columns=tuple(Column(title=title) for title in titles), rows=tuple(rows))
    text = continued_table(table, width=width)
    joined = "".join(text.split())
    assert all("".join(cell.split()) in joined for row in rows for cell in row)
    assert all(title in text for title in titles)
    assert all(part.startswith("name") for part in text.split("\n\n"))
    if table_width(table) <= width:
        assert text == text_table(table, width=width)


def test_what_is_missing_of_a_row_stands_behind_its_remark() -> None:
    table = Table(
        columns=(Column(title="how", min_width=6, told_below=True),),
        rows=(("dp2.tp4@1f1b",), ("dp8",)),
        remarks=("fastest", ""),
    )
    assert text_table(table, width=20).splitlines() == [
        "how",
        "dp2.tp4@1f1b",
        "   ↳ fastest",
        "dp8",
    ]
    narrow = text_table(table, width=11).splitlines()
    assert narrow[1] == "dp2.tp4@1f…"
    assert "".join(line.strip(" ↳") for line in narrow[2:-1]).endswith("dp2.tp4@1f1b")
