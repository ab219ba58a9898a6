"""Tables of the catalogue say when a price was seen."""

from __future__ import annotations

from paceline.catalog import load_catalog
from paceline.report.catalogs import device_page, offer_table


def test_the_price_of_a_spot_machine_has_a_day_of_its_own() -> None:
    offers = [
        offer
        for offer in load_catalog().offers
        if offer.spot_on is not None and offer.spot_on != offer.priced_on
    ]
    assert offers
    table = offer_table(offers)
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
