"""Which links an offer has: looked up where published, inferred and said so where not."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from operator import itemgetter

from paceline.catalog.entities import Catalog, Device, Link, Machine, Offer, OfferLinks, Source
from paceline.catalog.tables import Row, read_rows
from paceline.patterns import pattern

#: A bridge joins two cards; more of them talk over what all have.
_BRIDGE, _BRIDGED = "-bridge", 2
#: Cards whose driver gives no peer access over PCIe (NVIDIA's for GeForce since Turing).
_NO_PEER_ACCESS = pattern(r"GeForce RTX [2345]0\d\d")
#: As `_network` names what a machine lists.
_NETWORK_NAME = pattern(r"([a-z-]+)-([\d.]+(?:e[+-]?\d+)?)g")
#: What follows the kind of a fabric in its name: generation and form.
_FABRIC_KIND = pattern(r"\d.*$")
#: Rates that differ by less are one: a family's link is listed as rounded as its devices.
_SAME_RATE = 1.05
#: As of every NVLink of ``links.csv``.
_NVLINK_LATENCY_S = 1e-6
_Found = tuple[Link | None, tuple[str, ...]]

#: Host and peer links by the peak of the device's PCIe slot, fastest first.
_PCIE_LINKS = ((60e9, "pcie5-x16"), (30e9, "pcie4-x16"), (15e9, "pcie3-x16"))
_SHARED_PCIE_LINKS = ((30e9, "ws-pcie4"), (15e9, "ws-pcie3"))
_NOTHING: _Found = (None, ())


def offer_links(catalog: Catalog, offer: Offer) -> OfferLinks:
    """Links between devices, between machines and to the host of one offer.

    ``catalog``: where its device and the links are.

    Returns:
        Each link, or None where there is none (a single device) or nothing is known. What was
        inferred stands in ``assumptions``.
    """
    device = _devices(catalog).get(offer.device_name or "")
    between, why_between = _between_devices(catalog, device, offer.interconnect, offer.num_devices)
    node, why_node = _between_machines(catalog, offer)
    whys = (*why_between, *_joined(between, offer.num_devices), *why_node)
    return OfferLinks(device=between, node=node, host=_to_host(catalog, device), assumptions=whys)


def machine_links(catalog: Catalog, machine: Machine) -> OfferLinks:
    """Links of an owned machine; its ``interconnect`` names a link of the catalogue."""
    device = _devices(catalog).get(machine.device_name or "")
    named = _links(catalog).get(machine.interconnect or "")
    between, why = (
        (named, ()) if named else _between_devices(catalog, device, "", machine.num_devices)
    )
    host = _to_host(catalog, device)
    why = (machine.reading, *why) if machine.reading else why
    network = _own_network(machine)
    if machine.num_machines > 1 and network is None:
        alone = "each works alone, as `network_bytes_per_s` of their network is not stated"
        why = (*why, f"{machine.num_machines} machines `{machine.name}`: {alone}")
    return OfferLinks(device=between, node=network, host=host, assumptions=why)


def _own_network(machine: Machine) -> Link | None:
    """What machines alike work together over; None for a single one, or where it is not said."""
    if machine.num_machines == 1 or machine.network_bytes_per_s is None:
        return None
    source = Source(text=f"{machine.name}, as its owner says", confidence="user")
    return _network(machine.network_kind, machine.network_bytes_per_s, source)


def joint_link(catalog: Catalog, first: Machine, second: Machine) -> Link | None:
    """The link between two machines of one's own; None where none is known.

    Kinds of device in one box talk over PCIe, machines over the slower of their networks.
    """
    if first.box is not None and first.box == second.box:
        devices = [_devices(catalog).get(one.device_name or "") for one in (first, second)]
        slots = [_shared_pcie(catalog, device, "")[0] for device in devices if device]
        known = [link for link in slots if link is not None]
        return min(known, key=lambda link: link.bytes_per_s) if len(known) == 2 else None
    networks = [
        (rate, one) for one in (first, second) if (rate := one.network_bytes_per_s) is not None
    ]
    if len(networks) < 2:
        return None
    bytes_per_s, slower = min(networks, key=itemgetter(0))
    source = Source(text=f"{slower.name}, as its owner says", confidence="user")
    return _network(slower.network_kind, bytes_per_s, source)


def named_link(catalog: Catalog, name: str) -> Link | None:
    """The link that goes by a name here: of the catalogue, or made of listed rates; None if none.

    >>> from paceline.catalog.load import load_catalog
    >>> named_link(load_catalog(), "infiniband-1600g").bytes_per_s
    200000000000.0
    """
    if known := _links(catalog).get(name):
        return known
    fabric, _, device_name = name.partition(" of ")
    device = _devices(catalog).get(device_name)
    if device is not None and device.fabric == fabric and device.fabric_bytes_per_s:
        return _own_fabric(device, device.fabric_bytes_per_s)[0]
    network = _NETWORK_NAME.fullmatch(name)
    kinds = {row["kind"] for row in read_rows("network_latencies.csv")}
    if network is None or network[1] not in kinds:
        return None
    return _network(network[1], float(network[2]) / 8e-9, Source(text="its name"))


def _joined(link: Link | None, num_devices: float) -> tuple[str, ...]:
    """Where machines of one job are taken to stand, if a link reaches beyond one."""
    if link is None or (link.domain_devices or 0) <= num_devices:
        return ()
    return (f"machines of a job are taken to stand where {link.name} joins up to "
            f"{link.domain_devices:,} devices",)  # fmt: skip


def _between_devices(
    catalog: Catalog, device: Device | None, interconnect: str, num_devices: float
) -> _Found:
    if num_devices <= 1 or device is None:
        return _NOTHING
    listed = _listed_link(catalog, device, interconnect, num_devices)
    if listed is not None and interconnect:
        return _at_own_rate(device, listed)
    if device.kind == "cpu":
        return _between_sockets(catalog, device)
    is_bridged = interconnect == "nvlink" and num_devices <= _BRIDGED
    has_fabric = is_bridged or not (device.fabric or "").endswith(_BRIDGE)
    if device.fabric_bytes_per_s and interconnect != "pcie" and has_fabric:
        return _fabric_of_family(catalog, device, listed, num_devices)
    return _shared_pcie(catalog, device, interconnect)


def _fabric_of_family(
    catalog: Catalog, device: Device, listed: Link | None, num_devices: float
) -> _Found:
    """The published link of a device that has a fabric, where no source says how it is joined."""
    usual = listed or next(
        (
            _links(catalog)[row["link"]]
            for row in read_rows("fabric_links.csv")
            if row["device_name"] == device.name
            or (_row_matches(row, device, "", num_devices) and not row["device_name"])
        ),
        None,
    )
    if usual is None:
        return _own_fabric(device, device.fabric_bytes_per_s or 0.0)
    link, why = _at_own_rate(device, usual)
    return link, (
        f"{device.name} is taken to be joined by {usual.name}, as its family is published to be: "
        "no source says how these are",
        *why,
    )


def _at_own_rate(device: Device, usual: Link) -> _Found:
    """A family's link, or its device's own where that has less of it, as export versions do."""
    rate = device.fabric_bytes_per_s
    if rate is None or usual.bytes_per_s <= _SAME_RATE * rate:
        return usual, ()
    return _own_fabric(device, rate)


def _between_sockets(catalog: Catalog, device: Device) -> _Found:
    link = _links(catalog)["cpu-sockets"]
    return link, (f"sockets of {device.name} are taken to be joined by {link.name}: {link.note}",)


def _listed_link(
    catalog: Catalog, device: Device, interconnect: str, num_devices: float
) -> Link | None:
    rows = (
        r
        for r in read_rows("fabric_links.csv")
        if _row_matches(r, device, interconnect, num_devices)
    )
    row = next(rows, None)
    return _links(catalog)[row["link"]] if row else None


def _row_matches(row: Row, device: Device, interconnect: str, num_devices: float) -> bool:
    return (
        row["interconnect"] == interconnect
        and row["fabric"] in ("", device.fabric)
        and row["device_name"] in ("", device.name)
        and float(row["min_devices"] or 0) <= num_devices <= float(row["max_devices"] or "inf")
    )


def _own_fabric(device: Device, bytes_per_s: float) -> _Found:
    kind = _FABRIC_KIND.sub("", device.fabric or "")
    link = Link(
        name=f"{device.fabric} of {device.name}",
        scope="device",
        kind=kind,
        bytes_per_s=bytes_per_s,
        latency_s=_NVLINK_LATENCY_S if kind == "nvlink" else _latency_s("roce"),
        measured_bus_bytes_per_s=None,
        reduces_in_switch=False,
        source=device.sources[0],
    )
    return link, (f"{link.name}: listed peak, no published measurement",)


def _shared_pcie(catalog: Catalog, device: Device, interconnect: str) -> _Found:
    """Devices without a known fabric talk over the PCIe generation of the card."""
    if _NO_PEER_ACCESS.match(device.name):
        return _links(catalog)["host-staged"], (
            f"{device.name} cards have no peer access over PCIe: they talk through host memory",
        )
    link = _by_rate(catalog, device.pcie_bytes_per_s, _SHARED_PCIE_LINKS)
    if link is None:
        return _NOTHING
    said = f"`{interconnect}`" if interconnect else "nothing"
    return link, (
        f"devices whose link is not stated are taken to talk over PCIe ({link.name}): "
        f"the source says {said}",
    )


def _between_machines(catalog: Catalog, offer: Offer) -> _Found:
    matching = (
        row for row in read_rows("network_links.csv")
        if row["cloud"] == offer.cloud and fnmatchcase(offer.instance_type, row["instance_pattern"])
    )  # fmt: skip
    row = next(matching, None)
    if row is not None:
        return _links(catalog)[row["link"]], ()
    if not offer.network_bytes_per_s:
        return _NOTHING
    link = _network(offer.network_kind, offer.network_bytes_per_s, offer.source)
    return link, (f"{link.name} between machines: listed rate, latency assumed for {link.kind}",)


def _network(kind: str, bytes_per_s: float, source: Source) -> Link:
    kind = kind or "ethernet"
    return Link(
        name=f"{kind}-{8e-9 * bytes_per_s:g}g",
        scope="node",
        kind=kind,
        bytes_per_s=bytes_per_s,
        latency_s=_latency_s(kind),
        measured_bus_bytes_per_s=None,
        reduces_in_switch=False,
        source=source,
    )


def _to_host(catalog: Catalog, device: Device | None) -> Link | None:
    if device is None or device.kind == "cpu":
        return None
    if device.form_factor == "superchip":
        return _links(catalog)["nvlink-c2c-hopper"]
    link = _by_rate(catalog, device.pcie_bytes_per_s, _PCIE_LINKS)
    if link is not None or device.pcie_bytes_per_s is None:
        return link
    return _narrow_pcie(device.pcie_bytes_per_s)


def _narrow_pcie(bytes_per_s: float) -> Link:
    return Link(
        name=f"pcie-{bytes_per_s / 1e9:.3g}gbs",
        scope="host",
        kind="pcie",
        bytes_per_s=bytes_per_s,
        latency_s=1e-6,
        measured_bus_bytes_per_s=None,
        reduces_in_switch=False,
        source=Source(text="PCI-SIG lane rate arithmetic"),
    )


def _by_rate(
    catalog: Catalog, bytes_per_s: float | None, names: tuple[tuple[float, str], ...]
) -> Link | None:
    fitting = (name for floor, name in names if bytes_per_s is not None and bytes_per_s >= floor)
    name = next(fitting, None)
    return _links(catalog)[name] if name else None


def _latency_s(kind: str) -> float:
    return next(
        float(r["latency_s"]) for r in read_rows("network_latencies.csv") if r["kind"] == kind
    )


@lru_cache(maxsize=8)
def _links(catalog: Catalog) -> dict[str, Link]:
    return {link.name: link for link in catalog.links}


@lru_cache(maxsize=8)
def _devices(catalog: Catalog) -> dict[str, Device]:
    return {device.name: device for device in catalog.devices}
