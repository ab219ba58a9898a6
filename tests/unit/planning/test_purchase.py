from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from damage import with_text_inside
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.catalog.filters import OfferFilter, filter_offers
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device, parse_device_count
from paceline.errors import InvalidInputError, MissingFactError, PacelineError, UnknownNameError
from paceline.planning.decisions.device_purchase import purchase_of_devices
from paceline.planning.decisions.purchase import judge_purchase, read_purchases, restated
from paceline.planning.places.ownership import ownership_facts

CATALOG = load_catalog()
FILE = Path(__file__).parents[3] / "examples/scenarios/purchases.toml"
LAB, BURST = read_purchases(FILE).values()


def test_each_purchase_gets_the_answer_its_writer_expects() -> None:
    for purchase in (LAB, BURST):
        answer = judge_purchase(purchase, CATALOG)
        assert answer.result.cheaper == purchase.answer
        assert answer.text.lower().startswith("buy" if purchase.answer == "own" else "rent")


def test_a_lab_breaks_even_within_two_years_and_a_burst_not_within_it() -> None:
    lab, burst = (judge_purchase(p, CATALOG).result for p in (LAB, BURST))
    assert 6 < lab.break_even_months < 24
    assert burst.break_even_months > 4 * BURST.months
    assert burst.break_even_utilisation_frac is None


def test_every_figure_is_traced() -> None:
    figures = judge_purchase(LAB, CATALOG).figures
    assert {f.origin for f in figures} <= {"source", "assumption"}
    assert all(f.source for f in figures)
    assert {"utilisation", "horizon", "rent per busy hour"} <= {f.name for f in figures}


def test_the_price_paid_replaces_the_listed_one() -> None:
    dear = judge_purchase(replace(LAB, price_usd=1e6), CATALOG).result
    assert dear.cheaper == "rent"


@pytest.mark.parametrize("purchase", [LAB, BURST], ids=["lab", "burst"])
@pytest.mark.parametrize(
    ("field", "number", "varied"),
    [("price_usd", 2800.0, "price_usd"), ("usd_per_kwh", 0.5, "usd_per_kwh"),
     ("power_overhead", 1.9, "pue")],
)  # fmt: skip
def test_what_the_buyer_states_counts_and_is_not_varied(purchase, field, number, varied) -> None:
    stated = judge_purchase(replace(purchase, **{field: number}), CATALOG)
    assert varied not in {one.name for one in stated.result.sensitivity}
    assert any(f.number == number and f.source == "stated by the buyer" for f in stated.figures)
    dearer = judge_purchase(replace(purchase, **{field: 2.0 * number}), CATALOG).result
    assert dearer.own_usd > stated.result.own_usd


@pytest.mark.parametrize(
    "change", [{"price_usd": -1.0}, {"usd_per_kwh": float("nan")}, {"power_overhead": 0.5}]
)
def test_a_price_or_overhead_that_makes_no_sense_is_refused(change) -> None:
    with pytest.raises(InvalidInputError):
        restated(LAB, change)


def test_rows_and_offers_that_do_not_exist_are_errors() -> None:
    for change in ({"system": "abacus"}, {"rent_offer": "nowhere/x"}, {"pue": "none"}):
        with pytest.raises(UnknownNameError):
            judge_purchase(replace(LAB, **change), CATALOG)
    unpriced = next(o for o in CATALOG.offers if o.usd_per_hour is None)
    with pytest.raises(MissingFactError):
        judge_purchase(replace(LAB, rent_offer=unpriced.name), CATALOG)


@pytest.mark.parametrize(
    "text",
    ["x = 1", "[a]", "[a]\ntitle = 1", "[", "[a]\nmonths = nan", "[a]\nsurprise = 2"],
)
def test_bad_files_are_one_message(tmp_path: Path, text: str) -> None:
    path = tmp_path / "buy.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PacelineError):
        read_purchases(path)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(position=st.integers(0, 2000), text=st.text(max_size=6))
def test_a_damaged_file_never_ends_in_a_traceback(tmp_path: Path, position: int, text: str) -> None:
    path = with_text_inside(FILE, position, text, tmp_path)
    try:
        purchases = read_purchases(path)
    except PacelineError:
        return
    for purchase in purchases.values():
        assert purchase.months > 0


def test_figures_are_in_units_that_people_write() -> None:
    for purchase in (LAB, BURST):
        values = [figure.value for figure in judge_purchase(purchase, CATALOG).figures]
        assert [value for value in values if "_" in value or "frac" in value] == []
        assert any(value.endswith(" USD") for value in values)
        assert any(value.endswith(" USD per kWh") for value in values)


@pytest.mark.parametrize("text", ["4090", "4x rtx 4090", "2x RTX 6000 Ada", "rtx a5000:3"])
def test_devices_alone_are_bought_at_their_price_and_rented_where_it_costs_least(text) -> None:
    today = date(2026, 11, 20)
    name, count = parse_device_count(text)
    device = find_device(CATALOG, name)
    purchase = purchase_of_devices(text, CATALOG, today=today)
    assert purchase.price_usd == device.price_usd * count
    assert purchase.busy_power_w > device.tdp_w * count
    answer = judge_purchase(purchase, CATALOG)
    offers = filter_offers(CATALOG, OfferFilter(device=device.name), today=today)
    each = [o.usd_per_hour * math.ceil(count / o.num_devices) for o in offers if o.num_devices >= 1]
    assert answer.rent_usd_per_hour == min(each)
    assert {"assumed (--utilisation)", "assumed (--months)"} <= {f.source for f in answer.figures}


def test_as_many_machines_are_rented_as_hold_the_devices() -> None:
    today, single = date(2026, 11, 20), "runpod/1x GeForce RTX 4090"
    one, four = (
        judge_purchase(purchase_of_devices(text, CATALOG, today=today, rent=single), CATALOG)
        for text in ("4090", "4x 4090")
    )
    assert four.rent_usd_per_hour == pytest.approx(4 * one.rent_usd_per_hour)


def test_a_module_without_a_slot_is_priced_with_its_server() -> None:
    today = date(2026, 11, 20)
    one, many = (purchase_of_devices(f"{n}x h100 sxm", CATALOG, today=today) for n in (8, 64))
    price = next(fact for fact in ownership_facts() if fact.item == one.system)
    assert (price.category, many.num_systems) == ("system_price", 8)
    costs = [judge_purchase(bought, CATALOG).result.own_usd for bought in (one, many)]
    assert costs[0] > price.value
    assert costs[1] == pytest.approx(8 * costs[0])
    rented = next(offer for offer in CATALOG.offers if offer.name == many.rent_offer)
    assert rented.num_devices >= 8
    stated = purchase_of_devices("8x h100 sxm", CATALOG, today=today, price_usd=4e5)
    assert (stated.system, stated.price_usd) == ("", 4e5)
    assert judge_purchase(stated, CATALOG).result.own_usd > 4e5


def test_a_server_without_a_price_costs_its_boards_and_what_a_known_one_has_beside_them() -> None:
    facts = {fact.item: fact for fact in ownership_facts()}
    known, board = facts["8x H100 node CapEx"], facts["H100 GPU (street)"]
    bought = purchase_of_devices("16x h200", CATALOG, today=date(2026, 11, 20))
    one = facts[bought.system]
    assert one.value - 8 * facts["H200 GPU (street)"].value == known.value - 8 * board.value > 0
    assert judge_purchase(bought, CATALOG).result.own_usd > 2 * one.value
    assert all(name in one.source for name in (known.item, "boards"))


def test_no_server_is_bought_in_part() -> None:
    with pytest.raises(MissingFactError, match="server") as refused:
        purchase_of_devices("4x h100 sxm", CATALOG, today=date(2026, 11, 20))
    assert "8x H100 SXM server" in refused.value.hint


def test_what_is_stated_later_is_the_buyers() -> None:
    purchase = purchase_of_devices("4090", CATALOG, today=date(2026, 11, 20))
    longer = judge_purchase(restated(purchase, {"months": 60.0}), CATALOG)
    by_name = {figure.name: figure for figure in longer.figures}
    assert by_name["horizon"].source == "stated by the buyer"
    assert by_name["utilisation"].source == "assumed (--utilisation)"


@pytest.mark.parametrize("text", ["1x rtx pro 6000 blackwell server", "8x a100 pcie 80gb"])
def test_a_device_is_held_against_the_cheapest_of_its_family_that_holds_as_much(text: str) -> None:
    today = date(2026, 11, 20)
    name, count = parse_device_count(text)
    device = find_device(CATALOG, name)
    offer = next(
        one for one in CATALOG.offers
        if one.name == purchase_of_devices(
            text, CATALOG, today=today, price_usd=1e5
        ).rent_offer
    )  # fmt: skip
    rented = find_device(CATALOG, offer.device_name or "")
    assert rented.family == device.family
    assert (rented.memory_bytes or 0) >= (device.memory_bytes or 0)
    for one in filter_offers(CATALOG, OfferFilter(device=device.name), today=today):
        each = (one.usd_per_hour or math.inf) / one.num_devices
        whole = (offer.usd_per_hour or math.inf) / offer.num_devices
        assert one.num_devices < 1 or whole * count <= math.ceil(count / one.num_devices) * (
            each * one.num_devices
        ) * (1 + 1e-9)


def test_a_reading_of_a_purchase_is_told() -> None:
    bought = purchase_of_devices("2x a100 80gb", CATALOG, today=date(2026, 11, 20), price_usd=1e5)
    assert "PCIe" in bought.title
    assert "others" in bought.title
