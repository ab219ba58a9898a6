"""Which card an owned machine can take: power supply, slots, airflow, form."""

from __future__ import annotations

import re
from functools import lru_cache

from paceline.catalog.entities import Catalog, Device, Machine
from paceline.catalog.tables import read_rows

#: Share of its rating at which a power supply may run for long.
SUSTAINED_SUPPLY_FRAC = 0.8

_DOUBLE_SLOTS = (("triple", 2), ("dual", 1), ("single", 1), ("low-profile", 1))


def why_card_does_not_fit(
    catalog: Catalog, machine: Machine, device: Device, num_cards: int = 1
) -> tuple[str, ...]:
    """Every reason why ``machine`` cannot take the cards; empty where nothing known forbids it.

    Args:
        catalog: Where the devices already inside are looked up.
        machine: What is owned; facts it leaves unknown forbid nothing.
        device: The card.
        num_cards: How many of it.
    """
    if not device.form_factor.lower().startswith("pcie"):
        form = device.form_factor or "unknown"
        return (f"{device.name} is no PCIe card (form factor {form})",)
    checks = (
        _power_reason(catalog, machine, device, num_cards),
        _slot_reason(machine, device, num_cards),
        _airflow_reason(machine, device),
    )
    return tuple(reason for reason in checks if reason)


def cards_that_fit(catalog: Catalog, machine: Machine, num_cards: int = 1) -> tuple[Device, ...]:
    """Cards of the catalogue that nothing known keeps out of ``machine``, in catalogue order."""
    return tuple(
        device
        for device in catalog.devices
        if device.kind == "gpu" and not why_card_does_not_fit(catalog, machine, device, num_cards)
    )


def _power_reason(catalog: Catalog, machine: Machine, device: Device, num_cards: int) -> str | None:
    if machine.power_supply_w is None or device.tdp_w is None:
        return None
    inside = [d for d in catalog.devices if d.name == machine.device_name]
    inside_w = machine.num_devices * ((inside[0].tdp_w or 0.0) if inside else 0.0)
    needed_w = _host_power_w() + inside_w + num_cards * device.tdp_w
    available_w = SUSTAINED_SUPPLY_FRAC * machine.power_supply_w
    if needed_w <= available_w:
        return None
    return (
        f"{machine.name} needs {needed_w:.0f} W with {num_cards} x {device.name}; its "
        f"{machine.power_supply_w:.0f} W supply sustains {available_w:.0f} W"
    )


def _slot_reason(machine: Machine, device: Device, num_cards: int) -> str | None:
    if machine.num_free_slots is None:
        return None
    needed = num_cards * next((n for word, n in _DOUBLE_SLOTS if word in device.form_factor), 1)
    if needed <= machine.num_free_slots:
        return None
    return f"{num_cards} x {device.name} takes {needed} double slots, {machine.num_free_slots} free"


def _airflow_reason(machine: Machine, device: Device) -> str | None:
    is_passive = re.fullmatch(r"passive(/liquid)?", device.cooling) is not None
    if not is_passive or machine.has_airflow_for_passive is not False:
        return None
    return f"{device.name} is cooled by the airflow of a server, which {machine.name} has not"


@lru_cache(maxsize=1)
def _host_power_w() -> float:
    rows = (r for r in read_rows("machine_assumptions.csv") if r["name"] == "host_power_w")
    return float(next(rows)["value"])
