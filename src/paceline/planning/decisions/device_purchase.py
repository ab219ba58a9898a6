"""A purchase that is named by its devices alone, filled in from the catalogue."""

from __future__ import annotations

import math
import re
from datetime import date

from paceline.catalog.entities import Catalog, Device, Offer
from paceline.catalog.filters import OfferFilter, filter_offers
from paceline.catalog.lookup import find_device, find_offer, parse_device_count, variant_note
from paceline.errors import MissingFactError
from paceline.planning.decisions.purchase import Purchase
from paceline.planning.places.own_machines import ELECTRICITY_REGION, is_part, machine_power_w
from paceline.planning.places.ownership import OwnershipFact, ownership_facts
from paceline.units import format_usd

_MONTHS = 36
_UTILISATION_FRAC = 0.5
#: Forms of devices that no machine at hand takes.
_SERVER_FORMS = ("SXM", "OAM", "SH5", "socket", "superchip")
#: Devices of a system, their model, and their memory where a row of prices says it.
_SYSTEM = re.compile(r"(\d+)x ([A-Z]+\d+\w*)(?: (\d+)GB)?")


def purchase_of_devices(
    text: str,
    catalog: Catalog,
    *,
    today: date,
    price_usd: float | None = None,
    rent: str | None = None,
) -> Purchase:
    """Devices bought at their known price into a machine at hand, against the cheapest rent.

    Args:
        text: Device and count, such as ``4x rtx 4090``.
        catalog: Facts.
        today: Day on which prices are judged.
        price_usd: Price of all of it, where the buyer knows it.
        rent: Offer to rent instead of the cheapest, as many of it as hold so many devices.

    Returns:
        Half of all hours over three years, which the purchase names as assumptions. Modules without
        a slot are priced as the whole servers that hold them, against machines that hold as many.

    Raises:
        UnknownNameError: No such device.
        MissingFactError: Its price, its power or an offer with it is not known.
    """
    name, count = parse_device_count(text)
    device = find_device(catalog, name)
    server = _server(device, count)
    num_servers = count // _devices_of(server.item) if server else 1
    offers = [find_offer(catalog, rent)] if rent else _offers(catalog, device, today)
    if server and not rent:
        offers = [one for one in offers if one.num_devices >= count // num_servers] or offers
    offer, machines = _cheapest(offers, count)
    power_w = machine_power_w(device, count)
    if power_w is None:
        raise MissingFactError(
            f"the rated power of {device.name} is not known", hint="state it in a purchase file"
        )
    if price_usd is not None:
        server = None
    elif server is None:
        price_usd = _price_usd(device, count)
    return Purchase(
        title=f"{count}×{device.name}{_reading(catalog, name, device)}",
        price_usd=price_usd,
        system=server.item if server else "",
        num_systems=num_servers,
        busy_power_w=power_w,
        utilisation_frac=_UTILISATION_FRAC,
        months=_MONTHS,
        rent_offer=offer.name,
        rented_machines=machines,
        electricity_region=ELECTRICITY_REGION,
        sources={
            "price_usd": _price_source(device, count),
            "busy_power_w": "rated power of the devices, and of a machine around them",
            "idle_power_w": "assumed: it is off while it waits",
            "utilisation_frac": "assumed (--utilisation)",
            "months": "assumed (--months)",
        },
    )


def _reading(catalog: Catalog, name: str, device: Device) -> str:
    note = variant_note(catalog, name, device)
    return f" (assumed: {note})" if note else ""


def _server(device: Device, count: int) -> OwnershipFact | None:
    """The newest price of whole servers with so many devices; None where there is none."""
    if not device.form_factor.startswith(_SERVER_FORMS):
        return None
    found = [
        fact
        for fact in ownership_facts()
        if fact.category == "system_price" and fact.unit == "usd" and fact.dated
        if _is_of(fact.item, device) and count % _devices_of(fact.item) == 0
    ]
    return max(found, key=lambda fact: fact.dated or date.min, default=None)


def _is_of(item: str, device: Device) -> bool:
    """Whether a system's devices are of that model, and of that memory where it is said."""
    found = _SYSTEM.search(item)
    if found is None or found[2] != device.name.split()[0]:
        return False
    return found[3] is None or f"{found[3]}GB" in device.name.split()


def _devices_of(item: str) -> int:
    found = _SYSTEM.search(item)
    return int(found[1]) if found else 1


def _price_usd(device: Device, count: int) -> float:
    if device.form_factor.startswith(_SERVER_FORMS):
        raise MissingFactError(
            f"{device.name} needs a server that is built for it, and the price of one with "
            f"{count} of them is not known",
            hint=f"state the price of all of it with --price{_known_systems(device)}",
        )
    if device.price_usd is None:
        raise MissingFactError(
            f"the catalogue has no price of {device.name} to buy",
            hint=f"state the price of all {count} with `--price 30000usd`{_known_systems(device)}",
        )
    return device.price_usd * count


def _known_systems(device: Device) -> str:
    model = device.name.split()[0]
    rows = [fact for fact in ownership_facts() if fact.category == "system_price"]
    found = [
        f"{fact.item}: {format_usd(fact.value)} USD"
        for fact in rows
        if fact.unit == "usd" and model in fact.item
    ]
    return f" ({'; '.join(found)})" if found else ""


def _price_source(device: Device, count: int) -> str:
    day = f"{device.price_on:%Y-%m}" if device.price_on else "undated"
    each = format_usd(device.price_usd or 0.0)
    return f"{count} × {each} USD ({day}), into a machine at hand (--price states all of it)"


def _offers(catalog: Catalog, device: Device, today: date) -> list[Offer]:
    """Of the device, and of others of its family that hold as much: they would do its work."""
    names = [
        one.name for one in catalog.devices
        if one.family == device.family and (one.memory_bytes or 0) >= (device.memory_bytes or 0)
    ]  # fmt: skip
    found = [
        offer
        for name in names
        for offer in filter_offers(catalog, OfferFilter(device=name), today=today)
        if not is_part(offer)
    ]
    if not found:
        raise MissingFactError(
            f"no offer with {device.name} has a price of the last twelve months",
            hint="name what you would rent instead with --rent",
        )
    return found


def _cheapest(offers: list[Offer], count: int) -> tuple[Offer, int]:
    """The offer, and how many of it, that hold so many devices for the least money."""
    counted = ((offer, math.ceil(count / max(offer.num_devices, 1.0))) for offer in offers)
    return min(counted, key=lambda one: ((one[0].usd_per_hour or math.inf) * one[1], one[1]))
