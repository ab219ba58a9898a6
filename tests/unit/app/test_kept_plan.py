from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

import paceline
from paceline.app.requests.kept_plan import plan_moves
from paceline.catalog.entities import Catalog
from paceline.catalog.load import load_catalog
from paceline.planfile import PlanFile

DAY = date(2026, 11, 20)


@pytest.fixture(scope="module")
def kept() -> PlanFile:
    return paceline.plan("mnist-cnn", max_devices=1, cloud="lambda,vast", as_of=DAY)


def dearer(name: str, factor: float) -> Catalog:
    """The catalogue with another price of one offer."""
    catalog = load_catalog(())
    offers = tuple(
        replace(one, usd_per_hour=one.usd_per_hour * factor)
        if one.name == name and one.usd_per_hour is not None
        else one
        for one in catalog.offers
    )
    return replace(catalog, offers=offers)


def test_the_same_prices_change_nothing(kept: PlanFile) -> None:
    (said,) = plan_moves(kept, load_catalog(()), DAY)
    assert "stays as it is" in said


def test_another_price_names_what_wins_or_what_it_costs(kept: PlanFile) -> None:
    first = kept.choices[0].place.offer
    (said,) = plan_moves(kept, dearer(first, 50), DAY)
    assert "would now differ" in said
    assert said.index(first) > said.index("in the place of")
    (said,) = plan_moves(kept, dearer(first, 0.5), DAY)
    assert f"keeps {first}" in said


def test_nothing_that_is_left_is_said(kept: PlanFile) -> None:
    (said,) = plan_moves(kept, replace(load_catalog(()), offers=()), DAY)
    assert "would find nothing now" in said


def test_a_refresh_says_it_of_a_plan_file(
    kept: PlanFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paceline.planning.goal.files import dump_plan

    monkeypatch.setenv("PACELINE_OFFERS", str(tmp_path / "offers"))
    (tmp_path / "plan.yaml").write_text(dump_plan(kept), encoding="utf-8")
    place = kept.choices[0].place
    quotes = tmp_path / "ours.csv"
    cloud, _, instance = place.offer.partition("/")
    quotes.write_text(
        "cloud,instance_type,accelerator,num_devices,usd_per_hour\n"
        f"{cloud},{instance},{place.device},{kept.choices[0].num_devices},"
        f"{place.usd_per_hour * 0.5}\n"
    )
    found = paceline.offers_refresh(
        [str(quotes)], seen_on="2026-11-20", dry_run=True, plan=tmp_path / "plan.yaml"
    )
    assert len(found.plan) == 1
    assert place.offer in found.plan[0]
