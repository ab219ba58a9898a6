"""Where the figures of a plan's first choice come from, down to sources and assumptions."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from paceline.planfile import TracedFigure
from paceline.reporting.tables import ABSENT, Table, header

_NAME_COLUMN = 30


def explanation_text(figures: Sequence[TracedFigure], *, width: int = 100) -> str:
    """One figure per paragraph: its value, then its formula or its source."""
    return "\n".join(
        ["where the figures of the first choice come from"]
        + [line for figure in figures for line in _lines(figure, width)]
    )


def explanation_table(figures: Sequence[TracedFigure]) -> Table:
    """The same as a table."""
    return Table(
        columns=header("figure | value | from"),
        rows=tuple((f.name, f.value, _origin(f) or ABSENT) for f in figures),
    )


def _lines(figure: TracedFigure, width: int) -> list[str]:
    head = f"  {figure.name:<{_NAME_COLUMN}}{figure.value}"
    body = textwrap.wrap(
        _origin(figure), width, initial_indent=" " * 6, subsequent_indent=" " * 8,
        break_on_hyphens=False,
    )  # fmt: skip
    return [head, *body]


def _origin(figure: TracedFigure) -> str:
    if figure.origin == "computed":
        return f"= {figure.formula}" + (f" ({figure.source})" if figure.source else "")
    return f"{figure.origin}: {figure.source}"
