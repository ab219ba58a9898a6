"""A whole lifecycle as a page: places to develop, train and serve, beside one place for all."""

from __future__ import annotations

from collections.abc import Iterator

from paceline.planning.lifecycle.answer import Lifecycle, PlacedLife
from paceline.reporting.charts.basic import WIDTH, Chart, Row, layer, nominal, quantity, styled
from paceline.reporting.figures import usd_range
from paceline.reporting.pages.page import Page, Section
from paceline.reporting.pages.planned import price_sources
from paceline.reporting.screens.lifecycle import lifecycle_table
from paceline.reporting.screens.plans import machine_name
from paceline.units import format_usd

_OWN_PLACES, _ONE_PLACE = "a place each", "one place for all"


def lifecycle_page(answer: Lifecycle) -> Page:
    """The places with their costs, why, what one place would cost, and every price's source."""
    phases = answer.split.phases
    reasons = tuple(f"{one.phase}: {one.reason}" for one in phases)
    places = Section(
        title="Places", charts=(cost_chart(answer),), table=lifecycle_table(answer), lines=reasons
    )
    sections = (
        Section(title="Assumptions", lines=answer.assumptions),
        places,
        Section(title="One place for all", lines=answer.why),
    )
    return Page(
        title=f"{answer.title}: where to {_spoken([one.phase for one in phases])}",
        subtitle=f"{answer.model} · the cheapest place each, against one place for all",
        tiles=tuple(_tiles(answer)),
        sections=tuple(section for section in sections if section.lines or section.table),
        sources=(
            *price_sources(one.choice for life in _lives(answer).values() for one in life.phases),
            "Ranges hold in four of five cases; that of the sum takes all to err together.",
        ),
    )


def cost_chart(answer: Lifecycle) -> Chart:
    """Cost of each phase with its move, stacked: a place each beside one place for all."""
    phases = [one.phase for one in answer.split.phases]
    points: list[Row] = [
        {"way": way, "phase": one.phase, "usd": one.machines_usd.mid + one.moving_usd,
         "place": machine_name(one.choice), "order": phases.index(one.phase)}
        for way, life in _lives(answer).items()
        for one in life.phases
    ]  # fmt: skip
    bars = layer(
        points,
        {"type": "bar", "tooltip": {"content": "data"}},
        y=nominal("way", sort=None),
        x=quantity("usd", "cost, USD"),
        color=nominal("phase", sort=phases),
        order={"field": "order"},
    )
    return Chart(
        title="Cost by phase",
        caption="Machines and moves, in US dollars; hover for the place.",
        spec=styled({**bars, "width": WIDTH, "height": {"step": 26}}),
    )


def _lives(answer: Lifecycle) -> dict[str, PlacedLife]:
    other = {} if answer.one_place is None else {_ONE_PLACE: answer.one_place}
    return {_OWN_PLACES: answer.split, **other}


def _tiles(answer: Lifecycle) -> Iterator[tuple[str, str]]:
    yield f"{usd_range(answer.split.total_usd)} USD", "together, in the places below"
    if answer.one_place is None:
        yield "none", "no single place can do all of it"
    else:
        yield f"{usd_range(answer.one_place.total_usd)} USD", "in the cheapest single place"
    for one in answer.split.phases:
        cost = format_usd(one.machines_usd.mid + one.moving_usd)
        yield machine_name(one.choice), f"to {one.phase}, {cost} USD"


def _spoken(words: list[str]) -> str:
    """Words as they are said one after the other.

    >>> _spoken(["develop", "train", "serve"])
    'develop, train and serve'
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
