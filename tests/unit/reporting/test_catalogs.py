"""Tables of the catalogue say when a price was seen."""

from __future__ import annotations

import re
from datetime import date

from paceline.catalog.freshness import unranked_reason
from paceline.catalog.load import load_catalog
from paceline.reporting.screens.catalogs import (
    device_page,
    device_table,
    left_out_text,
    offer_table,
)

TODAY = date(2026, 11, 20)


def test_the_price_of_a_spot_machine_has_a_day_of_its_own() -> None:
    offers = [
        offer
        for offer in load_catalog().offers
        if offer.spot_on is not None and offer.spot_on != offer.priced_on
    ]
    assert offers
    table = offer_table(offers, TODAY)
    titles = [column.title for column in table.columns]
    for offer, cells in zip(offers, table.rows, strict=True):
        row = dict(zip(titles, cells, strict=True))
        assert row["spot on"] == str(offer.spot_on)
        assert row["priced on"] == str(offer.priced_on or "–")


def test_a_price_without_a_day_says_so() -> None:
    for device in load_catalog().devices:
        if device.price_usd is not None:
            price = next(line for line in device_page(device).splitlines() if "  price" in line)
            assert (f"{device.price_on:%Y-%m}" if device.price_on else "unknown day") in price


def test_a_list_of_devices_shows_no_price_without_its_month() -> None:
    devices = load_catalog().devices
    table = device_table(devices)
    index = [column.title for column in table.columns].index("USD (seen)")
    for device, cells in zip(devices, table.rows, strict=True):
        if device.price_usd is None:
            assert cells[index] == "–"
        else:
            month = f"{device.price_on:%Y-%m}" if device.price_on else "no day"
            assert cells[index] == f"{device.price_usd:,.0f} ({month})"


def test_an_offer_that_no_plan_ranks_says_why_where_it_is_listed() -> None:
    offers = load_catalog().offers
    table = offer_table(offers, TODAY)
    titles = [column.title for column in table.columns]
    for offer, cells in zip(offers, table.rows, strict=True):
        row = dict(zip(titles, cells, strict=True))
        assert row["not ranked"] == (unranked_reason(offer, TODAY) or "")
        if offer.usd_per_hour is None:
            assert (row["USD/h"], row["not ranked"]) == ("–", "no price known")
        elif offer.priced_on is None:
            assert row["priced on"] == "unknown"
            assert row["not ranked"]


def test_every_offer_that_is_not_listed_is_counted_with_its_reason() -> None:
    hidden = [offer for offer in load_catalog().offers if unranked_reason(offer, TODAY)]
    text = left_out_text(hidden, TODAY)
    counts = [int(count.replace(",", "")) for count in re.findall(r"([\d,]+) [a-z]", text)]
    assert sum(counts) == len(hidden) > 200
    assert "113" in left_out_text([o for o in hidden if o.cloud == "alibaba"], TODAY)
