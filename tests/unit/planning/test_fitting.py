from __future__ import annotations

from dataclasses import replace

from paceline.catalog.entities import Machine
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.planning.places.fitting import fitted_cards, why_card_does_not_fit

CATALOG = load_catalog()
DESKTOP = Machine(
    name="desktop",
    device_name=None,
    num_devices=0,
    power_supply_w=650,
    num_free_slots=1,
    has_airflow_for_passive=False,
)


def reasons(name: str, machine: Machine = DESKTOP, num_cards: int = 1) -> str:
    device = find_device(CATALOG, name)
    return " ".join(why_card_does_not_fit(CATALOG, machine, device, num_cards))


def test_each_reason_is_told() -> None:
    assert "supply" in reasons("rtx 4090")
    assert "double slots" in reasons("rtx 4090")
    assert "airflow" in reasons("a10")
    assert "no PCIe card" in reasons("h100")
    assert reasons("rtx 4060") == ""


def test_cards_already_inside_draw_power_too() -> None:
    full = replace(DESKTOP, device_name="GeForce RTX 3090", num_devices=1, num_free_slots=2)
    assert reasons("rtx 4060") == ""
    assert "supply" in reasons("rtx 4060", full)


def test_unknown_facts_forbid_nothing() -> None:
    assert reasons("rtx 4090", Machine(name="box", device_name=None, num_devices=0)) == ""


def test_a_bigger_supply_never_excludes_a_card() -> None:
    small = {c.device.name for c in fitted_cards(CATALOG, DESKTOP)}
    large = {c.device.name for c in fitted_cards(CATALOG, replace(DESKTOP, power_supply_w=1600))}
    assert small < large
    assert "GeForce RTX 4060" in small


def test_cards_asked_about_are_judged_whether_they_fit_or_not() -> None:
    asked = [find_device(CATALOG, name) for name in ("rtx 4090", "rtx 4060")]
    judged = fitted_cards(CATALOG, DESKTOP, asked)
    assert [card.device for card in judged] == asked
    assert judged[0].reasons
    assert not judged[1].reasons
