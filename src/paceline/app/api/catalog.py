"""The public functions that list what exists: models, devices, offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

from paceline.app.options import check_above_zero
from paceline.app.requests.words import read_day, read_word
from paceline.errors import InvalidInputError

if TYPE_CHECKING:
    from paceline.catalog.entities import Device, Offer
    from paceline.model.names.registry import KnownModel
    from paceline.model.names.zoo_facts import ZooFacts

Known = TypeVar("Known")


def models(*words: str) -> dict[str, ZooFacts] | tuple[KnownModel, ...]:
    """The models that need no framework, by name, with their reference jobs.

    Args:
        *words: Any parts of a name: every model then whose name holds them, with its size.

    Raises:
        UnknownNameError: No name holds them.

    >>> models("resnet", "152")[0].name
    'resnet152'
    """
    from paceline.model.names.registry import known_models
    from paceline.model.names.zoo_facts import zoo_facts

    return known_models(" ".join(words)) if words else zoo_facts()


def devices(
    name: str | None = None,
    *,
    vendor: str | None = None,
    architecture: str | None = None,
    kind: str | None = None,
    device_class: str | None = None,
    min_memory: str | None = None,
    max_power: str | None = None,
    facts: Sequence[Path] = (),
) -> tuple[Device, ...]:
    """Devices of the catalogue that meet every condition.

    Args:
        name: A device, a family, a vendor, or a part of a name.
        vendor: Such as ``AMD``.
        architecture: Such as ``Ampere``.
        kind: ``gpu``, ``tpu``, ``npu`` or ``cpu``.
        device_class: ``datacenter``, ``consumer``, ``workstation``, ``laptop``, ``edge``, ``cpu``.
        min_memory: At least, such as ``24GB``.
        max_power: At most, such as ``300W``.
        facts: Files with your own devices.

    Raises:
        UnknownNameError: Nothing has that name, or no device meets the conditions.
    """
    from paceline.catalog.entities import DeviceClass, DeviceKind
    from paceline.catalog.filters import DeviceFilter, filter_devices
    from paceline.catalog.load import load_catalog
    from paceline.catalog.lookup import devices_called
    from paceline.units import parse_bytes, parse_power_w

    catalog = load_catalog(tuple(facts))
    if name is not None:
        vendors = {device.vendor.lower() for device in catalog.devices}
        is_vendor = name.lower() in vendors
        named = filter_devices(catalog, DeviceFilter(vendor=name)) if is_vendor else None
        catalog = replace(catalog, devices=named or devices_called(catalog, name))
    found = filter_devices(
        catalog,
        DeviceFilter(
            vendor=vendor,
            architecture=architecture,
            kind=_one_of(kind, get_args(DeviceKind), "kind of device"),
            device_class=_one_of(device_class, get_args(DeviceClass), "device class"),
            min_memory_bytes=None if min_memory is None else parse_bytes(min_memory),
            max_tdp_w=None if max_power is None else parse_power_w(max_power),
        ),
    )
    return _not_empty(found, "device", "paceline devices")


def offers(
    device: str | None = None,
    *,
    cloud: str | None = None,
    region: str | None = None,
    min_devices: float | None = None,
    min_memory: str | None = None,
    max_price: str | None = None,
    spot: bool = False,
    every: bool = False,
    as_of: str | date | None = None,
    facts: Sequence[Path] = (),
) -> tuple[Offer, ...]:
    """Offers of the catalogue that meet every condition, cheapest first.

    Args:
        device: A device or a family.
        cloud: Provider.
        region: Region, or its beginning.
        min_devices: At least so many devices in the machine.
        min_memory: Memory of each device at least, such as ``24GB``.
        max_price: Per hour and machine at most, such as ``2usd``.
        spot: Only offers with an interruptible price; the limit applies to that.
        every: Also retired ones, and prices that are missing or older than a year.
        as_of: Day on which prices are judged; today if None.
        facts: Files with your own offers.

    Raises:
        UnknownNameError: No such device.
        InvalidInputError: No offer meets the conditions.
    """
    from paceline.catalog.filters import OfferFilter, filter_offers
    from paceline.catalog.freshness import unranked_reason
    from paceline.catalog.load import load_catalog
    from paceline.units import parse_bytes, parse_usd

    check_above_zero(min_devices=min_devices)
    conditions = OfferFilter(
        cloud=cloud,
        region=region,
        device=device,
        min_devices=min_devices,
        min_device_memory_bytes=None if min_memory is None else parse_bytes(min_memory),
        max_usd_per_hour=None if max_price is None else parse_usd(max_price),
        is_spot=spot,
        include_retired=every,
        include_stale=every,
    )
    catalog = load_catalog(tuple(facts))
    if cloud is not None:
        clouds = {offer.cloud.lower() for offer in catalog.offers}
        read_word(cloud.strip().lower(), tuple(sorted(clouds)), "cloud")
    today = read_day(as_of)
    found = filter_offers(catalog, conditions, today=today)
    if not found and not every:
        wider = replace(conditions, include_retired=True, include_stale=True)
        if hidden := filter_offers(catalog, wider, today=today):
            raise InvalidInputError(
                f"none of {len(hidden):,} offers has a known price of the last year and is known "
                f"to be still sold: {hidden[0].name}: {unranked_reason(hidden[0], today)}",
                hint="see them with --all; your own price of one goes into a file for --facts",
            )
    return _not_empty(found, "offer", "paceline offers --all")


def _one_of(text: str | None, known: tuple[Known, ...], what: str) -> Known | None:
    if text is None:
        return None
    return read_word(text, known, what, command="paceline devices --help")


def _not_empty(found: tuple[Known, ...], what: str, command: str) -> tuple[Known, ...]:
    if not found:
        raise InvalidInputError(
            f"no {what} meets all of these conditions",
            hint=f"loosen one of them, or see all with `{command}`",
        )
    return found
