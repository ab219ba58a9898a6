"""What the host of a device has, where an offer does not state it: as its other machines have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from paceline.catalog.entities import Catalog, Offer
from paceline.units import format_bytes
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualHost:
    """The share of a host that one device has, in the median of the machines that state it.

    Attributes:
        num_vcpus: Virtual CPUs, not rounded; None where no machine states them.
        memory_bytes: Main memory; None where no machine states it.
    """

    num_vcpus: float | None
    memory_bytes: float | None


def usual_host(catalog: Catalog, device_name: str | None) -> UsualHost:
    """Over all offers of the device, else of its class and generation, at any price."""
    own = _shares(catalog, {device_name})
    if own.num_vcpus and own.memory_bytes:
        return own
    kinds = {device.name: (device.device_class, device.generation) for device in catalog.devices}
    alike = {name for name, kind in kinds.items() if kind == kinds.get(device_name or "")}
    like = _shares(catalog, alike)
    return UsualHost(
        num_vcpus=own.num_vcpus or like.num_vcpus,
        memory_bytes=own.memory_bytes or like.memory_bytes,
    )


def _shares(catalog: Catalog, device_names: Collection[str | None]) -> UsualHost:
    offers = [offer for offer in catalog.offers if offer.device_name in device_names]
    vcpus = [one.num_vcpus / one.num_devices for one in offers if one.num_vcpus]
    memory = [one.host_memory_bytes / one.num_devices for one in offers if one.host_memory_bytes]
    return UsualHost(num_vcpus=_middle(vcpus), memory_bytes=_middle(memory))


def _middle(shares: Sequence[float]) -> float | None:
    """The median; `np.median` would load masked arrays first."""
    return float(np.quantile(shares, 0.5)) if shares else None


def with_usual_host(catalog: Catalog, offer: Offer) -> Offer:
    """The offer with processors and memory as other machines with its device have for each."""
    if offer.num_vcpus and offer.host_memory_bytes:
        return offer
    usual, count = usual_host(catalog, offer.device_name), offer.num_devices
    vcpus = max(1, round(usual.num_vcpus * count)) if usual.num_vcpus else None
    memory_bytes = usual.memory_bytes * count if usual.memory_bytes else None
    return replace(
        offer,
        num_vcpus=offer.num_vcpus or vcpus,
        host_memory_bytes=offer.host_memory_bytes or memory_bytes,
    )


def usual_host_words(offer: Offer, hosted: Offer) -> str:
    """What `with_usual_host` took, as a sentence; empty where the offer states all."""
    found = []
    if hosted.num_vcpus and not offer.num_vcpus:
        found.append(f"{hosted.num_vcpus} virtual CPUs")
    if hosted.host_memory_bytes and not offer.host_memory_bytes:
        found.append(f"{format_bytes(hosted.host_memory_bytes)} of main memory")
    if not found:
        return ""
    return f"{offer.name} does not state its host: {' and '.join(found)}, as usual for its devices"
