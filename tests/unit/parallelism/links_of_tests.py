"""Hand-made links for the tests of this room."""

from __future__ import annotations

from typing import Literal

from paceline.catalog.entities import Link, Source
from paceline.parallelism.collectives.links import LinkTable


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
