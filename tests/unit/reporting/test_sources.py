"""Prices with their sources: what is told of a price is what its source has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.planfile import PlanFile
from paceline.reporting.pages.markdown import plan_markdown
from paceline.reporting.pages.planned import plan_page, price_sources


@pytest.fixture
def fleets(plan: PlanFile) -> PlanFile:
    """One, four and sixteen machines of one offer, at 10 USD an hour each."""
    place = plan.choices[0].place
    choices = tuple(
        replace(plan.choices[0], place=replace(place, num_nodes=count, usd_per_hour=10.0 * count))
        for count in (4, 1, 16)
    )
    return replace(plan, choices=choices)


def test_a_price_is_told_once_and_for_one_machine(fleets: PlanFile) -> None:
    (source,) = price_sources(fleets.choices)
    assert ": 10.0 USD/h" in source
    rows = [line for line in plan_markdown(fleets).splitlines() if "| on demand |" in line]
    assert [row.split(" | ")[3] for row in rows] == ["10.0"]


def test_what_all_machines_cost_is_said_of_all_of_them(fleets: PlanFile) -> None:
    assert "40.0 USD per hour for all 4 machines" in plan_markdown(fleets)


def test_a_page_has_no_empty_line(plan: PlanFile) -> None:
    page = plan_page(replace(plan, rent_or_buy="", turns=()))
    assert all(line for section in page.sections for line in section.lines)
