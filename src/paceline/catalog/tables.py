"""The shipped data files as entities. CSV in SI units; an empty cell is an unknown fact."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date
from functools import cache, lru_cache
from typing import Any, cast

from paceline.catalog.architectures import Generation, generation_finder, shipped_generations
from paceline.catalog.entities import (
    Catalog,
    Confidence,
    Device,
    Link,
    Offer,
    Source,
)
from paceline.shipped import read_as, shipped_rows

Row = dict[str, str]

_PEAK_PREFIX, _PEAK_SUFFIX = "peak_", "_flop_per_s"


def read_rows(table: str) -> Iterator[Row]:
    """Rows of one shipped table, as text."""
    return iter(shipped_rows("catalog", table))


class _ReadLate(Sequence[Offer]):
    """Offers that are read when the first is asked for: what is predicted of a device asks none."""

    def __init__(self, read: Callable[[], tuple[Offer, ...]]) -> None:
        self._read = cache(read)

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[Offer]:
        return iter(self._read())

    def __getitem__(self, row: Any) -> Any:
        return self._read()[row]

    def __eq__(self, other: object) -> bool:
        return self._read() == other

    __hash__ = None  # type: ignore[assignment]


@lru_cache(maxsize=1)
def shipped_catalog() -> Catalog:
    """The catalogue as shipped, without anything of the user's."""
    generations = shipped_generations()
    generation_of = generation_finder(generations)
    devices = tuple(_device(row, generation_of) for row in read_rows("devices.csv"))
    return Catalog(
        version=max(row["read_on"] for row in read_rows("devices.csv"))[:7],
        devices=devices,
        links=tuple(read_as(Link, row, source=_source(row)) for row in read_rows("links.csv")),
        offers=_ReadLate(lambda: tuple(_offer(row) for row in read_rows("offers.csv"))),
        generations=generations,
    )


def _device(row: Row, generation_of: Callable[[str, str | None], Generation]) -> Device:
    code = row["compute_capability"] or row["gfx_target"] or None
    return read_as(
        Device, row, peak_flop_per_s=_peaks(row), sources=_sources(row),
        generation=generation_of(row["architecture"], code),
    )  # fmt: skip


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


def _offer(row: Row) -> Offer:
    return read_as(
        Offer, row, name=f"{row['cloud']}/{row['instance_type']}", source=_source(row),
        has_rdma=bool(row["network_kind"]), is_retired=row["status"] == "retired",
        interruption_frac_per_month=_interruption(row),
        price_history=_history(row["price_history"]),
    )  # fmt: skip


def _source(row: Row) -> Source:
    """Where a row as a whole was read; of an offer, on the day of its price."""
    return Source(
        text=row["source"], read_on=_day(row.get("priced_on", "")),
        confidence=cast(Confidence, row["confidence"]),
    )  # fmt: skip


def _interruption(row: Row) -> tuple[float, float] | None:
    low, high = row["interruption_low_frac_per_month"], row["interruption_high_frac_per_month"]
    return (float(low), float(high)) if low and high else None


def _history(cell: str) -> tuple[tuple[str, float], ...]:
    pairs = (entry.partition("@") for entry in cell.split())
    return tuple((day, float(usd)) for usd, _, day in pairs)


def _day(cell: str) -> date | None:
    return date.fromisoformat(cell) if cell else None
