"""The scoreboard, whole and as the README shows it: figures quoted from the pages of benchmarks/.

Which ones stands in ``quoted.toml``. A figure that its page no longer has is an error, so that
none is quoted from memory.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LINES = Path(__file__).with_suffix(".toml")
HEADER = "| what is predicted | rows | median error | asked | |\n|---|--:|--:|--:|---|"
_VERDICTS = {"yes": "met", "no": "missed"}


class NotOnPageError(Exception):
    """A page of benchmarks has no such figure any more."""


def scoreboard(
    lines: Path = LINES, folder: Path = BENCHMARKS, *, place: str = "", is_short: bool = False
) -> str:
    """The table in Markdown, each line with a link to its page.

    Args:
        lines: What is quoted.
        folder: Pages that are quoted.
        place: How a link to such a page begins.
        is_short: Only the lines for a newcomer.
    """
    wanted = tomllib.loads(lines.read_text(encoding="utf-8"))["line"]
    shown = [one for one in wanted if "short" in one or not is_short]
    return "\n".join([HEADER, *(_line(one, folder, place) for one in shown)])


def _line(wanted: Mapping[str, str], folder: Path, place: str) -> str:
    page = wanted["page"]
    cells = cells_of(wanted, (folder / page).read_text(encoding="utf-8"))
    keys = ("what", "rows", "figure", "asked", "verdict")
    what, rows, figure, asked, verdict = (
        _plain(wanted.get(key, "").format_map(cells)) for key in keys
    )
    link = f"[{what}]({place}{page})"
    return f"| {link} | {rows} | {figure} | {asked} | {_VERDICTS.get(verdict, verdict)} |"


def _plain(text: str) -> str:
    """Percentages written alike, whole ones without a fraction.

    >>> _plain("7.0 % and 0.3%")
    '7 % and 0.3 %'
    """
    return re.sub(r"(\d+?)(?:\.0)? ?%", r"\1 %", text)


def cells_of(wanted: Mapping[str, str], text: str) -> dict[str, str]:
    """Cells of the row, or groups of the pattern, that a line quotes.

    Raises:
        NotOnPageError: The page has neither.
    """
    if "pattern" in wanted:
        found = re.search(wanted["pattern"], text, re.DOTALL)
        if found:
            return found.groupdict()
    else:
        for columns, cells in table_rows(text):
            if cells[: len(wanted["row"])] == list(wanted["row"]):
                return _by_column(columns, cells)
    raise NotOnPageError(f"{wanted['page']} has no {wanted.get('row', wanted.get('pattern'))}")


def table_rows(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Names of the columns and cells of each row, of every table of a page in Markdown."""
    columns: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = _cells(line)
        elif not re.fullmatch(r"[|:\- ]+", line):
            yield columns, _cells(line)


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("**", "") for cell in line.strip().strip("|").split("|")]


def _by_column(columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Cells by name; of two columns of one name the first counts."""
    found: dict[str, str] = {}
    for column, cell in zip(columns, cells, strict=True):
        found.setdefault(column or "verdict", cell)
    return found
