"""What exists: devices, links, offers and machines, as frozen values in SI units.

An unknown fact is ``None``; nothing here is ever filled in with a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal

DeviceKind = Literal["gpu", "tpu", "npu", "cpu"]
DeviceClass = Literal["consumer", "workstation", "datacenter", "edge", "laptop", "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a fact was read.

    Attributes:
        text: Page, file or document, as a reader would look it up.
        read_on: When the fact was read or dated, if known.
        confidence: ``checked`` against a second source, ``read`` once, or ``recalled``.
    """

    text: str
    read_on: date | None = None
    confidence: Literal["checked", "read", "recalled"] = "read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator (a die of a two-die board, a chip of a TPU board) or one CPU model.

    Attributes:
        name: Unique display name, such as ``A100 SXM4 80GB``.
        family: Name shared by variants, such as ``A100``.
        is_default_variant: Whether a command that needs one device takes this one for the family.
        vendor: ``NVIDIA``, ``AMD``, ``Google``, ``Intel``, ``AWS``, ``Apple``, …
        architecture: Vendor's generation name, such as ``Ampere``.
        kind: What sort of processor it is.
        device_class: Where it is meant to live.
        compute_capability: CUDA compute capability as ``major.minor``; None off NVIDIA.
        year: Year of launch.
        num_sms: Streaming multiprocessors, compute units or cores.
        boost_clock_hz: Listed boost clock.
        peak_flop_per_s: Dense peak by key: ``fp32``, ``tf32``, ``fp16``, ``bf16``, ``fp8``,
            ``int8`` for matrix units (or vector units where there are none), ``fp16_vector``.
        memory_bytes: Capacity as marketed, decimal.
        memory_type: ``HBM2e``, ``GDDR6``, …
        memory_bytes_per_s: Peak bandwidth.
        l2_bytes: Last-level cache on the device.
        tdp_w: Board power.
        pcie_bytes_per_s: Peak of the host link, per direction; None if not PCIe.
        fabric: Device-to-device fabric, such as ``nvlink4``; None where only PCIe.
        fabric_bytes_per_s: Peak of that fabric per device, per direction.
        form_factor: ``SXM4``, ``PCIe dual-slot``, …
        cooling: ``active``, ``passive``, ``liquid``.
        price_usd: Street or list price of one.
        price_on: Month of that price.
        measured_bf16_flop_per_s: Best BF16 matrix-product rate published for it.
        sources: Where the facts come from.
        note: What a reader must know.
    """

    name: str
    family: str
    is_default_variant: bool
    vendor: str
    architecture: str
    kind: DeviceKind
    device_class: DeviceClass
    compute_capability: str | None
    year: int | None
    num_sms: int | None
    boost_clock_hz: float | None
    peak_flop_per_s: Mapping[str, float]
    memory_bytes: float | None
    memory_type: str
    memory_bytes_per_s: float | None
    l2_bytes: float | None
    tdp_w: float | None
    pcie_bytes_per_s: float | None
    fabric: str | None
    fabric_bytes_per_s: float | None
    form_factor: str
    cooling: str
    price_usd: float | None
    price_on: date | None
    measured_bf16_flop_per_s: float | None
    sources: tuple[Source, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One way for devices or nodes to exchange bytes.

    Attributes:
        name: Unique name, such as ``nvlink4`` or ``efa-3200``.
        scope: ``device`` inside a node, ``node`` between nodes, ``host`` between CPU and device.
        kind: ``nvlink``, ``pcie``, ``infiniband``, ``ethernet``, ``ici``, ``infinity-fabric``, ….
        bytes_per_s: Peak per device and direction (``device``, ``host``) or per node (``node``).
        latency_s: One-way latency of a small message.
        measured_bus_bytes_per_s: Best published all-reduce bus bandwidth, where there is one.
        reduces_in_switch: Whether the switch can reduce (NVLink SHARP).
        source: Where it was read.
    """

    name: str
    scope: Literal["device", "node", "host"]
    kind: str
    bytes_per_s: float
    latency_s: float
    measured_bus_bytes_per_s: float | None
    reduces_in_switch: bool
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A machine that somebody rents out, with its price and the day it was seen.

    Attributes:
        name: Unique key, ``cloud/instance_type`` with a region suffix where needed.
        cloud: Provider.
        instance_type: The provider's own name.
        device_name: ``Device.name`` of what is inside; None where the form factor is unknown.
        accelerator: The provider's own word for the accelerator.
        num_devices: Devices in one machine (fractions of a device are allowed); for a CPU offer 1.
        num_vcpus: Virtual CPUs.
        host_memory_bytes: Main memory.
        interconnect: Device-to-device link inside the machine as named by the source.
        network_bytes_per_s: Network of the whole machine, per direction.
        has_rdma: Whether the network bypasses the CPU.
        usd_per_hour: On-demand price of the machine; None where no price is known.
        spot_usd_per_hour: Interruptible price; None where unknown.
        region: Region of the price.
        priced_on: Day of the on-demand price; None where undated.
        spot_on: Day of the spot price.
        interruption_frac_per_month: Band of spot interruption as (low, high); None if unknown.
        is_retired: Whether the provider stopped selling it.
        confidence: How sure the row is.
        source: Where it was read.
        note: What a reader must know.
    """

    name: str
    cloud: str
    instance_type: str
    device_name: str | None
    accelerator: str
    num_devices: float
    num_vcpus: int | None
    host_memory_bytes: float | None
    interconnect: str
    network_bytes_per_s: float | None
    has_rdma: bool
    usd_per_hour: float | None
    spot_usd_per_hour: float | None
    region: str
    priced_on: date | None
    spot_on: date | None
    interruption_frac_per_month: tuple[float, float] | None
    is_retired: bool
    source: Source
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A computer somebody owns, or the one paceline runs on.

    Attributes:
        name: What the owner calls it.
        device_name: ``Device.name`` inside; None for CPU only.
        num_devices: How many of them.
        cpu_device_name: ``Device.name`` of its CPU, where the catalogue has it.
        num_cores: Physical cores.
        host_memory_bytes: Main memory.
        interconnect: ``Link.name`` between the devices.
        price_usd: What it cost.
        power_supply_w: What its power supply can deliver.
        num_free_slots: Free double-width PCIe slots.
        has_airflow_for_passive: Whether a passive card would be cooled.
        storage_read_bytes_per_s: Sequential read rate of its data disk.
    """

    name: str
    device_name: str | None
    num_devices: int
    cpu_device_name: str | None = None
    num_cores: int | None = None
    host_memory_bytes: float | None = None
    interconnect: str | None = None
    price_usd: float | None = None
    power_supply_w: float | None = None
    num_free_slots: int | None = None
    has_airflow_for_passive: bool | None = None
    storage_read_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Everything known to exist, with the date of the newest fact.

    Attributes:
        version: Month of the data, such as ``2026-11``.
        devices: All devices, unique by name.
        links: All links, unique by name.
        offers: All offers, unique by name.
        machines: The user's own machines.
    """

    version: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    offers: tuple[Offer, ...]
    machines: tuple[Machine, ...] = ()
