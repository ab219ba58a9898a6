"""Which offers can run a job, and why the others cannot."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from paceline.catalog.entities import Machine
from paceline.catalog.freshness import unranked_reason
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_offer
from paceline.errors import NoOfferError, UnknownNameError
from paceline.model.reading.load import load_workload
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.own_machines import offered_device, owned_offers
from paceline.planning.places.places import find_places, matches
from paceline.planning.planner import make_plan

TODAY = date(2026, 11, 20)
CATALOG = load_catalog()
DEVICES = {device.name: device for device in CATALOG.devices}


def found(catalog=CATALOG, **goal):
    return find_places(catalog, Goal(**goal), today=TODAY)


def test_every_offer_is_a_place_or_a_rejection():
    search = found()
    names = {place.offer.name for place in search.places}
    rejected = {rejection.offer.name for rejection in search.rejections}
    assert names | rejected == {offer.name for offer in CATALOG.offers}
    assert not names & rejected


def test_only_fresh_living_whole_prices_are_ranked():
    for place in found().places:
        assert (place.price_state == "fresh") == (unranked_reason(place.offer, TODAY) is None)
        assert place.price_remark or place.price_state == "fresh"


def test_no_place_has_a_price_that_was_seen_after_the_day():
    for day in (date(2023, 8, 9), date(2025, 7, 1)):
        for place in find_places(CATALOG, Goal(allow_spot=True), today=day).places:
            later = place.usd_per_hour is not None and place.priced_on and place.priced_on > day
            assert not later


def test_a_day_before_every_price_says_when_the_first_was_seen():
    with pytest.raises(NoOfferError, match="has a price by 2020-01-01: the first was seen on"):
        make_plan(
            load_workload("mnist-cnn"), Goal(devices=("A100",), max_devices=1), Work(), CATALOG,
            today=date(2020, 1, 1),
        )  # fmt: skip


def test_a_rejection_says_why():
    for rejection in found().rejections:
        assert rejection.kind
        assert rejection.reason


@pytest.mark.parametrize(
    ("goal", "holds"),
    [
        ({"vendors": ("amd",)}, lambda p: p.device.vendor == "AMD"),
        ({"clouds": ("AWS", "gcp")}, lambda p: p.offer.cloud in ("aws", "gcp")),
        ({"regions": ("us",)}, lambda p: "us" in p.offer.region.lower()),
        ({"device_classes": ("consumer",)}, lambda p: p.device.device_class == "consumer"),
        ({"devices": ("a100",)}, lambda p: p.device.family.startswith("A100")),
        ({"in_datacenter": True}, lambda p: p.device.device_class != "consumer"),
        ({"max_devices": 2}, lambda p: p.offer.num_devices <= 2),
    ],
)
def test_a_filter_leaves_what_it_says(goal, holds):
    places = found(**goal).places
    assert places
    assert all(holds(place) for place in places)


def test_spot_prices_compete_only_if_asked():
    assert not any(place.is_spot for place in found().places)
    spot = [place for place in found(allow_spot=True).places if place.is_spot]
    assert spot
    assert all(p.usd_per_hour == p.offer.spot_usd_per_hour for p in spot)


def test_a_pinned_offer_stands_alone_and_an_unknown_one_is_named():
    places = found(pins={"offer": "lambda/gpu_1x_a10"}).places
    assert {place.offer.name for place in places} == {"lambda/gpu_1x_a10"}
    with pytest.raises(UnknownNameError) as caught:
        found(pins={"offer": "lambda/gpu_1x_a11"})
    assert "lambda/gpu_1x_a10" in caught.value.hint


def test_an_offer_answers_to_its_key_its_type_and_its_device():
    offer = find_offer(CATALOG, "lambda/gpu_1x_a10")
    for name in ("lambda/gpu_1x_a10", "gpu_1x_a10", "A10"):
        assert matches(offer, name)
    assert not matches(offer, "gpu_1x_a100")


def test_an_owned_machine_costs_its_electricity_and_needs_no_date():
    machine = Machine(name="mine", device_name="GeForce RTX 3090", num_devices=2, num_cores=8)
    mine = replace(CATALOG, machines=(machine,))
    place, half = [place for place in found(mine).places if place.is_owned]
    assert (half.num_idle, half.usd_per_hour < place.usd_per_hour) == (1, True)
    assert place.priced_on is None
    assert 0.05 < place.usd_per_hour < 0.5
    more = replace(machine, num_devices=4)
    dearer, *_ = owned_offers(replace(CATALOG, machines=(more,)), today=TODAY)
    assert dearer.offer.usd_per_hour > place.usd_per_hour


def test_an_owned_machine_does_not_hide_that_every_rented_price_is_old():
    machine = Machine(name="mine", device_name="GeForce RTX 3090", num_devices=1)
    later = find_places(replace(CATALOG, machines=(machine,)), Goal(), today=date(2030, 1, 1))
    assert later.ranks_stale_prices


def test_parts_of_a_device_add_up_to_it():
    whole = DEVICES["A10"]
    offer = find_offer(CATALOG, "lambda/gpu_1x_a10")
    parts = [offered_device(whole, replace(offer, num_devices=f)) for f in (0.25, 0.75)]
    assert sum(p.memory_bytes for p in parts) == pytest.approx(whole.memory_bytes)
    assert sum(p.memory_bytes_per_s for p in parts) == pytest.approx(whole.memory_bytes_per_s)
    assert sum(p.peak_flop_per_s["bf16"] for p in parts) == pytest.approx(
        whole.peak_flop_per_s["bf16"]
    )
    assert offered_device(whole, replace(offer, num_devices=2)) is whole
