"""Choosing rows for `paceline devices` and `paceline offers`."""

from __future__ import annotations

from datetime import date

from paceline.catalog.entities import Catalog, Device, DeviceClass, DeviceKind, Offer
from paceline.catalog.freshness import is_alive, is_fresh
from paceline.catalog.lookup import find_devices
from paceline.catalog.past import known_on
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFilter:
    """What a device must be; an empty condition always holds. Text ignores case.

    Attributes:
        name: A device, a family, or a part of either.
        vendor: Such as ``AMD``.
        architecture: Such as ``Ampere``.
        kind: What sort of processor.
        device_class: Where it is meant to live.
        min_memory_bytes: At least so much memory; unknown memory does not pass.
        max_tdp_w: At most so much board power; unknown power does not pass.
    """

    name: str | None = None
    vendor: str | None = None
    architecture: str | None = None
    kind: DeviceKind | None = None
    device_class: DeviceClass | None = None
    min_memory_bytes: float | None = None
    max_tdp_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFilter:
    """What an offer must be; an empty condition always holds. Text ignores case.

    Attributes:
        cloud: Provider.
        region: Region of the price, or its beginning (``us``, ``eu-north1``).
        device: A device or family, as the look-up understands it.
        min_devices: At least so many devices in the machine.
        min_device_memory_bytes: At least so much memory on each device.
        max_usd_per_hour: At most this price; an unknown price does not pass.
        is_spot: Only offers with a spot price; the limit then applies to that.
        include_retired: Keep offers that are no longer sold or not known to be.
        include_stale: Keep offers without a price, undated or older than twelve months.
    """

    cloud: str | None = None
    region: str | None = None
    device: str | None = None
    min_devices: float | None = None
    min_device_memory_bytes: float | None = None
    max_usd_per_hour: float | None = None
    is_spot: bool = False
    include_retired: bool = False
    include_stale: bool = False


def filter_devices(catalog: Catalog, conditions: DeviceFilter) -> tuple[Device, ...]:
    """Devices that meet every condition, in catalogue order."""
    return tuple(d for d in catalog.devices if _device_passes(d, conditions))


def filter_offers(catalog: Catalog, conditions: OfferFilter, *, today: date) -> tuple[Offer, ...]:
    """Offers that meet every condition on ``today``, cheapest first, unpriced last.

    Raises:
        UnknownNameError: The condition names a device that does not exist.
    """
    names = _device_names(catalog, conditions)
    offers = known_on(catalog, today).offers
    kept = [o for o in offers if names is None or o.device_name in names]
    kept = [o for o in kept if _offer_passes(o, conditions, today)]
    return tuple(sorted(kept, key=lambda o: _price(o, conditions) or float("inf")))


def _device_passes(device: Device, wanted: DeviceFilter) -> bool:
    return (
        _contains(f"{device.name} {device.family}", wanted.name)
        and _equals(device.vendor, wanted.vendor)
        and _contains(device.architecture, wanted.architecture)
        and _equals(device.kind, wanted.kind)
        and _equals(device.device_class, wanted.device_class)
        and _at_least(device.memory_bytes, wanted.min_memory_bytes)
        and _at_most(device.tdp_w, wanted.max_tdp_w)
    )


def _offer_passes(offer: Offer, wanted: OfferFilter, today: date) -> bool:
    return (
        _equals(offer.cloud, wanted.cloud)
        and offer.region.lower().startswith((wanted.region or "").lower())
        and _at_least(offer.num_devices, wanted.min_devices)
        and (not wanted.is_spot or offer.spot_usd_per_hour is not None)
        and _at_most(_price(offer, wanted), wanted.max_usd_per_hour)
        and (wanted.include_retired or is_alive(offer, today))
        and (wanted.include_stale or is_fresh(offer, today))
    )


def _device_names(catalog: Catalog, wanted: OfferFilter) -> frozenset[str] | None:
    """Names of the devices that pass; None where any device, even an unknown one, does."""
    if wanted.device is None and wanted.min_device_memory_bytes is None:
        return None
    devices = find_devices(catalog, wanted.device) if wanted.device else catalog.devices
    kept = (d for d in devices if _at_least(d.memory_bytes, wanted.min_device_memory_bytes))
    return frozenset(d.name for d in kept)


def _price(offer: Offer, wanted: OfferFilter) -> float | None:
    return offer.spot_usd_per_hour if wanted.is_spot else offer.usd_per_hour


def _contains(text: str, part: str | None) -> bool:
    squeezed = (text.lower().replace(" ", ""), (part or "").lower().replace(" ", ""))
    return squeezed[1] in squeezed[0]


def _equals(text: str, wanted: str | None) -> bool:
    return wanted is None or text.lower() == wanted.lower()


def _at_least(value: float | None, limit: float | None) -> bool:
    return limit is None or (value is not None and value >= limit)


def _at_most(value: float | None, limit: float | None) -> bool:
    return limit is None or (value is not None and value <= limit)
