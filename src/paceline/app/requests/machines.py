"""On which machines a job is scaled: the largest that somebody rents out, else those of its kind.

Where no fresh price is known, time needs none: an older offer of the device says how its machines
are built, else one of the same chip under another name, else machines of eight are assumed. So they
are where all that are rented out hold too few devices and nothing joins them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from paceline.catalog.entities import Catalog, Device, Offer, OfferLinks, Source
from paceline.catalog.filters import OfferFilter, filter_offers
from paceline.catalog.lookup import find_device, find_offer
from paceline.catalog.offer_links import machine_links, offer_links
from paceline.errors import NoOfferError
from paceline.parallelism.collectives.cluster import devices_per_domain
from paceline.planning.places.own_machines import OWN, owned_offers

#: Devices in a machine of which nothing is known: as of most accelerators.
_USUAL_DEVICES = 8
#: Network of each device with a fabric, where nothing is known: a port of 200 Gbit/s, as clusters
#: of DGX A100 have, and Frontier with its MI250X (both recalled).
_PORT_BYTES_PER_S = 25e9


def offer_called(catalog: Catalog, name: str, most: int, *, today: date) -> Offer:
    """The offer or machine of one's own that goes by a name.

    Raises:
        UnknownNameError: There is none.
    """
    mine = (one.offer for one in owned_offers(catalog, today=today))
    own = [one for one in mine if one.name.lower() == name.strip().lower()]
    return own[0] if own else find_offer(catalog, name)


def offer_with(catalog: Catalog, device_name: str, most: int, *, today: date) -> Offer:
    """The machines with a device on which a job is scaled to so many; without price if need be.

    Raises:
        UnknownNameError: No such device.
        NoOfferError: It is a processor that nobody rents out.
    """
    device = find_device(catalog, device_name)
    offers = filter_offers(catalog, OfferFilter(device=device.name), today=today)
    whole = [offer for offer in offers if offer.num_devices >= 1 and offer.usd_per_hour]
    if whole:
        best = min(whole, key=lambda offer: _fitness(catalog, offer, most))
    else:
        best = _unpriced(catalog, device, most)
    is_assumable = most <= _USUAL_DEVICES or device.fabric is not None
    return _assumed(device) if is_assumable and _lacks_network(catalog, best, most) else best


def named_offer(catalog: Catalog, name: str, most: int, *, today: date) -> Offer:
    """An offer by its own name, or by that of its device."""
    known = {one.name for one in catalog.offers} | {one.name for one in catalog.machines}
    choose = offer_called if name in known else offer_with
    return choose(catalog, name, most, today=today)


def links_of(catalog: Catalog, offer: Offer) -> OfferLinks:
    """Links of an offer, or of the machine of one's own that it stands for."""
    machines = {machine.name: machine for machine in catalog.machines}
    if offer.cloud == OWN and offer.name in machines:
        return machine_links(catalog, machines[offer.name])
    return offer_links(catalog, offer)


def _unpriced(catalog: Catalog, device: Device, most: int) -> Offer:
    """How machines with a device are built, without a price."""
    built = _whole(catalog, {device.name})
    if not built:
        alike = {d.name for d in catalog.devices if d.family == device.same_chip_as}
        built = _whole(catalog, alike)
    if not built and device.kind == "cpu":
        raise NoOfferError(
            f"no fresh offer holds a {device.name}",
            hint="name an older one with --offer, or your own with --facts",
        )
    usual = min(built, key=lambda o: _fitness(catalog, o, most)) if built else _assumed(device)
    is_own = usual.device_name == device.name
    name = usual.name if is_own or not built else f"like {usual.name}"
    return replace(
        usual,
        name=name,
        device_name=device.name,
        interconnect=usual.interconnect if is_own else "",
        usd_per_hour=None,
        priced_on=None,
    )


def _whole(catalog: Catalog, names: set[str]) -> Sequence[Offer]:
    return [o for o in catalog.offers if o.device_name in names and o.num_devices >= 1]


def _assumed(device: Device) -> Offer:
    rate = None if device.fabric is None else _USUAL_DEVICES * _PORT_BYTES_PER_S
    return Offer(
        name="as assumed", cloud="", instance_type="", device_name=device.name,
        accelerator=device.family, num_devices=float(_USUAL_DEVICES), num_vcpus=None,
        host_memory_bytes=None, interconnect="", network_bytes_per_s=rate,
        has_rdma=rate is not None, network_kind="" if rate is None else "infiniband",
        usd_per_hour=None, spot_usd_per_hour=None, region="", priced_on=None, spot_on=None,
        interruption_frac_per_month=None, is_retired=False,
        source=Source(text="assumed", confidence="recalled"), note="", status="unknown",
    )  # fmt: skip


def _fitness(catalog: Catalog, offer: Offer, most: int) -> tuple[bool, bool, float, float]:
    """Machines that can be joined where that is needed, joined by a known link, large, cheap."""
    links = offer_links(catalog, offer)
    price = (offer.usd_per_hour or 0.0) / offer.num_devices
    lacks_network = _lacks_network(catalog, offer, most)
    return lacks_network, bool(links.assumptions), -offer.num_devices, price


def _lacks_network(catalog: Catalog, offer: Offer, most: int) -> bool:
    """Whether so many devices take more machines than anything is known to join."""
    links = offer_links(catalog, offer)
    return most > devices_per_domain(int(offer.num_devices), links.device) and links.node is None
