"""Offers of providers that sell in more regions than the one whose price was seen."""

from __future__ import annotations

from datetime import date

import pytest

from paceline.catalog.load import load_catalog
from paceline.errors import MissingFactError, UnknownNameError
from paceline.planning.goal.goal import Goal
from paceline.planning.places.places import find_places
from paceline.planning.places.regions import is_accepted, moved_words, offered_in
from paceline.shipped import shipped_rows

TODAY = date(2026, 11, 20)
CATALOG = load_catalog()


def places_in(*regions: str, clouds: tuple[str, ...] = ()):
    return find_places(CATALOG, Goal(regions=regions, clouds=clouds), today=TODAY).places


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
@pytest.mark.parametrize("word", ["eu", "asia", "us"])
def test_a_large_provider_is_planned_in_every_part_of_the_world(cloud: str, word: str) -> None:
    assert all(is_accepted(p.offer, (word,)) for p in places_in(word, clouds=(cloud,)))
    assert places_in(word, clouds=(cloud,))


@pytest.mark.parametrize("name", ["aws/g5.xlarge", "aws/g4dn.xlarge", "gcp/g2-standard-4"])
def test_a_machine_costs_elsewhere_what_the_ratio_of_regions_says(name: str) -> None:
    home = next(one for one in CATALOG.offers if one.name == name)
    there = offered_in(home, ("eu",))
    published = {"aws/g5.xlarge": 1.123, "aws/g4dn.xlarge": 0.587, "gcp/g2-standard-4": 0.778}
    assert there.usd_per_hour == pytest.approx(published[name], rel=0.02)
    assert there.region != home.region
    assert offered_in(home, ()) is home


def test_what_is_moved_is_told_and_what_stays_is_not() -> None:
    assert "eu-west-1 1.11×" in moved_words([p.offer for p in places_in("eu")], ("eu",))
    assert not moved_words([p.offer for p in places_in()], ())
    assert not moved_words([p.offer for p in places_in("us")], ("us",))


def test_an_offer_that_is_priced_there_keeps_its_price() -> None:
    priced = [o for o in CATALOG.offers if o.region.startswith("eu-") and o.usd_per_hour]
    assert priced
    assert all(offered_in(one, ("eu",)) is one for one in priced)


def test_a_region_that_nobody_has_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        places_in("mars")


@pytest.mark.parametrize(
    ("word", "near"),
    [("europe-north1", "europe-west4"), ("Eu-North-1", "eu-west-1"), ("polandcentral", "eastus")],
)
def test_a_region_without_prices_is_known_and_told_with_the_nearest(word: str, near: str) -> None:
    with pytest.raises(MissingFactError, match=word) as raised:
        places_in(word)
    assert f"--region {near}" in raised.value.hint


def test_ratios_are_near_one_and_name_a_source() -> None:
    for row in shipped_rows("planning", "cloud_regions.csv"):
        assert 0.8 <= float(row["usd_frac"]) <= 1.6
        assert row["source"]
        assert row["read_on"]
