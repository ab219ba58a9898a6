"""Places as arrays: what the search needs to know of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

import numpy as np
import numpy.typing as npt

from paceline.catalog.entities import Device
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.cluster import devices_per_domain
from paceline.parallelism.collectives.communicators import num_channels
from paceline.planning.places.interruption import MONTH_S
from paceline.planning.places.own_machines import machine_power_w
from paceline.planning.places.places import Place
from paceline.planning.places.price import (
    RentalTerms,
    rental_terms,
    storage_usd_per_byte_month,
    traffic_out_usd_per_byte,
)
from paceline.values import dataclass

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Machines that can be rented: more than any job is searched on.
_MANY = 2**31


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlaceTable:
    """Columns of (num_places,) each.

    Attributes:
        device: Row of the device in the forecast.
        devices_per_node: Devices of one machine.
        usd_per_hour: Price of one machine; NaN if unknown.
        memory_bytes: Usable memory of one device.
        tdp_w: Rated power of one device; NaN if unknown.
        heat_w: What one machine warms the user's own room with, under load; 0 where it is rented.
        has_device_link: Whether devices of a machine can exchange gradients.
        num_channels: Of a communicator of devices of a machine.
        devices_per_domain: Devices that the link between devices joins, in one machine or several.
        has_node_link: Whether more of them can work together.
        is_ranked: Whether the price is fresh enough to be ranked.
        is_owned: Whether it is the user's own.
        num_machines: How many there can be.
        is_joined: Whether it is two machines that share every batch.
        setup_s: Paid time before work begins; none on an owned machine.
        granularity_s: Paid time is rounded up to a multiple of it.
        minimum_s: Least paid time: of a reserved term the whole of it.
        price_log_sigma: Standard deviation of log price, from its age.
        interruption_frac_per_month: Chance that one machine is taken back; 0 on demand.
        wait_s: Unpaid wait for a new machine after that.
        storage_usd_per_s: What the job's files on the provider's disks cost; 0 where none are
            stated.
        egress_usd: What taking its results out costs, likewise.
        input_samples_per_s: What one machine's input side delivers to all its devices; infinite
            where it is taken to keep up.
    """

    device: IntArray
    devices_per_node: IntArray
    usd_per_hour: FloatArray
    memory_bytes: FloatArray
    tdp_w: FloatArray
    heat_w: FloatArray
    has_device_link: BoolArray
    num_channels: IntArray
    devices_per_domain: IntArray
    has_node_link: BoolArray
    is_ranked: BoolArray
    is_owned: BoolArray
    num_machines: IntArray
    is_joined: BoolArray
    setup_s: FloatArray
    granularity_s: FloatArray
    minimum_s: FloatArray
    price_log_sigma: FloatArray
    interruption_frac_per_month: FloatArray
    wait_s: FloatArray
    storage_usd_per_s: FloatArray
    egress_usd: FloatArray
    input_samples_per_s: FloatArray

    def can_join(self, places: IntArray | int, num_nodes: IntArray | int) -> BoolArray:
        """Whether so many machines of places can work together."""
        count = np.asarray(num_nodes, dtype=np.int64)
        is_domain = count * self.devices_per_node[places] <= self.devices_per_domain[places]
        return np.asarray((count == 1) | is_domain | self.has_node_link[places])


def place_table(
    places: Sequence[Place],
    devices: Sequence[Device],
    input_samples_per_s: Sequence[float],
    *,
    today: date,
    setup_s: float,
    storage_bytes: float = 0.0,
    egress_bytes: float = 0.0,
) -> PlaceTable:
    """The columns of some places.

    Args:
        places: In the order of the rows.
        devices: In the order of the forecast's rows.
        input_samples_per_s: What the input side of each place delivers.
        today: The day on which the age of a price counts.
        setup_s: Of a rented machine.
        storage_bytes: Kept on the provider's disks while the job runs.
        egress_bytes: Taken out at the end.
    """
    row = {device.name: index for index, device in enumerate(devices)}
    terms = [place_terms(place, today=today) for place in places]

    def column(values: Sequence[float | None]) -> FloatArray:
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)

    return PlaceTable(
        device=np.array([row[p.device.name] for p in places], dtype=np.int64),
        devices_per_node=np.array([num_devices(p) for p in places], dtype=np.int64),
        usd_per_hour=column([p.usd_per_hour for p in places]),
        memory_bytes=np.nan_to_num(column([place_memory_bytes(p) for p in places]), nan=0.0),
        tdp_w=column([_rated_power_w(p) for p in places]),
        heat_w=column([_heat_w(p) for p in places]),
        has_device_link=np.array([p.links.device is not None for p in places], dtype=bool),
        num_channels=np.array([num_channels(p.links.device) for p in places], dtype=np.int64),
        devices_per_domain=np.array([domain_of(p) for p in places], dtype=np.int64),
        has_node_link=np.array([p.links.node is not None for p in places], dtype=bool),
        is_ranked=np.array([p.price_state == "fresh" for p in places], dtype=bool),
        is_owned=np.array([p.is_owned for p in places], dtype=bool),
        num_machines=np.array([p.num_machines or _MANY for p in places], dtype=np.int64),
        is_joined=np.array([bool(p.parts) for p in places], dtype=bool),
        setup_s=column([0.0 if p.is_owned else setup_s for p in places]),
        granularity_s=column([t.granularity_s for t in terms]),
        minimum_s=column([max(t.minimum_s, t.commitment_s) for t in terms]),
        price_log_sigma=column([t.price_log_sigma for t in terms]),
        interruption_frac_per_month=column([t.interruption_frac_per_month[1] for t in terms]),
        wait_s=column([t.wait_s for t in terms]),
        storage_usd_per_s=_charged(storage_bytes, places, storage_usd_per_byte_month) / MONTH_S,
        egress_usd=_charged(egress_bytes, places, traffic_out_usd_per_byte),
        input_samples_per_s=column(input_samples_per_s),
    )


def _charged(
    num_bytes: float, places: Sequence[Place], usd_per_byte: Callable[[str], float | None]
) -> FloatArray:
    """What so many bytes cost in each place; nothing where none are stated."""
    if not num_bytes:
        return np.zeros(len(places))
    charges = [0.0 if p.is_owned else usd_per_byte(p.offer.cloud) for p in places]
    return num_bytes * np.array([np.nan if one is None else one for one in charges])


def num_devices(place: Place) -> int:
    """Devices of one machine; the processors of a CPU offer, and a part of a device, are one."""
    return 1 if place.device.kind == "cpu" else max(1, int(place.offer.num_devices))


def domain_of(place: Place) -> int:
    """Devices that the link between devices joins, in one machine or several."""
    return devices_per_domain(num_devices(place), place.links.device)


def _rated_power_w(place: Place) -> float | None:
    """Rated power of one device; of devices of two kinds, in the mean."""
    kinds = place.parts or (place,)
    rated = [(part.device.tdp_w, num_devices(part)) for part in kinds]
    total = sum((tdp_w or np.nan) * count for tdp_w, count in rated)
    return None if np.isnan(total) else total / sum(count for _, count in rated)


def _heat_w(place: Place) -> float | None:
    """All that machines draw becomes heat, in the user's room if they stand there."""
    if not place.is_owned:
        return 0.0
    drawn = [machine_power_w(part.device, num_devices(part)) for part in place.parts or (place,)]
    return None if None in drawn else sum(one or 0.0 for one in drawn)


def place_memory_bytes(place: Place) -> float | None:
    """Memory the job may fill: of the device, or of the machine where the CPU is the device."""
    is_cpu = place.device.kind == "cpu"
    return place.offer.host_memory_bytes if is_cpu else place.device.capacity_bytes


def place_terms(place: Place, *, today: date) -> RentalTerms:
    """How the time of a place is paid; a place without a price is paid by the second."""
    if place.is_owned or place.usd_per_hour is None:
        return RentalTerms(term="on-demand", usd_per_hour=place.usd_per_hour or 0.0)
    return rental_terms(place.offer, term="spot" if place.is_spot else place.term, today=today)
