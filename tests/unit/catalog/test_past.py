"""Prices of an earlier day: none that was seen only later."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from paceline.catalog.freshness import unranked_reason
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_offer
from paceline.catalog.past import check_priced, known_on
from paceline.errors import InvalidInputError

CATALOG = load_catalog()
LAST_SEEN = max(offer.priced_on for offer in CATALOG.offers if offer.priced_on)


def test_on_the_last_day_and_later_nothing_is_changed() -> None:
    assert known_on(CATALOG, LAST_SEEN) is CATALOG


@pytest.mark.parametrize("day", [date(2019, 1, 1), date(2022, 7, 1), date(2024, 1, 1)], ids=str)
def test_no_price_is_younger_than_the_day(day: date) -> None:
    for offer in known_on(CATALOG, day).offers:
        priced = offer.usd_per_hour is not None and offer.priced_on is not None
        assert not priced or offer.priced_on <= day
        spot = offer.spot_usd_per_hour is not None and offer.spot_on is not None
        assert not spot or offer.spot_on <= day


def test_the_price_of_a_day_is_the_last_one_seen_until_then() -> None:
    """AWS cut p5.48xlarge in June 2025, from 98.32 to 55.04 USD per hour (offers.csv)."""
    prices = {
        day: find_offer(known_on(CATALOG, day), "aws/p5.48xlarge").usd_per_hour
        for day in (date(2023, 8, 8), date(2023, 8, 9), date(2025, 6, 22), date(2025, 6, 23))
    }
    assert list(prices.values()) == [None, 98.32, 98.32, 55.04]


def test_an_offer_first_seen_later_says_from_when_on_it_has_a_price() -> None:
    day = date(2023, 8, 8)
    reason = unranked_reason(find_offer(known_on(CATALOG, day), "aws/p5.48xlarge"), day)
    assert reason == "no price known before 2026-07-20"


def test_a_year_alone_counts_from_its_end() -> None:
    offer = replace(
        CATALOG.offers[0], priced_on=date(2025, 1, 1), usd_per_hour=9.0,
        price_history=(("2022", 7.0), ("2023-05", 8.0)),
    )  # fmt: skip
    catalog = replace(CATALOG, offers=(offer,))
    seen = [
        known_on(catalog, day).offers[0].usd_per_hour
        for day in (date(2022, 12, 30), date(2022, 12, 31), date(2023, 5, 30), date(2023, 5, 31))
    ]
    assert seen == [None, 7.0, 7.0, 8.0]


def test_a_day_before_every_price_is_refused_and_the_hint_is_the_first_that_is_not() -> None:
    with pytest.raises(InvalidInputError) as refused:
        check_priced(CATALOG, date(1990, 1, 1))
    first = date.fromisoformat(refused.value.hint.split()[-1])
    check_priced(CATALOG, first)
    assert any(o.priced_on and o.priced_on <= first for o in known_on(CATALOG, first).offers)
    with pytest.raises(InvalidInputError):
        check_priced(CATALOG, first - timedelta(days=1))
