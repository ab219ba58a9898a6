"""A Machine: devices, what joins them, and their host."""

from __future__ import annotations

from dataclasses import replace

from paceline.catalog.entities import Catalog, Device, Link
from paceline.catalog.lookup import find_device
from paceline.catalog.offer_links import named_link
from paceline.errors import InvalidInputError
from paceline.parallelism.collectives.cluster import Cluster, devices_per_domain
from paceline.patterns import pattern
from paceline.units import parse_bytes
from paceline.values import dataclass

_HINT = "write machines like `8xH100 SXM5 80GB@dgx-h100-nvls,dgx-h100-ib`"
_GROUP = pattern(r"^(?P<count>[0-9]+)x(?P<device>[^/@;+]+?)(?:/(?P<per_node>[0-9]+))?$")
_NOTHING = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Devices of one kind.

    Attributes:
        devices_per_node: Of them in one node; a smaller group fills a part of one.
    """

    device: Device
    count: int
    devices_per_node: int

    def __post_init__(self) -> None:
        if self.count < 1 or self.devices_per_node < 1:
            raise InvalidInputError("a group has at least one device", hint=_HINT)

    def __str__(self) -> str:
        node = "" if self.devices_per_node == self.count else f"/{self.devices_per_node}"
        return f"{self.count}x{self.device.name}{node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where a job runs; what is None is not known.

    Attributes:
        groups: Devices, one group per kind; ranks are laid out in this order.
        device_link: Between devices of a node, or of a domain of several.
        node_link: Between nodes.
        host_link: Between a device and its host.
        host_memory_bytes: Main memory of a node.
        num_vcpus: Hardware threads of a node.

    >>> from paceline.catalog.load import load_catalog
    >>> text = "16xH100 SXM5 80GB/8@dgx-h100-nvls,dgx-h100-ib"
    >>> str(Machine.parse(text, load_catalog())) == text
    True
    """

    groups: tuple[DeviceGroup, ...]
    device_link: Link | None = None
    node_link: Link | None = None
    host_link: Link | None = None
    host_memory_bytes: float | None = None
    num_vcpus: int | None = None

    def __post_init__(self) -> None:
        if not self.groups:
            raise InvalidInputError("a machine has at least one group of devices", hint=_HINT)

    def __str__(self) -> str:
        """Groups, links by name and facts of the host, which `parse` reads back."""
        links = ",".join(
            link.name if link else _NOTHING for link in (self.device_link, self.node_link)
        )
        memory_bytes = self.host_memory_bytes
        host = [
            *([f"host_link={self.host_link.name}"] if self.host_link else []),
            *([] if memory_bytes is None else [f"host_memory_bytes={memory_bytes:.0f}B"]),
            *([] if self.num_vcpus is None else [f"num_vcpus={self.num_vcpus}"]),
        ]
        groups = "+".join(map(str, self.groups))
        joined = f"@{links}" if links != f"{_NOTHING},{_NOTHING}" else ""
        return ";".join((f"{groups}{joined}", *host))

    @classmethod
    def parse(cls, text: str, catalog: Catalog) -> Machine:
        """Read what `str` writes.

        Args:
            text: Such as ``8xA100 SXM4 80GB@dgx-a100,-``.
            catalog: Where devices and links are.

        Raises:
            UnknownNameError: No such device.
            InvalidInputError: Not a machine, or no such link.
        """
        head, *facts = text.split(";")
        groups, _, links = head.partition("@")
        device_link, _, node_link = links.partition(",")
        host = dict(fact.partition("=")[::2] for fact in facts)
        if unknown := host.keys() - {"host_link", "host_memory_bytes", "num_vcpus"}:
            raise InvalidInputError(f"`{min(unknown)}` is no fact of a host", hint=_HINT)
        memory, threads = host.get("host_memory_bytes"), host.get("num_vcpus")
        return cls(
            groups=tuple(_group(part, catalog) for part in groups.split("+")),
            device_link=_link(device_link, catalog),
            node_link=_link(node_link, catalog),
            host_link=_link(host.get("host_link", ""), catalog),
            host_memory_bytes=None if memory is None else parse_bytes(memory),
            num_vcpus=None if threads is None else _whole(threads),
        )

    @classmethod
    def of(
        cls, device: Device, count: int = 1, *, devices_per_node: int | None = None,
        device_link: Link | None = None, node_link: Link | None = None,
        num_vcpus: int | None = None,
    ) -> Machine:  # fmt: skip
        """Devices of one kind; all in one node unless said otherwise."""
        per_node = count if devices_per_node is None else devices_per_node
        group = DeviceGroup(device=device, count=count, devices_per_node=per_node)
        return cls(
            groups=(group,), device_link=device_link, node_link=node_link, num_vcpus=num_vcpus
        )

    @classmethod
    def of_cluster(cls, cluster: Cluster, count: int) -> Machine:
        """So many devices of a cluster."""
        group = DeviceGroup(
            device=cluster.device, count=count, devices_per_node=cluster.devices_per_node
        )
        return cls(
            groups=(group,),
            device_link=cluster.device_link,
            node_link=cluster.node_link,
            host_link=cluster.host_link,
            host_memory_bytes=cluster.host_memory_bytes,
            num_vcpus=cluster.num_vcpus,
        )

    @property
    def device(self) -> Device:
        """The device of the first group."""
        return self.groups[0].device

    @property
    def devices_per_node(self) -> int:
        """Of the first group."""
        return self.groups[0].devices_per_node

    @property
    def devices_per_domain(self) -> int:
        """Devices of the first group that the link between devices joins."""
        return devices_per_domain(self.devices_per_node, self.device_link)

    @property
    def num_devices(self) -> int:
        """Of all groups."""
        return sum(group.count for group in self.groups)

    @property
    def cluster(self) -> Cluster:
        """The first group as strategies see it."""
        return Cluster(
            device=self.device,
            devices_per_node=self.devices_per_node,
            device_link=self.device_link,
            node_link=self.node_link,
            host_link=self.host_link,
            host_memory_bytes=self.host_memory_bytes,
            num_vcpus=self.num_vcpus,
        )

    def with_count(self, count: int) -> Machine:
        """The same with so many devices of its one kind."""
        return replace(self, groups=(replace(self.groups[0], count=count),))


def _group(text: str, catalog: Catalog) -> DeviceGroup:
    match = _GROUP.match(text.strip())
    if match is None:
        raise InvalidInputError(f"`{text}` is no group of devices", hint=_HINT)
    count = int(match["count"])
    return DeviceGroup(
        device=find_device(catalog, match["device"]),
        count=count,
        devices_per_node=int(match["per_node"] or count),
    )


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInputError(f"`num_vcpus={text}` is no count", hint=_HINT)
    return int(text)


def _link(name: str, catalog: Catalog) -> Link | None:
    if name in ("", _NOTHING):
        return None
    link = named_link(catalog, name)
    if link is None:
        raise InvalidInputError(f"`{name}` is no link of the catalogue", hint=_HINT)
    return link
