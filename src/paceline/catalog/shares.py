"""The device that an offer really gives: the whole of one, or the share that it rents."""

from __future__ import annotations

from dataclasses import replace

from paceline.catalog.entities import Catalog, Device, Offer


def offered_device(catalog: Catalog, offer: Offer) -> Device | None:
    """The device inside ``offer``, scaled to the share rented; None where it is unknown.

    A share (a virtual GPU, some cores of a socket) is taken to have the same share of arithmetic,
    bandwidth and power: exact for reserved cores, pessimistic for a GPU shared in time while its
    neighbours sleep. A CPU has the memory of its machine.

    Args:
        catalog: Where the device is.
        offer: Whose device is meant.
    """
    device = next((d for d in catalog.devices if d.name == offer.device_name), None)
    if device is None:
        return None
    if device.kind == "cpu":
        device = replace(device, memory_bytes=offer.host_memory_bytes)
    return device if offer.num_devices >= 1 else share_of_device(device, offer.num_devices)


def share_of_device(device: Device, share_frac: float) -> Device:
    """A device with ``share_frac`` of everything that can be shared; a CPU keeps its memory.

    >>> from paceline.catalog import find_device, load_catalog
    >>> half = share_of_device(find_device(load_catalog(), "a10"), 0.5)
    >>> half.name, half.num_sms, half.memory_bytes
    ('A10 (0.5 of one)', 36, 12000000000.0)
    """
    keeps_memory = device.kind == "cpu"
    return replace(
        device,
        name=f"{device.name} ({share_frac:g} of one)",
        num_sms=None if device.num_sms is None else max(1, round(device.num_sms * share_frac)),
        peak_flop_per_s={k: v * share_frac for k, v in device.peak_flop_per_s.items()},
        memory_bytes=device.memory_bytes
        if keeps_memory
        else _part(device.memory_bytes, share_frac),
        usable_memory_bytes=_part(device.usable_memory_bytes, share_frac),
        memory_bytes_per_s=_part(device.memory_bytes_per_s, share_frac),
        l2_bytes=_part(device.l2_bytes, share_frac),
        tdp_w=_part(device.tdp_w, share_frac),
        pcie_bytes_per_s=_part(device.pcie_bytes_per_s, share_frac),
        price_usd=None,
    )


def _part(value: float | None, share_frac: float) -> float | None:
    return None if value is None else value * share_frac
