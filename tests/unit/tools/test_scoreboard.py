"""The scoreboard quotes pages, and never from memory."""

from __future__ import annotations

import pytest
from scoreboard.quoted import NotOnPageError, cells_of, scoreboard

_PAGE = """\
Of 1,718 rows the median is **14.5%**.

| test | what | rows | median % | median % | |
|---|---|--:|--:|--:|---|
| T1 | training | 19 | **7.0** | 9.1 | missed, behind |
| T1 | training, apart | 8 | 3.0 | 9.1 | met |
"""
_ROW = {"page": "page.md", "row": ["T1", "training"]}


def test_a_row_is_found_by_what_it_begins_with() -> None:
    cells = cells_of(_ROW, _PAGE)
    assert (cells["rows"], cells["verdict"]) == ("19", "missed, behind")


def test_of_two_columns_of_one_name_the_first_is_quoted_without_bold() -> None:
    assert cells_of(_ROW, _PAGE)["median %"] == "7.0"


def test_figures_in_a_sentence_are_found_by_a_pattern() -> None:
    wanted = {"page": "page.md", "pattern": r"median is \*\*(?P<figure>[\d.]+%)"}
    assert cells_of(wanted, _PAGE) == {"figure": "14.5%"}


@pytest.mark.parametrize("gone", [{"row": ["T2", "training"]}, {"pattern": "mean is (?P<x>.)"}])
def test_a_figure_that_left_its_page_is_an_error(gone: dict[str, object]) -> None:
    with pytest.raises(NotOnPageError, match=r"page\.md"):
        cells_of({"page": "page.md"} | gone, _PAGE)


def test_the_line_shows_figure_target_and_verdict_and_leads_to_its_page(tmp_path) -> None:
    (tmp_path / "page.md").write_text(_PAGE)
    lines = tmp_path / "lines.toml"
    lines.write_text(
        '[[line]]\nwhat = "training"\npage = "page.md"\nrow = ["T1", "training"]\n'
        'rows = "{rows}"\nfigure = "{median %} %"\nasked = "≤ 6.0 %"\nverdict = "{verdict}"\n'
    )
    *_, line = scoreboard(lines, tmp_path).splitlines()
    link = "[training](page.md)"
    assert line == f"| {link} | 19 | 7 % | ≤ 6 % | missed, behind |"
