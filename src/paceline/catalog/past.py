"""The catalogue as it was on an earlier day: no price that was seen only later."""

from __future__ import annotations

import calendar
from dataclasses import replace
from datetime import date

from paceline.catalog.entities import Catalog, Offer
from paceline.errors import InvalidInputError


def known_on(catalog: Catalog, day: date) -> Catalog:
    """The catalogue with each offer at the price that was known on ``day``.

    A price seen later gives way to the last one seen until then, of the offer's history; where
    there was none, the offer has no price, and its ``priced_on`` says from when on it has one.
    """
    offers = tuple(_known_on(offer, day) for offer in catalog.offers)
    return catalog if offers == catalog.offers else replace(catalog, offers=offers)


def check_priced(catalog: Catalog, day: date) -> None:
    """Refuse a day on which nothing had a price yet: prices without a day would be all there is.

    Raises:
        InvalidInputError: It is before the first day on which any price was seen.
    """
    first = _first_day(catalog)
    if first is not None and day < first:
        raise InvalidInputError(
            f"no price is known that was seen by {day}", hint=f"the first is of {first}"
        )


def _first_day(catalog: Catalog) -> date | None:
    """The day of the first price; None where no price has a day."""
    seen = [_last_day(when) for offer in catalog.offers for when, _ in offer.price_history]
    seen += [offer.priced_on for offer in catalog.offers if offer.priced_on is not None]
    return min(seen, default=None)


def _known_on(offer: Offer, day: date) -> Offer:
    if offer.spot_on is not None and offer.spot_on > day:
        offer = replace(offer, spot_usd_per_hour=None)
    if offer.priced_on is None or offer.priced_on <= day:
        return offer
    seen = [(_last_day(when), usd_per_hour) for when, usd_per_hour in offer.price_history]
    before = [price for price in seen if price[0] <= day]
    priced_on, usd_per_hour = max(before, default=(offer.priced_on, None))
    return replace(
        offer, usd_per_hour=usd_per_hour, priced_on=priced_on,
        lowest_usd_per_hour=None, lowest_region="",
    )  # fmt: skip


def _last_day(when: str) -> date:
    """The day, or the last one of a month or year, by when its price was surely seen.

    >>> _last_day("2024-02"), _last_day("2023")
    (datetime.date(2024, 2, 29), datetime.date(2023, 12, 31))
    """
    year, month, day = (*(int(part) for part in when.split("-")), 0, 0)[:3]
    month = month or 12
    return date(year, month, day or calendar.monthrange(year, month)[1])
