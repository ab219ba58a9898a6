"""Hand-made links for the tests of this room."""

from __future__ import annotations

from typing import Literal

from paceline.catalog.entities import Link, Source
from paceline.parallelism.collectives.engine_sums import OWN_KERNEL, engine_sums_of
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.split import SplitShape
from paceline.parallelism.split.calls import Wires


def make_link(
    name: str = "nvlink4",
    *,
    kind: str = "nvlink",
    scope: Literal["device", "node", "host"] = "device",
    bytes_per_s: float = 450e9,
    reduces_in_switch: bool = False,
) -> Link:
    return Link(
        name=name,
        scope=scope,
        kind=kind,
        bytes_per_s=bytes_per_s,
        latency_s=1e-6,
        measured_bus_bytes_per_s=None,
        reduces_in_switch=reduces_in_switch,
        source=Source(text="made for a test"),
    )


def wires_in_node(shape: SplitShape, link: Link | None, *, kernel: str | None = None) -> Wires:
    """Over what the ranks of a shape talk at one point if one node has all of them."""
    table = LinkTable.from_links([link])
    groups = shape.groups(1, shape.num_ranks, table, table)
    return Wires(groups=groups, engine_sums=engine_sums_of(table, kernel=kernel))


def wires_of_engine(shape: SplitShape, link: Link | None) -> Wires:
    """The same for an engine whose own kernel sums."""
    return wires_in_node(shape, link, kernel=OWN_KERNEL)


NVLINK = LinkTable.from_links([make_link()])
SWITCH = LinkTable.from_links([make_link(reduces_in_switch=True)])
PCIE = LinkTable.from_links([make_link("pcie4_x16", kind="pcie", bytes_per_s=31e9)])
INFINIBAND = LinkTable.from_links(
    [make_link("dgx_h100_ib", kind="infiniband", scope="node", bytes_per_s=400e9)]
)
ETHERNET = LinkTable.from_links(
    [make_link("eth_10", kind="ethernet", scope="node", bytes_per_s=1.25e9)]
)
NOTHING = LinkTable.from_links([None])
