"""What exists: devices, links, offers and machines, as frozen values in SI units.

An unknown fact is ``None``; nothing here is ever filled in with a guess.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import date
from typing import Literal

from paceline.catalog.architectures import NO_GENERATION, Generation
from paceline.dtypes import Precision
from paceline.values import dataclass

DeviceKind = Literal["gpu", "tpu", "npu", "cpu"]
DeviceClass = Literal["consumer", "workstation", "datacenter", "edge", "laptop", "cpu"]
Confidence = Literal["checked", "read", "recalled", "user"]
OfferStatus = Literal["listed", "retired", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a fact was read.

    Attributes:
        text: Page, file or document, as a reader would look it up.
        read_on: When the fact was read or dated, if known.
        confidence: ``checked`` against a second source, ``read`` once, or ``recalled``; ``user``
            for a row of the user's own file.
    """

    text: str
    read_on: date | None = None
    confidence: Confidence = "read"


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
            ``int8`` for matrix units, ``fp16_vector``. ``fp16`` is the vector rate where there are
            no matrix units and vectors run faster in FP16 than in FP32; else it is absent.
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
        gfx_target: LLVM target of an AMD GPU, such as ``gfx90a``.
        checked_fields: Facts of this row that a second source or an arithmetic check confirmed.
        usable_memory_bytes: What software sees as total capacity, where reported. Chips are
            binary and error correction takes a part, so it lies up to 8 % off ``memory_bytes``.
        base_clock_hz: Clock that the vendor promises under any load.
        same_chip_as: Family of another name whose measurements hold for it: the same chip, sold
            with other links, another host or a few multiprocessors less.
        generation: What it shares with others of it; not printed with the device.
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
    gfx_target: str | None = None
    checked_fields: tuple[str, ...] = ()
    usable_memory_bytes: float | None = None
    base_clock_hz: float | None = None
    same_chip_as: str | None = None
    generation: Generation = field(default=NO_GENERATION, repr=False)

    @property
    def code(self) -> str | None:
        """By which software knows its generation: compute capability or LLVM target."""
        return self.compute_capability or self.gfx_target

    @property
    def capacity_bytes(self) -> float | None:
        """Memory that software can fill: as reported, else as marketed."""
        return self.usable_memory_bytes or self.memory_bytes

    def dense_peak_flop_per_s(self, precision: Precision) -> float | None:
        """Dense peak of the units that compute in a precision; None where none is known."""
        keys = (precision.peak_key, *precision.fallback_peak_keys)
        peaks = self.peak_flop_per_s
        return next((peaks[key] for key in keys if key in peaks), None)

    def peak_frac(self, flop_per_s: float, precision: Precision) -> float | None:
        """Share of that peak which so many FLOP per second are; None likewise."""
        peak = self.dense_peak_flop_per_s(precision)
        return None if peak is None else flop_per_s / peak


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
        measured_wire_frac: Share of the peak that crossed the wire in the best published run. Bus
            bandwidth across nodes is not a wire rate: it is this that calibrates a link.
        note: What a reader must know, assumptions (such as a latency nobody publishes) included.
        domain_devices: Devices that it joins at most, in as many machines as they fill: a rack of
            GB200, a pod of TPUs; None where it ends at the machine.
    """

    name: str
    scope: Literal["device", "node", "host"]
    kind: str
    bytes_per_s: float
    latency_s: float
    measured_bus_bytes_per_s: float | None
    reduces_in_switch: bool
    source: Source
    measured_wire_frac: float | None = None
    note: str = ""
    domain_devices: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A machine that somebody rents out, with its price and the day it was seen.

    Attributes:
        name: Unique key, ``cloud/instance_type`` with a region suffix where needed.
        cloud: Provider.
        instance_type: The provider's own name.
        device_name: ``Device.name`` of what is inside; None where the form factor is unknown.
        accelerator: The provider's own word for the accelerator.
        num_devices: Devices in one machine. A fraction below 1 is a share of one device; a CPU
            offer has the share of a socket that its virtual CPUs are.
        num_vcpus: Virtual CPUs.
        host_memory_bytes: Main memory.
        interconnect: Device-to-device link inside the machine as named by the source.
        network_bytes_per_s: Network of the whole machine, per direction.
        has_rdma: Whether the network bypasses the CPU.
        usd_per_hour: On-demand price of the machine; None where no price is known.
        spot_usd_per_hour: Interruptible price; None where unknown.
        priced_on: Day of the on-demand price; None where undated.
        interruption_frac_per_month: Band of spot interruption as (low, high); None if unknown.
        is_retired: Whether the provider stopped selling it.
        source: Where it was read, and how sure it is.
        note: What a reader must know.
        status: ``listed`` by its provider, ``retired``, or ``unknown``.
        ends_on: Day the provider stopped or has announced to stop selling it.
        is_price_complete: False where the price leaves out a part, such as the host machine.
        network_kind: ``efa``, ``infiniband``, ``roce``, ``tcpx``, ``tcpxo``; empty for Ethernet.
        lowest_usd_per_hour: Lowest on-demand price over the provider's regions.
        price_history: On-demand prices seen, as (day, month or year, USD per hour).
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
    status: OfferStatus = "listed"
    ends_on: date | None = None
    is_price_complete: bool = True
    network_kind: str = ""
    lowest_usd_per_hour: float | None = None
    lowest_region: str = ""
    price_history: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A computer somebody owns, several alike, or the one paceline runs on.

    Attributes:
        name: What the owner calls it.
        device_name: ``Device.name`` inside; None for CPU only.
        cpu_device_name: ``Device.name`` of its CPU, where the catalogue has it.
        num_cores: Physical cores.
        host_memory_bytes: Main memory.
        interconnect: ``Link.name`` between the devices.
        price_usd: What it cost.
        power_supply_w: What its power supply can deliver.
        num_free_slots: Free double-width PCIe slots.
        has_airflow_for_passive: Whether a passive card would be cooled.
        storage_read_bytes_per_s: Sequential read rate of its data disk.
        network_bytes_per_s: Network to the owner's other machines, per direction; None where it is
            not known that there is one.
        network_kind: ``infiniband`` or ``roce``; empty for Ethernet.
        box: Name of the computer it is in, where that holds devices of several kinds and each kind
            is written as a machine.
        num_machines: How many alike there are; with a network known they work on one job.
        scheduler: ``slurm`` or ``kubernetes`` where one of them gives out jobs; else empty.
        queue: Partition and type of accelerator as Slurm names both, ``accel/a100``; else empty.
        reading: Which of several devices a short name was taken for; empty where it means one.
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
    network_bytes_per_s: float | None = None
    network_kind: str = ""
    box: str | None = None
    num_machines: int = 1
    scheduler: str = ""
    queue: str = ""
    reading: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferLinks:
    """How the devices of an offer reach each other, other machines and their host.

    Attributes:
        device: Between devices of one machine; None for a single device or where unknown.
        node: Between machines; None where unknown.
        host: Between CPU and device, per device; None where unknown.
        assumptions: What was inferred because no source says it, one sentence each.
    """

    device: Link | None
    node: Link | None
    host: Link | None
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Catalog:
    """Everything known to exist, with the date of the newest fact; compared by identity.

    Attributes:
        version: Month of the data, such as ``2026-11``.
        devices: All devices, unique by name.
        links: All links, unique by name.
        offers: All offers, unique by name.
        machines: The user's own machines.
        generations: Of devices; the first is that of devices which nobody described.
    """

    version: str
    devices: tuple[Device, ...]
    links: tuple[Link, ...]
    offers: Sequence[Offer]
    machines: tuple[Machine, ...] = ()
    generations: tuple[Generation, ...] = ()
