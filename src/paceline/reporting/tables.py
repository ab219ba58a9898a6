"""Tables as text at a given width, and as Markdown: the one place that aligns columns.

Numbers stand right, words stand left, units stand in the header, and nothing needs colour.
Where the width does not suffice, columns with a ``min_width`` are cut with an ellipsis; where
that is not enough, columns go, those with the lowest ``drop_order`` first. Of columns that are
``told_below`` nothing is lost: what is cut or goes stands whole below its row.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from unicodedata import combining, east_asian_width

from paceline.patterns import pattern
from paceline.values import dataclass

#: What stands where a figure does not exist.
ABSENT = "–"
_GAP = "  "
_REMARK_INDENT = "   ↳ "
#: Where a cell may end if the rest stands below its row.
_BETWEEN, _WORDS = re.compile(r" (?:· |\()"), re.compile(r" (?=\S)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        title: Header, with the unit.
        is_number: Whether its cells stand right.
        drop_order: Where it goes on a narrow terminal: 1 before 2 before 3 …; 0 stays always.
        min_width: Cells to which it may be cut; None if it is never cut.
        told_below: Whether its text stands whole below a row that lacks some of it.
    """

    title: str
    is_number: bool = False
    drop_order: int = 0
    min_width: int | None = None
    told_below: bool = False


#: A title, with the marks of its column behind it.
_HEADED = pattern(r"(.*?)( >)?(?: ~(\d+))?( ?\+)?(?: -(\d))?")


def header(text: str) -> tuple[Column, ...]:
    """Columns as a line shows them, each a title with its marks.

    ``>`` stands right, ``~20`` may be cut to 20 characters, of ``+`` all stands below its row, and
    ``-1`` goes before ``-2`` on a narrow terminal.

    >>> header("card ~20+ | USD > -1") == (
    ...     Column(title="card", min_width=20, told_below=True),
    ...     Column(title="USD", is_number=True, drop_order=1),
    ... )
    True
    """
    return tuple(map(_headed, text.split(" | ")))


def _headed(text: str) -> Column:
    found = _HEADED.fullmatch(text)
    assert found is not None
    title, right, width, below, order = found.groups()
    return Column(
        title=title, is_number=bool(right), drop_order=int(order or 0),
        min_width=int(width) if width else None, told_below=bool(below),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells under columns. An empty cell means: there is no such figure.

    Attributes:
        columns: Left to right.
        rows: One tuple of cells each, as many as there are columns.
        remarks: A note below each row, empty for none; no notes at all if left out.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse ragged rows."""
        assert all(len(row) == len(self.columns) for row in self.rows)
        assert len(self.remarks) in (0, len(self.rows))

    def of_columns(self, kept: Sequence[int]) -> Table:
        """The table with the columns of these numbers."""
        return replace(
            self,
            columns=tuple(self.columns[i] for i in kept),
            rows=tuple(tuple(row[i] for i in kept) for row in self.rows),
        )


def text_table(table: Table, *, width: int = 100) -> str:
    """The table as lines of at most ``width`` characters where its fixed columns allow.

    >>> cells = Table(
    ...     columns=(Column(title="device"), Column(title="W", is_number=True)),
    ...     rows=(("A100", "400"), ("L4", "72")),
    ... )
    >>> print(text_table(cells))
    device    W
    A100    400
    L4       72
    """
    fitted = _fit(table, width)
    widths = _widths(fitted)
    lines = [_line(fitted.columns, [column.title for column in fitted.columns], widths)]
    for row, notes in zip(fitted.rows, _below(table, fitted), strict=True):
        lines.append(_line(fitted.columns, row, widths))
        lines += _remark_lines(notes, width)
    return "\n".join(lines)


def continued_table(table: Table, *, width: int = 100) -> str:
    """Every column: what the width does not hold goes on below, behind the first column again.

    >>> cells = Table(
    ...     columns=tuple(Column(title=title) for title in ("device", "maker", "memory")),
    ...     rows=(("L4", "NVIDIA", "24 GB"),),
    ... )
    >>> print(continued_table(cells, width=15))
    device  maker
    L4      NVIDIA
    <BLANKLINE>
    device  memory
    L4      24 GB
    """
    columns = range(len(table.columns))
    ends = [end for end in columns if table_width(table.of_columns(range(end + 1))) <= width]
    end = max((1, *ends)) + 1
    if end >= len(columns):
        return text_table(table, width=width)
    rest = replace(table.of_columns((0, *columns[end:])), remarks=())
    first = text_table(table.of_columns(range(end)), width=width)
    return f"{first}\n\n{continued_table(rest, width=width)}"


def markdown_table(table: Table) -> str:
    """The table in GitHub's Markdown, its remarks below it behind the first cells of their rows.

    >>> cells = Table(columns=(Column(title="W", is_number=True),), rows=(("400",),))
    >>> print(markdown_table(cells))
    | W |
    |--:|
    | 400 |
    """
    header = _markdown_row([column.title for column in table.columns])
    rule = "|" + "|".join("--:" if c.is_number else "---" for c in table.columns) + "|"
    lines = (header, rule, *(_markdown_row(row) for row in table.rows))
    noted = zip(table.rows, table.remarks, strict=False)
    notes = [f"- {row[0]}: {remark}" for row, remark in noted if remark]
    return "\n".join((*lines, "", *notes) if notes else lines)


def table_width(table: Table) -> int:
    """Terminal cells that the table takes where nothing is cut and no column goes."""
    return _total_width(_widths(table))


def display_width(text: str) -> int:
    """Terminal cells that ``text`` takes: wide characters count two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in text)


def cut(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, with an ellipsis where something is missing.

    >>> cut("channels-last", 8)
    'channel…'
    """
    if display_width(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    while display_width(kept) > width - 1:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def _cut_between(text: str, width: int) -> str:
    """``text`` up to the last of its parts that fits, else of its words, else with an ellipsis.

    >>> _cut_between("8×1×64 · zero3", 12), _cut_between("Vast 4×V100 SXM2 16GB", 20)
    ('8×1×64', 'Vast 4×V100 SXM2')
    """
    if display_width(text) <= width:
        return text
    for between in (_BETWEEN, _WORDS):
        ends = [match.start() for match in between.finditer(text)]
        fitting = [text[:end] for end in ends if display_width(text[:end]) <= width]
        if fitting:
            return fitting[-1]
    return cut(text, width)


def _fit(table: Table, width: int) -> Table:
    """Columns that stay always, and of the others as many as fit, the most important first."""
    kept = [column for column in table.columns if not column.drop_order]
    optional = [column for column in table.columns if column.drop_order]
    for column in sorted(optional, key=lambda c: -c.drop_order):
        if _smallest_width(_only(table, [*kept, column])) <= width:
            kept.append(column)
    return _with_cut_cells(_only(table, kept), width)


def _below(table: Table, fitted: Table) -> list[list[str]]:
    """What stands below each row: its remark, and whole cells of which something is missing."""
    remarks = table.remarks or ("",) * len(table.rows)
    shown = {id(column): index for index, column in enumerate(fitted.columns)}
    notes = [[remark] if remark else [] for remark in remarks]
    for index, column in enumerate(table.columns):
        if not column.told_below:
            continue
        at = shown.get(id(column))
        for row, kept, below in zip(table.rows, fitted.rows, notes, strict=True):
            shown_text = "" if at is None else kept[at]
            if shown_text != row[index]:
                is_start = row[index].startswith(shown_text)
                rest = _bare(row[index][len(shown_text) :])
                below.append(rest if is_start else row[index])
    return notes


def _bare(rest: str) -> str:
    """The rest of a cell without what parted it from its beginning.

    >>> _bare(" (16 nodes)"), _bare(" 40GB (8 nodes)"), _bare(" · zero3")
    ('16 nodes', '40GB (8 nodes)', 'zero3')
    """
    text = rest.removeprefix(" · ").strip()
    is_bracketed = text.startswith("(") and text.find(")") == len(text) - 1
    return text[1:-1] if is_bracketed else text


def _remark_lines(notes: Sequence[str], width: int) -> list[str]:
    """Notes in one paragraph below a row; none where there are none."""
    indent = " " * len(_REMARK_INDENT)
    lines = textwrap.wrap(
        " · ".join(filter(None, notes)),
        width,
        initial_indent=_REMARK_INDENT,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return [cut(line.rstrip(), width) for line in lines]


def _only(table: Table, columns: Sequence[Column]) -> Table:
    """The table with these columns, in its own order."""
    kept = [i for i, column in enumerate(table.columns) if any(column is c for c in columns)]
    return table.of_columns(kept)


def _with_cut_cells(table: Table, width: int) -> Table:
    for index, column in reversed(tuple(enumerate(table.columns))):
        widths = _widths(table)
        excess = _total_width(widths) - width
        if excess > 0 and column.min_width is not None:
            target = max(column.min_width, widths[index] - excess)
            shorten = _cut_between if column.told_below else cut
            rows = tuple(
                (*r[:index], shorten(r[index], target), *r[index + 1 :]) for r in table.rows
            )
            table = Table(columns=table.columns, rows=rows)
    return table


def _smallest_width(table: Table) -> int:
    widths = _widths(table)
    shrunk = [
        w if column.min_width is None else min(w, column.min_width)
        for column, w in zip(table.columns, widths, strict=True)
    ]
    return _total_width(shrunk)


def _widths(table: Table) -> list[int]:
    titles = [display_width(column.title) for column in table.columns]
    for row in table.rows:
        titles = [max(w, display_width(cell)) for w, cell in zip(titles, row, strict=True)]
    return titles


def _total_width(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _line(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        _pad(cell, width, is_right=column.is_number)
        for column, cell, width in zip(columns, cells, widths, strict=True)
    ]
    return _GAP.join(padded).rstrip()


def _pad(cell: str, width: int, *, is_right: bool) -> str:
    blank = " " * (width - display_width(cell))
    return blank + cell if is_right else cell + blank


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
