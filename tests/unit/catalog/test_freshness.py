from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from paceline.catalog.freshness import is_alive, is_fresh, unranked_reason
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_offer

TODAY = date(2026, 11, 20)
CATALOG = load_catalog()
GOOD = find_offer(CATALOG, "aws/p4d.24xlarge")


def test_a_price_is_fresh_for_twelve_months() -> None:
    assert is_fresh(GOOD, GOOD.priced_on + timedelta(days=365))
    assert not is_fresh(GOOD, GOOD.priced_on + timedelta(days=366))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"usd_per_hour": None, "priced_on": None}, "no price known"),
        ({"usd_per_hour": None, "priced_on": TODAY}, "no price known"),
        ({"usd_per_hour": None, "priced_on": date(2027, 1, 1)}, "no price known before 2027-01-01"),
        ({"priced_on": None}, "price without a date"),
        ({"priced_on": date(2025, 1, 1)}, "price 22 months old"),
        ({"status": "unknown"}, "not known to be still sold"),
        ({"status": "retired", "is_retired": True}, "no longer sold"),
        ({"ends_on": date(2026, 9, 30)}, "sale ended 2026-09-30"),
        ({"is_price_complete": False}, "price leaves out a part of the machine"),
    ],
)
def test_reasons_below_the_line(change: dict[str, object], reason: str) -> None:
    assert unranked_reason(GOOD, TODAY) is None
    assert unranked_reason(replace(GOOD, **change), TODAY) == reason


def test_an_announced_end_in_the_future_still_sells() -> None:
    assert is_alive(replace(GOOD, ends_on=TODAY + timedelta(days=1)), TODAY)


def test_old_and_undated_rows_are_never_ranked() -> None:
    """Of the 441 priced rows first imported, 197 are older than a year or undated that day."""
    priced = [o for o in CATALOG.offers if o.usd_per_hour is not None]
    assert sum(not is_fresh(o, TODAY) for o in priced) >= 197
    assert all(is_fresh(o, TODAY) for o in CATALOG.offers if unranked_reason(o, TODAY) is None)


def test_retired_types_that_price_lists_still_carry_are_not_alive() -> None:
    for name in ("aws/p2.xlarge", "azure/Standard_NC6s_v3", "azure/Standard_NV12s_v3"):
        assert not is_alive(find_offer(CATALOG, name), TODAY)


def test_the_cheapest_h100_is_stale() -> None:
    h100 = [o for o in CATALOG.offers if "H100" in o.accelerator and o.usd_per_hour]
    cheapest = min(h100, key=lambda o: o.usd_per_hour / o.num_devices)
    assert unranked_reason(cheapest, TODAY)
