"""The user's own machines and shares of CPUs as offers, so that they compete on equal terms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date

from paceline.catalog.entities import (
    Catalog,
    Device,
    DeviceClass,
    Machine,
    Offer,
    OfferLinks,
    Source,
)
from paceline.catalog.offer_links import machine_links
from paceline.catalog.tables import read_rows
from paceline.planning.places.ownership import electricity_usd_per_kwh, ownership_facts
from paceline.values import dataclass

#: An owned machine is taken to stand where electricity costs the world's mean.
ELECTRICITY_REGION = "World"
#: Stands for the cloud and the region of what is owned.
OWN = "own"
_HOST_SHARE = "host share of a GPU server (non-GPU power)"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedOffer:
    """A machine that is already paid for, at the price of its electricity.

    Attributes:
        offer: As if it were rented.
        links: Between its devices, and between machines alike.
        num_machines: How many alike there are.
        num_idle: Devices of the machine that are left free.
        scheduler: Who gives them jobs; empty where nobody does.
    """

    offer: Offer
    links: OfferLinks
    num_machines: int
    num_idle: int
    scheduler: str


def owned_offers(catalog: Catalog, *, today: date) -> Iterable[OwnedOffer]:
    """Each owned machine by its accelerators, and again by its processor where that is known.

    A small job is faster on one device than on eight that wait for one another, so that half of the
    devices of one machine, a quarter and so on compete too.
    """
    devices = {device.name: device for device in catalog.devices}
    for machine in catalog.machines:
        links = machine_links(catalog, machine)
        for name, most in (
            (machine.device_name, machine.num_devices),
            (machine.cpu_device_name, 1),
        ):
            if name not in devices or most < 1:
                continue
            for count in _counts(most):
                yield OwnedOffer(
                    offer=_owned_offer(machine, devices[name], count, today), links=links,
                    num_machines=machine.num_machines if count == most else 1,
                    num_idle=most - count, scheduler=machine.scheduler,
                )  # fmt: skip


def _counts(most: int) -> tuple[int, ...]:
    """All devices of a machine, and powers of two below."""
    return (most, *(2**power for power in range(most.bit_length()) if 2**power < most))


def electricity_text() -> str:
    """What an owned machine is taken to cost, as a sentence."""
    usd = electricity_usd_per_kwh(ELECTRICITY_REGION).value
    return f"own machines cost their electricity under load ({usd:g} USD/kWh), nothing else"


def electricity_usd_per_hour(device: Device, num_devices: int) -> float:
    """Electricity of a machine under load; an unknown rated power counts as none."""
    total_w = machine_power_w(device, num_devices) or host_power_w(device.device_class)
    return total_w / 1e3 * electricity_usd_per_kwh(ELECTRICITY_REGION).value


def machine_power_w(device: Device, num_devices: int) -> float | None:
    """Power of a machine under load: its devices at rated power, and the rest of it.

    A CPU's own power is part of the rest. None if the rated power is unknown.
    """
    if device.kind == "cpu" or not num_devices:
        return host_power_w(device.device_class)
    if device.tdp_w is None:
        return None
    devices_w = device.tdp_w * num_devices
    return host_power_w(device.device_class, devices_w) + devices_w


def host_power_w(device_class: DeviceClass = "workstation", devices_w: float = 0.0) -> float:
    """Power of a computer without its accelerators, from the shipped assumptions.

    Args:
        device_class: Of what is inside: a laptop and an edge module are small computers, and
            devices of data centres stand in servers, whose processors, network, fans and supplies
            grow with them.
        devices_w: Power of what is inside.
    """
    least_w = _least_host_power_w(device_class)
    if device_class != "datacenter":
        return least_w
    share = next(fact.value for fact in ownership_facts() if fact.item == _HOST_SHARE)
    return max(least_w, devices_w * share / (1.0 - share))


def _least_host_power_w(device_class: DeviceClass) -> float:
    size = f"{device_class}_" if device_class in ("laptop", "edge") else ""
    rows = (r for r in read_rows("machine_assumptions.csv") if r["name"] == f"{size}host_power_w")
    return float(next(rows)["value"])


def offered_device(device: Device, offer: Offer) -> Device:
    """The part of a device that an offer holds, as a device of its own.

    That is a part of an accelerator, or some of the cores of one or more processors. Arithmetic,
    bandwidth, memory and power are taken to be shared out in proportion.
    """
    share = offer.num_devices
    if share == 1 or (device.kind != "cpu" and share > 1):
        return device
    return _share(device, offer, share)


def is_part(offer: Offer) -> bool:
    """Whether an offer holds less than one device."""
    return offer.num_devices < 1


def _share(device: Device, offer: Offer, share: float) -> Device:
    is_cpu = device.kind == "cpu"
    cores = f"{offer.num_vcpus} vCPU" if is_cpu and offer.num_vcpus else f"{share:g} of it"
    return replace(
        device,
        name=f"{device.name} ({cores})",
        num_sms=None if device.num_sms is None else max(1, round(device.num_sms * share)),
        peak_flop_per_s={key: peak * share for key, peak in device.peak_flop_per_s.items()},
        memory_bytes=_times(device.memory_bytes, share),
        usable_memory_bytes=_times(device.usable_memory_bytes, share),
        memory_bytes_per_s=_times(device.memory_bytes_per_s, share),
        l2_bytes=_times(device.l2_bytes, share),
        tdp_w=_times(device.tdp_w, share),
    )


def _times(fact: float | None, share: float) -> float | None:
    return None if fact is None else fact * share


def _owned_offer(machine: Machine, device: Device, count: int, today: date) -> Offer:
    electricity = electricity_usd_per_kwh(ELECTRICITY_REGION)
    return Offer(
        name=machine.name,
        cloud=OWN,
        instance_type=machine.queue or "own machine",
        device_name=device.name,
        accelerator=device.name,
        num_devices=count,
        num_vcpus=machine.num_cores,
        host_memory_bytes=machine.host_memory_bytes,
        interconnect=machine.interconnect or "",
        network_bytes_per_s=machine.network_bytes_per_s if machine.num_machines > 1 else None,
        network_kind=machine.network_kind,
        has_rdma=bool(machine.network_kind),
        usd_per_hour=electricity_usd_per_hour(device, count),
        spot_usd_per_hour=None,
        region=OWN,
        priced_on=today,
        spot_on=None,
        interruption_frac_per_month=None,
        is_retired=False,
        source=Source(text=f"electricity at {electricity.value} USD/kWh: {electricity.source}"),
    )
