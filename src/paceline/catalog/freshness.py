"""Whether an offer may be ranked: priced lately, still sold, and the price whole."""

from __future__ import annotations

from datetime import date

from paceline.catalog.entities import Offer

#: A price older than this says what was, not what is: prices moved by up to 2x within two years.
MAX_PRICE_AGE_DAYS = 365
#: A catalogue whose newest price is older says so first.
OLD_CATALOGUE_DAYS = 92


def is_fresh(offer: Offer, today: date, *, max_age_days: int = MAX_PRICE_AGE_DAYS) -> bool:
    """Whether the on-demand price is dated, and on ``today`` no older than that."""
    if offer.usd_per_hour is None or offer.priced_on is None:
        return False
    return (today - offer.priced_on).days <= max_age_days


def is_alive(offer: Offer, today: date) -> bool:
    """Whether the provider still sells it on ``today``; an announced end of sale counts."""
    has_ended = offer.ends_on is not None and offer.ends_on <= today
    return offer.status == "listed" and not offer.is_retired and not has_ended


def unranked_reason(
    offer: Offer, today: date, *, max_age_days: int = MAX_PRICE_AGE_DAYS
) -> str | None:
    """Why the offer is excluded on ``today``; None where it may be ranked.

    Prices are too old beyond ``max_age_days``.

    >>> from paceline.catalog.load import load_catalog
    >>> from paceline.catalog.lookup import find_offer
    >>> unranked_reason(find_offer(load_catalog(), "p2.xlarge"), date(2026, 11, 20))
    'no longer sold'
    """
    if offer.usd_per_hour is None:
        is_later = offer.priced_on is not None and offer.priced_on > today
        return f"no price known before {offer.priced_on}" if is_later else "no price known"
    if not is_alive(offer, today):
        return _end_reason(offer)
    if offer.priced_on is None:
        return "price without a date"
    if not is_fresh(offer, today, max_age_days=max_age_days):
        return f"price {_price_age_months(offer, today)} months old"
    return None if offer.is_price_complete else "price leaves out a part of the machine"


def _price_age_months(offer: Offer, today: date) -> int | None:
    """Whole months since the on-demand price was seen; None where it is undated."""
    if offer.priced_on is None:
        return None
    return int((today - offer.priced_on).days / (MAX_PRICE_AGE_DAYS / 12))


def _end_reason(offer: Offer) -> str:
    if offer.ends_on is not None:
        return f"sale ended {offer.ends_on.isoformat()}"
    if offer.status == "unknown":
        return "not known to be still sold"
    return "no longer sold"
