"""A page as plain values: what a report, a picture folder and a browser show alike."""

from __future__ import annotations

from paceline.reporting.charts.basic import Chart
from paceline.reporting.tables import Table
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What is told of one thing where a reader asks for it.

    Attributes:
        lines: Sentences.
    """

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page.

    Attributes:
        title: Its heading.
        charts: Pictures, in order.
        table: Figures below them; None for none.
        lines: Sentences below that.
        details: Below them, each to be opened; the first is of what a chart calls rank 1.
    """

    title: str
    charts: tuple[Chart, ...] = ()
    table: Table | None = None
    lines: tuple[str, ...] = ()
    details: tuple[Detail, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole page.

    Attributes:
        title: Heading.
        subtitle: One line under it.
        tiles: Figures that matter most, as (figure, what it is).
        sections: Parts, in order.
        sources: Where the numbers come from, one sentence each.
    """

    title: str
    subtitle: str
    tiles: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    sources: tuple[str, ...]
