"""Which card an owned machine can take: power supply, slots, airflow, form."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paceline.catalog.entities import Catalog, Device, Machine
from paceline.planning.places.own_machines import host_power_w
from paceline.values import dataclass

#: Share of its rating at which a power supply may run for long.
SUSTAINED_SUPPLY_FRAC = 0.8

#: Classes of what is sold as a card.
_CARDS = ("consumer", "workstation", "datacenter")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCard:
    """A card, and what keeps it out of a machine.

    Attributes:
        reasons: Why it cannot be taken; empty where nothing known forbids it.
    """

    device: Device
    reasons: tuple[str, ...]


def fitted_cards(
    catalog: Catalog, machine: Machine, asked: Sequence[Device] = (), *, num_cards: int = 1
) -> tuple[FittedCard, ...]:
    """The cards asked about with their reasons; if none is, every card that fits, fastest first.

    Args:
        catalog: Cards to choose from.
        machine: What is owned.
        asked: Cards to judge, fitting or not.
        num_cards: How many of each.
    """
    devices = asked or [d for d in catalog.devices if d.kind == "gpu" and d.device_class in _CARDS]
    judged = [
        FittedCard(device=d, reasons=why_card_does_not_fit(catalog, machine, d, num_cards))
        for d in devices
    ]
    if asked:
        return tuple(judged)
    fitting = [card for card in judged if not card.reasons]
    return tuple(sorted(fitting, key=lambda card: -_speed(card.device)))


def _speed(device: Device) -> float:
    """Best half-precision peak, to order cards by."""
    peaks = device.peak_flop_per_s
    return max((peaks.get(key, 0.0) for key in ("bf16", "fp16", "fp32")), default=0.0)


def _power_reason(catalog: Catalog, machine: Machine, device: Device, num_cards: int) -> str | None:
    if machine.power_supply_w is None or device.tdp_w is None:
        return None
    inside = [d for d in catalog.devices if d.name == machine.device_name]
    inside_w = machine.num_devices * ((inside[0].tdp_w or 0.0) if inside else 0.0)
    needed_w = host_power_w() + inside_w + num_cards * device.tdp_w
    available_w = SUSTAINED_SUPPLY_FRAC * machine.power_supply_w
    if needed_w <= available_w:
        return None
    return (
        f"{machine.name} needs {needed_w:,.0f} W with {num_cards} × {device.name}; its "
        f"{machine.power_supply_w:,.0f} W supply sustains {available_w:,.0f} W"
    )


def _slot_reason(machine: Machine, device: Device, num_cards: int) -> str | None:
    if machine.num_free_slots is None:
        return None
    needed = num_cards * next((n for word, n in _DOUBLE_SLOTS if word in device.form_factor), 1)
    if needed <= machine.num_free_slots:
        return None
    slots = "1 double slot" if needed == 1 else f"{needed} double slots"
    return f"{num_cards} × {device.name} takes {slots}, {machine.num_free_slots} free"


def _airflow_reason(machine: Machine, device: Device) -> str | None:
    is_passive = re.fullmatch(r"passive(/liquid)?", device.cooling) is not None
    if not is_passive or machine.has_airflow_for_passive is not False:
        return None
    return f"{device.name} is cooled by the airflow of a server, which {machine.name} has not"
