"""Price feeds: the text of one as quotes. Each format is a function from text to quotes.

SkyPilot's catalogue and gpuhunt's are CSV tables, Azure's retail prices are JSON pages, and a
user's own table is CSV with the columns of the catalogue. Nothing is fetched here. A table that is
not what it should be (a column renamed, a page of HTML, cut off) is refused whole.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from typing import Any

from paceline.catalog.entities import Catalog, Offer
from paceline.catalog.quotes import Quote, devices_meant
from paceline.errors import InvalidInputError
from paceline.shipped import shipped_toml
from paceline.values import dataclass

_BYTES_PER_GIB, _BYTES_PER_MIB, _BYTES_PER_GB = 2**30, 2**20, 1e9
_EXAMPLE = "docs/how-to/prices.md shows each format"
_MAX_ROWS = 500_000
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Where prices are published.

    Attributes:
        name: By which a user names it.
        url: Address, HTTPS; or path of a file.
        format: Key of the format; found by its columns if empty.
        cloud: Provider of every row; empty where the rows say it.
        next_page: Key of the address of the page that follows; empty where there is one page.
    """

    name: str
    url: str
    format: str = ""
    cloud: str = ""
    next_page: str = ""


@dataclass(frozen=True, slots=True)
class _Seen:
    """Whose prices a text holds, and of which day."""

    feed: Feed
    day: date


@cache
def shipped_feeds() -> Mapping[str, Feed]:
    """The feeds that are known, by name."""
    table = shipped_toml("catalog", "feeds.toml")
    return {name: Feed(name=name, **entry) for name, entry in table.items()}


def read_quotes(text: str, feed: Feed, catalog: Catalog, day: date) -> tuple[Quote, ...]:
    """Quotes of machines with accelerators in the text of a feed.

    Args:
        text: As published, all pages one after the other.
        feed: What is known of it.
        catalog: What exists: some feeds price a machine and its accelerators apart, and only the
            catalogue knows which belong together.
        day: On which the prices were seen.

    Raises:
        InvalidInputError: Not a table of that format, or cut off.
    """
    if text.lstrip()[:1] == "{":
        return tuple(_azure(_json_pages(text, feed), _Seen(feed, day)))
    rows = _csv_rows(text, feed)
    form = feed.format or _format_of(rows[0], feed)
    if form not in _TABLES or missing_columns(form, rows[0]):
        missing = ", ".join(missing_columns(form, rows[0])) if form in _TABLES else "a known format"
        raise InvalidInputError(f"the feed `{feed.name}` lacks {missing}", hint=_EXAMPLE)
    return tuple(_TABLES[form].read(rows, _Seen(feed, day), catalog))


def missing_columns(form: str, row: Row) -> tuple[str, ...]:
    """Columns that a format needs and a row lacks."""
    return tuple(column for column in _TABLES[form].columns if column not in row)


def _format_of(row: Row, feed: Feed) -> str:
    for form in _TABLES:
        if not missing_columns(form, row):
            return form
    raise InvalidInputError(
        f"`{feed.name}` is no table of prices that is known: it has "
        f"{', '.join(str(column) for column in row)[:120]}",
        hint=_EXAMPLE,
    )


def _csv_rows(text: str, feed: Feed) -> list[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows: list[Row] = []
    try:
        for row in reader:
            rows.append(row)
            if None in row or None in row.values():
                raise InvalidInputError(
                    f"line {reader.line_num} of the feed `{feed.name}` is cut off, or has a cell "
                    "too many",
                    hint="ask for it again; the prices stay as they were",
                )
            if len(rows) > _MAX_ROWS:
                raise InvalidInputError(
                    f"the feed `{feed.name}` has more than {_MAX_ROWS:,} rows", hint=_EXAMPLE
                )
    except csv.Error as error:
        raise InvalidInputError(
            f"the feed `{feed.name}` is no CSV table: {error}", hint=_EXAMPLE
        ) from None
    if not rows:
        raise InvalidInputError(f"the feed `{feed.name}` has no row", hint=_EXAMPLE)
    return rows


def _json_pages(text: str, feed: Feed) -> Iterator[Mapping[str, Any]]:
    decoder, position = json.JSONDecoder(), 0
    while position < len(text.rstrip()):
        try:
            page, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            raise InvalidInputError(
                f"the feed `{feed.name}` is no JSON, or cut off", hint=_EXAMPLE
            ) from None
        items = page.get("Items") if isinstance(page, dict) else None
        if not isinstance(items, list):
            raise InvalidInputError(f"the feed `{feed.name}` lacks Items", hint=_EXAMPLE)
        yield from (item for item in items if isinstance(item, dict))
        position += len(text[position:]) - len(text[position:].lstrip())


def _skypilot(rows: Sequence[Row], seen: _Seen, catalog: Catalog) -> Iterator[Quote]:
    """SkyPilot's catalogue, version 8: a row for each machine and zone.

    Where the provider prices machines and accelerators apart, an accelerator has rows without a
    machine; the sum is the price of a machine that the catalogue knows.
    """
    apart = [row for row in rows if not row["InstanceType"] and row["AcceleratorName"]]
    known = {o.instance_type: o for o in catalog.offers if o.cloud == seen.feed.cloud}
    for row in rows:
        if row["InstanceType"] and row["AcceleratorName"]:
            yield _skypilot_quote(row, seen)
        elif apart and row["InstanceType"] in known:
            yield from _with_accelerators(row, apart, known[row["InstanceType"]], seen, catalog)


def _skypilot_quote(row: Row, seen: _Seen) -> Quote:
    return Quote(
        cloud=seen.feed.cloud,
        instance_type=row["InstanceType"],
        region=row["Region"],
        accelerator=row["AcceleratorName"],
        num_devices=_number(row["AcceleratorCount"]),
        device_memory_bytes=_skypilot_memory_bytes(row.get("GpuInfo", "")),
        usd_per_hour=_number(row["Price"]),
        spot_usd_per_hour=_optional(row["SpotPrice"]),
        priced_on=seen.day,
        source=_source(seen),
        num_vcpus=_whole(row["vCPUs"]),
        host_memory_bytes=_scaled(row["MemoryGiB"], _BYTES_PER_GIB),
    )


def _with_accelerators(
    machine: Row, accelerators: Sequence[Row], offer: Offer, seen: _Seen, catalog: Catalog
) -> Iterator[Quote]:
    matching = _accelerators_of(offer, accelerators, catalog)
    price = next((row for row in matching if row["Region"] == machine["Region"]), None)
    if price is not None:
        quote = _skypilot_quote({**machine, **_accelerator_cells(price)}, seen)
        spots = (_optional(machine["SpotPrice"]), _optional(price["SpotPrice"]))
        known_spots = [spot for spot in spots if spot is not None]
        yield replace(
            quote,
            usd_per_hour=_number(machine["Price"]) + _number(price["Price"]),
            spot_usd_per_hour=sum(known_spots) if len(known_spots) == len(spots) else None,
        )


def _accelerators_of(offer: Offer, rows: Sequence[Row], catalog: Catalog) -> Iterator[Row]:
    for row in rows:
        if _number(row["AcceleratorCount"]) == offer.num_devices:
            meant = devices_meant(catalog, row["AcceleratorName"], words=offer.instance_type)
            if offer.device_name in {device.name for device in meant}:
                yield row


def _accelerator_cells(row: Row) -> Row:
    return {column: row[column] for column in ("AcceleratorName", "AcceleratorCount", "GpuInfo")}


def _skypilot_memory_bytes(cell: str) -> float | None:
    """Memory of one device: rows write ``SizeInMiB`` in a dictionary, JSON's or Python's.

    Values below a thousand are gigabytes under a wrong label, as some providers' rows have them.
    """
    _, found, after = cell.replace("'", '"').partition('"SizeInMiB":')
    size = _number(after.split("}")[0].split(",")[0].strip()) if found else math.nan
    if not math.isfinite(size):
        return None
    return size * (_BYTES_PER_MIB if size > 1_000 else _BYTES_PER_GB)


def _gpuhunt(rows: Sequence[Row], seen: _Seen, _catalog: Catalog) -> Iterator[Quote]:
    """The catalogue of gpuhunt, version 1: on-demand and spot prices in rows of their own."""
    spots: dict[tuple[str, str], float] = {}
    for row in rows:
        if row["spot"] == "True":
            spots[row["instance_name"], row["location"]] = _number(row["price"])
    for row in rows:
        if row["spot"] != "True" and row["gpu_name"]:
            yield Quote(
                cloud=seen.feed.cloud or row.get("provider", ""),
                instance_type=row["instance_name"],
                region=row["location"],
                accelerator=row["gpu_name"],
                num_devices=_number(row["gpu_count"]),
                device_memory_bytes=_scaled(row["gpu_memory"], _BYTES_PER_GB),
                usd_per_hour=_number(row["price"]),
                spot_usd_per_hour=spots.get((row["instance_name"], row["location"])),
                priced_on=seen.day,
                source=_source(seen),
                num_vcpus=_whole(row["cpu"]),
                host_memory_bytes=_scaled(row["memory"], _BYTES_PER_GIB),
            )


def _own(rows: Sequence[Row], seen: _Seen, _catalog: Catalog) -> Iterator[Quote]:
    """A user's own table, with the columns of the catalogue; ``priced_on`` may differ by row."""
    for row in rows:
        yield Quote(
            cloud=row["cloud"],
            instance_type=row["instance_type"],
            region=row.get("region", ""),
            accelerator=row["accelerator"],
            num_devices=_number(row["num_devices"]),
            usd_per_hour=_number(row["usd_per_hour"]),
            spot_usd_per_hour=_optional(row.get("spot_usd_per_hour", "")),
            priced_on=_day(row.get("priced_on", ""), seen),
            source=_source(seen),
            currency=row.get("currency", "USD"),
            num_vcpus=_whole(row.get("num_vcpus", "")),
            host_memory_bytes=_optional(row.get("host_memory_bytes", "")),
        )


def _azure(items: Iterator[Mapping[str, Any]], seen: _Seen) -> Iterator[Quote]:
    """Azure's retail prices: Linux machines by the hour; their accelerators are the catalogue's."""
    spots: dict[tuple[str, str], float] = {}
    priced: list[Mapping[str, Any]] = []
    for item in items:
        name = str(item.get("skuName", ""))
        if item.get("unitOfMeasure") != "1 Hour" or "Windows" in str(item.get("productName", "")):
            continue
        key = (str(item.get("armSkuName", "")), str(item.get("armRegionName", "")))
        if name.endswith("Spot"):
            spots[key] = _number(str(item.get("retailPrice")))
        elif not name.endswith("Low Priority"):
            priced.append(item)
    for item in priced:
        key = (str(item.get("armSkuName", "")), str(item.get("armRegionName", "")))
        yield Quote(
            cloud=seen.feed.cloud or "azure",
            instance_type=key[0],
            region=key[1],
            accelerator="",
            num_devices=None,
            usd_per_hour=_number(str(item.get("retailPrice"))),
            spot_usd_per_hour=spots.get(key),
            priced_on=seen.day,
            source=_source(seen),
            currency=str(item.get("currencyCode", "")),
        )


@dataclass(frozen=True, slots=True)
class _Table:
    columns: tuple[str, ...]
    read: Callable[[Sequence[Row], _Seen, Catalog], Iterator[Quote]]


_TABLES = {
    "skypilot": _Table(
        (
            "InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "Price",
            "SpotPrice", "Region",
        ),
        _skypilot,
    ),
    "gpuhunt": _Table(
        (
            "instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name",
            "gpu_memory", "spot",
        ),
        _gpuhunt,
    ),
    "paceline": _Table(
        ("cloud", "instance_type", "accelerator", "num_devices", "usd_per_hour"), _own
    ),
}  # fmt: skip


def _source(seen: _Seen) -> str:
    return f"feed {seen.feed.name} ({seen.feed.url.partition('?')[0]})"


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _optional(cell: str) -> float | None:
    return _number(cell) if cell.strip() else None


def _whole(cell: str) -> int | None:
    number = _number(cell)
    return int(number) if math.isfinite(number) else None


def _scaled(cell: str, unit: float) -> float | None:
    number = _number(cell)
    return number * unit if math.isfinite(number) and number > 0 else None


def _day(cell: str, seen: _Seen) -> date:
    try:
        return date.fromisoformat(cell) if cell else seen.day
    except ValueError:
        raise InvalidInputError(
            f"`{cell[:40]}` in the feed `{seen.feed.name}` is no day", hint="such as 2026-11-23"
        ) from None
