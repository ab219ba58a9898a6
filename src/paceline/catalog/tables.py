"""The shipped data files as entities. CSV in SI units; an empty cell is an unknown fact."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from functools import lru_cache
from typing import Literal, cast

from paceline.catalog.architectures import Generation, generation_finder, shipped_generations
from paceline.catalog.entities import (
    Catalog,
    Confidence,
    Device,
    DeviceClass,
    DeviceKind,
    Link,
    Offer,
    OfferStatus,
    Source,
)
from paceline.shipped import shipped_rows

Row = dict[str, str]

_PEAK_PREFIX, _PEAK_SUFFIX = "peak_", "_flop_per_s"


def read_rows(table: str) -> Iterator[Row]:
    """Rows of one shipped table, as text."""
    return iter(shipped_rows("catalog", table))


@lru_cache(maxsize=1)
def shipped_catalog() -> Catalog:
    """The catalogue as shipped, without anything of the user's."""
    generations = shipped_generations()
    generation_of = generation_finder(generations)
    devices = tuple(_device(row, generation_of) for row in read_rows("devices.csv"))
    offers = tuple(_offer(row) for row in read_rows("offers.csv"))
    return Catalog(
        version=max(row["read_on"] for row in read_rows("devices.csv"))[:7],
        devices=devices,
        links=tuple(_link(row) for row in read_rows("links.csv")),
        offers=offers,
        generations=generations,
    )


def _device(row: Row, generation_of: Callable[[str, str | None], Generation]) -> Device:
    code = row["compute_capability"] or row["gfx_target"] or None
    return Device(
        name=row["name"],
        family=row["family"],
        is_default_variant=row["is_default_variant"] == "yes",
        vendor=row["vendor"],
        architecture=row["architecture"],
        kind=cast(DeviceKind, row["kind"]),
        device_class=cast(DeviceClass, row["device_class"]),
        compute_capability=row["compute_capability"] or None,
        year=_integer(row["year"]),
        num_sms=_integer(row["num_sms"]),
        boost_clock_hz=_number(row["boost_clock_hz"]),
        peak_flop_per_s=_peaks(row),
        memory_bytes=_number(row["memory_bytes"]),
        memory_type=row["memory_type"],
        memory_bytes_per_s=_number(row["memory_bytes_per_s"]),
        l2_bytes=_number(row["l2_bytes"]),
        tdp_w=_number(row["tdp_w"]),
        pcie_bytes_per_s=_number(row["pcie_bytes_per_s"]),
        fabric=row["fabric"] or None,
        fabric_bytes_per_s=_number(row["fabric_bytes_per_s"]),
        form_factor=row["form_factor"],
        cooling=row["cooling"],
        price_usd=_number(row["price_usd"]),
        price_on=_day(row["price_on"]),
        measured_bf16_flop_per_s=_number(row["measured_bf16_flop_per_s"]),
        sources=_sources(row),
        note=row["note"],
        gfx_target=row["gfx_target"] or None,
        checked_fields=tuple(row["checked_fields"].split()),
        usable_memory_bytes=_number(row["usable_memory_bytes"]),
        base_clock_hz=_number(row["base_clock_hz"]),
        same_chip_as=row["same_chip_as"] or None,
        generation=generation_of(row["architecture"], code),
    )


def _peaks(row: Row) -> dict[str, float]:
    names = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8", "fp16_vector")
    cells = ((name, row[f"{_PEAK_PREFIX}{name}{_PEAK_SUFFIX}"]) for name in names)
    return {name: float(cell) for name, cell in cells if cell}


def _sources(row: Row) -> tuple[Source, ...]:
    read_on, confidence = _day(row["read_on"]), cast(Confidence, row["confidence"])
    return tuple(
        Source(
            text=text,
            read_on=read_on,
            confidence="recalled" if "(recalled" in text else confidence,
        )
        for text in row["source"].split("; ")
    )


def _link(row: Row) -> Link:
    return Link(
        name=row["name"],
        scope=cast(Literal["device", "node", "host"], row["scope"]),
        kind=row["kind"],
        bytes_per_s=float(row["bytes_per_s"]),
        latency_s=float(row["latency_s"]),
        measured_bus_bytes_per_s=_number(row["measured_bus_bytes_per_s"]),
        reduces_in_switch=row["reduces_in_switch"] == "yes",
        source=Source(text=row["source"], confidence=cast(Confidence, row["confidence"])),
        measured_wire_frac=_number(row["measured_wire_frac"]),
        note=row["note"],
    )


def _offer(row: Row) -> Offer:
    return Offer(
        name=f"{row['cloud']}/{row['instance_type']}",
        cloud=row["cloud"],
        instance_type=row["instance_type"],
        device_name=row["device_name"] or None,
        accelerator=row["accelerator"],
        num_devices=float(row["num_devices"]),
        num_vcpus=_integer(row["num_vcpus"]),
        host_memory_bytes=_number(row["host_memory_bytes"]),
        interconnect=row["interconnect"],
        network_bytes_per_s=_number(row["network_bytes_per_s"]),
        has_rdma=bool(row["network_kind"]),
        usd_per_hour=_number(row["usd_per_hour"]),
        spot_usd_per_hour=_number(row["spot_usd_per_hour"]),
        region=row["region"],
        priced_on=_day(row["priced_on"]),
        spot_on=_day(row["spot_on"]),
        interruption_frac_per_month=_interruption(row),
        is_retired=row["status"] == "retired",
        source=Source(
            text=row["source"],
            read_on=_day(row["priced_on"]),
            confidence=cast(Confidence, row["confidence"]),
        ),
        note=row["note"],
        status=cast(OfferStatus, row["status"]),
        ends_on=_day(row["ends_on"]),
        is_price_complete=row["is_price_complete"] == "yes",
        network_kind=row["network_kind"],
        lowest_usd_per_hour=_number(row["lowest_usd_per_hour"]),
        lowest_region=row["lowest_region"],
        price_history=_history(row["price_history"]),
    )


def _interruption(row: Row) -> tuple[float, float] | None:
    low, high = row["interruption_low_frac_per_month"], row["interruption_high_frac_per_month"]
    return (float(low), float(high)) if low and high else None


def _history(cell: str) -> tuple[tuple[str, float], ...]:
    pairs = (entry.partition("@") for entry in cell.split())
    return tuple((day, float(usd)) for usd, _, day in pairs)


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


def _integer(cell: str) -> int | None:
    return int(cell) if cell else None


def _day(cell: str) -> date | None:
    return date.fromisoformat(cell) if cell else None
