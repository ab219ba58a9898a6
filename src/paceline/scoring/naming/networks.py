"""What joins the devices of a row: as it says, else as its vendor's own system has it."""

from __future__ import annotations

import math
import re

from paceline.catalog.entities import Catalog, Device, Link, Offer, OfferLinks, Source
from paceline.catalog.offer_links import offer_links
from paceline.scoring.rows import Row
from paceline.scoring.tables import fitting_lines
from paceline.values import dataclass

#: Cards of a node's network and their rate in bits (links inside a node are stated in bytes), and
#: cards that carry no gradients.
_NETWORK = re.compile(
    r"(?:(?<![\d.])(\d+) ?x ?(?!\d)[^+,]*?)?(?<![\d.])(\d+(?:\.\d+)?) ?Gb(?:it)?(?:/s|/$|ps\b)",
    re.IGNORECASE,
)
_BYTES = re.compile(r"\d ?GB ?/ ?s")
_OTHER_CARDS = re.compile(r"^ *(storage|management)(?!&compute)", re.IGNORECASE)
_FABRIC = re.compile(r"nv-?link|nv-?switch|nvl\d+|xgmi|infinity", re.IGNORECASE)
_INFINIBAND = "infiniband"
#: Words for the kinds of network that the catalogue knows; any other is Ethernet.
_KINDS = {
    _INFINIBAND: re.compile(r"infini ?band|\bib\b|\b[ehnx]dr\b", re.IGNORECASE),
    "efa": re.compile(r"\befa\b|elastic fabric", re.IGNORECASE),
    "roce": re.compile(r"\broce|connect-?x|bluefield|\bcx-?\d|\bbf\d", re.IGNORECASE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLinks:
    """Links of a job.

    Attributes:
        links: Between devices of a node and between nodes.
        devices_per_node: Of one machine.
        is_assumed: The network between nodes is that of the vendor's own system.
    """

    links: OfferLinks
    devices_per_node: int
    is_assumed: bool


def links_of_row(catalog: Catalog, device: Device, row: Row) -> RowLinks:
    """Links of machines such as the row describes."""
    system = _reference_system(device)
    per_node = math.ceil(row.num_devices / max(row.num_nodes or 1, 1))
    network, is_assumed = _network(row, system)
    is_card = device.form_factor.startswith("PCIe")
    fabric = bool(_FABRIC.search(row.interconnect)) or not is_card
    machine = Offer(
        name=row.gpu,
        cloud="published row",
        instance_type="",
        device_name=device.name,
        accelerator=row.gpu,
        num_devices=per_node,
        num_vcpus=None,
        host_memory_bytes=None,
        interconnect="nvlink" if fabric and device.fabric else "pcie",
        network_bytes_per_s=network,
        network_kind=_INFINIBAND if is_assumed else network_kind(row.interconnect),
        has_rdma=True,
        usd_per_hour=None,
        spot_usd_per_hour=None,
        region="",
        priced_on=None,
        spot_on=None,
        interruption_frac_per_month=None,
        is_retired=False,
        source=Source(text="the scored table"),
    )
    return RowLinks(
        links=offer_links(catalog, machine),
        devices_per_node=per_node,
        is_assumed=is_assumed,
    )


def _network(row: Row, system: dict[str, str] | None) -> tuple[float | None, bool]:
    """Bytes per second of the network of one node, and whether it is taken from its system."""
    stated = network_bytes_per_s(row.interconnect)
    if stated is not None:
        return stated, False
    if (row.num_nodes or 1) <= 1 or system is None:
        return None, False
    return float(system["node_bytes_per_s"]), True


def switched_link(catalog: Catalog, device: Device) -> Link | None:
    """The link of the vendor's own system, whose switches reduce; None where none is known.

    Recipes that state how a model is split are those of such systems.
    """
    system = _reference_system(device)
    name = system["device_link"] if system else ""
    return next((link for link in catalog.links if link.name == name), None)


def _reference_system(device: Device) -> dict[str, str] | None:
    """The line of ``data/reference_systems.csv`` for a device."""
    return next(fitting_lines("reference_systems.csv", {"device": device.name}), None)


def network_kind(interconnect: str) -> str:
    """What carries traffic between nodes; empty for Ethernet.

    >>> network_kind("NVSwitch + 8x CX-6 IB HDR 200Gb/s"), network_kind("RoCE 1600 Gb/s")
    ('infiniband', 'roce')
    """
    return next((kind for kind, words in _KINDS.items() if words.search(interconnect)), "")


def network_bytes_per_s(interconnect: str) -> float | None:
    """What a row says of the network between its nodes; None where it says nothing.

    Where InfiniBand is named, gradients take no other card.

    >>> network_bytes_per_s("NVLink/NVSwitch + RoCE 1600 Gb/s"), network_bytes_per_s("600GB/s")
    (200000000000.0, None)
    >>> network_bytes_per_s("Storage: 2x CX-6 IB HDR 200Gb/s, Compute: 8x CX-6 IB HDR 200Gb/s")
    200000000000.0
    >>> network_bytes_per_s("1x Ethernet 100Gb/s, 8x CX7 InfiniBand (4") is None
    True
    >>> network_bytes_per_s("1x Omni-Path HFI Adapter 100 Series 100Gb/")
    12500000000.0
    """
    parts = [part for part in re.split(r"[+,]", interconnect) if not _OTHER_CARDS.match(part)]
    parts = [part for part in parts if _KINDS[_INFINIBAND].search(part)] or parts
    found = [_NETWORK.search(part) for part in parts if not _BYTES.search(part)]
    rates = [float(one[1] or 1) * float(one[2]) * 1e9 / 8 for one in found if one]
    return max(rates, default=None)
