"""Devices of one kind and what joins them: where a job of many devices runs."""

from __future__ import annotations

from dataclasses import field

from paceline.catalog.entities import Device, Link
from paceline.errors import MissingFactError
from paceline.model.graph.costs import LoweredPass
from paceline.parallelism.training_profile import TrainingProfile, find_training_profile
from paceline.prediction.devices import DeviceTable
from paceline.prediction.step.one_pass import abstentions
from paceline.units import HOUR_S
from paceline.values import dataclass

_HINT = "add it to a file of your own devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Devices of one kind and how they are joined.

    Attributes:
        device: What is inside.
        devices_per_node: Devices in one node; a smaller job uses part of one.
        device_link: Between devices of a node, or of a domain of several; None where there is none.
        node_link: Between nodes; None where there is none.
        host_link: Between a device and its host; None where it is not known.
        host_memory_bytes: Main memory of a node; None where it is not known.
        num_vcpus: Hardware threads of a node; None where they are not known.
        usd_per_device_hour: Price of one device with its share of the node; None if unknown.
        price_log_sigma: Standard deviation of the logarithm of that price, from its age.
        profile: How the software that runs there behaves.
    """

    device: Device
    devices_per_node: int
    device_link: Link | None
    node_link: Link | None
    host_link: Link | None = None
    host_memory_bytes: float | None = None
    num_vcpus: int | None = None
    usd_per_device_hour: float | None = None
    price_log_sigma: float = 0.0
    profile: TrainingProfile = field(default_factory=find_training_profile)

    @property
    def capacity_bytes(self) -> float:
        """Memory of one device that programs get.

        Raises:
            MissingFactError: The catalogue does not know it.
        """
        capacity_bytes = self.device.capacity_bytes
        if capacity_bytes is None:
            raise MissingFactError(f"the memory size of {self.device.name} is unknown", hint=_HINT)
        return capacity_bytes

    @property
    def devices_per_domain(self) -> int:
        """Devices that the link between devices joins: those of a node, or of a rack of them."""
        return devices_per_domain(self.devices_per_node, self.device_link)

    @property
    def device_table(self) -> DeviceTable:
        """A table of the one device."""
        return DeviceTable.from_devices([self.device])

    @property
    def usd_per_device_s(self) -> float | None:
        """Price of one device for a second; None if unknown."""
        return None if self.usd_per_device_hour is None else self.usd_per_device_hour / HOUR_S


def devices_per_domain(devices_per_node: int, device_link: Link | None) -> int:
    """Devices that a link joins, in whole nodes; those of one node where it ends there.

    >>> devices_per_domain(8, None)
    8
    """
    joined = (device_link.domain_devices if device_link else None) or 0
    return max(joined // devices_per_node, 1) * devices_per_node


def check_known(lowered: LoweredPass, devices: DeviceTable) -> None:
    """Raise unless the facts that a pass needs are known of all devices.

    Raises:
        MissingFactError: One is not known.
    """
    for reason in filter(None, abstentions(lowered, devices)):
        raise MissingFactError(reason, hint=_HINT)
