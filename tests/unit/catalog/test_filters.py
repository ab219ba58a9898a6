from __future__ import annotations

from datetime import date

import pytest

from paceline.catalog.filters import DeviceFilter, OfferFilter, filter_devices, filter_offers
from paceline.catalog.freshness import is_alive, is_fresh
from paceline.catalog.load import load_catalog
from paceline.errors import UnknownNameError

TODAY = date(2026, 11, 20)
CATALOG = load_catalog()


def test_no_condition_keeps_every_device() -> None:
    assert filter_devices(CATALOG, DeviceFilter()) == CATALOG.devices


def test_conditions_on_devices_all_hold() -> None:
    found = filter_devices(
        CATALOG,
        DeviceFilter(
            vendor="nvidia", device_class="datacenter", min_memory_bytes=80e9, name="h100"
        ),
    )
    assert {d.family for d in found} == {"H100"}


def test_unknown_power_does_not_pass_a_power_limit() -> None:
    found = filter_devices(CATALOG, DeviceFilter(max_tdp_w=30))
    assert found
    assert all(d.tdp_w is not None and d.tdp_w <= 30 for d in found)


def test_offers_are_fresh_and_alive_unless_asked_and_cheapest_first() -> None:
    found = filter_offers(CATALOG, OfferFilter(), today=TODAY)
    assert found
    assert all(is_fresh(o, TODAY) and is_alive(o, TODAY) for o in found)
    prices = [o.usd_per_hour for o in found]
    assert prices == sorted(prices)
    everything = OfferFilter(include_retired=True, include_stale=True)
    assert len(filter_offers(CATALOG, everything, today=TODAY)) == len(CATALOG.offers)


def test_offers_of_a_family_in_a_cloud_under_a_price() -> None:
    wanted = OfferFilter(device="a100", cloud="Lambda", max_usd_per_hour=4.0)
    found = filter_offers(CATALOG, wanted, today=TODAY)
    assert found
    assert all(o.cloud == "lambda" and "A100" in o.device_name for o in found)
    assert all(o.usd_per_hour <= 4.0 for o in found)


def test_spot_filter_sorts_by_the_spot_price() -> None:
    found = filter_offers(CATALOG, OfferFilter(is_spot=True, cloud="aws"), today=TODAY)
    prices = [o.spot_usd_per_hour for o in found]
    assert prices
    assert prices == sorted(prices)


def test_an_unknown_device_is_an_error_not_an_empty_list() -> None:
    with pytest.raises(UnknownNameError):
        filter_offers(CATALOG, OfferFilter(device="h1000"), today=TODAY)
