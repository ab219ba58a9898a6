"""Prices that a user refreshed: kept beside the shipped facts, with history and a way back.

A folder holds one table per refresh, each with every quote in force, and the file ``current``,
which names the one that counts. A table is written whole before it is named, so that whoever dies
half-way leaves the old prices or the new ones.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime
from pathlib import Path

from paceline.catalog.quotes import HeldBack, PriceChange, Quote
from paceline.errors import InvalidInputError
from paceline.patterns import pattern
from paceline.values import dataclass
from paceline.writing import make_folder, user_folder, write_whole

FOLDER_VARIABLE = "PACELINE_OFFERS"
_CURRENT = "current"
_SHIPPED = "shipped"
_TABLE = pattern(r"\d{8}T\d{6}-\d{3}\.csv")
#: Of a kept table.
COLUMNS = tuple(field.name for field in fields(Quote))
_NUMBERS = frozenset(
    {
        "num_devices", "usd_per_hour", "spot_usd_per_hour", "device_memory_bytes",
        "host_memory_bytes", "lowest_usd_per_hour",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedResult:
    """What one feed brought.

    Attributes:
        feed: Its name.
        problem: Why nothing of it was taken; empty where it was.
        num_prices: Offers with a price of it.
        num_new: Offers that the catalogue did not have.
        num_left_out: Machines whose accelerator the catalogue does not know for certain.
    """

    feed: str
    problem: str = ""
    num_prices: int = 0
    num_new: int = 0
    num_left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """What a refresh brought.

    Attributes:
        table: Name of the table now in force; None where nothing was written.
        day: Day that the prices are of.
        changes: Prices that differ, and new offers, the largest move first.
        num_unchanged: Offers of which only the day is new.
        held_back: Doubtful prices, which were not taken.
        plan: What would now differ in a kept plan, in sentences; empty where none was given.
    """

    table: str | None
    day: date
    feeds: tuple[FeedResult, ...]
    changes: tuple[PriceChange, ...]
    num_unchanged: int
    held_back: tuple[HeldBack, ...]
    plan: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPrices:
    """One refresh that is kept.

    Attributes:
        name: Of its table.
        num_prices: Offers with a refreshed price.
        newest_on: Day of its newest price.
        is_current: Whether it is in force.
    """

    name: str
    num_prices: int
    newest_on: date | None
    is_current: bool


def offers_folder() -> Path:
    """Where refreshed prices are kept: ``PACELINE_OFFERS``, else the user's data folder."""
    return user_folder("data", "offers", variable=FOLDER_VARIABLE)


def current_quotes() -> tuple[Quote, ...]:
    """The quotes in force; none where nothing was refreshed.

    Raises:
        InvalidInputError: The table in force cannot be read.
    """
    name = current_name()
    return () if name is None else read_table(offers_folder() / name)


def current_name() -> str | None:
    """Name of the table in force; None where the shipped prices are."""
    try:
        name = (offers_folder() / _CURRENT).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return name if _TABLE.fullmatch(name) else None


def table_names() -> tuple[str, ...]:
    """Names of the tables that are kept, the newest first."""
    folder = offers_folder()
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return tuple(sorted(filter(_TABLE.fullmatch, names), reverse=True))


def keep_quotes(quotes: Sequence[Quote], now: datetime) -> str:
    """Write a table of quotes, put it in force, and return its name.

    Raises:
        InvalidInputError: The folder cannot be written.
    """
    folder = offers_folder()
    make_folder(folder)
    stamp, taken = f"{now:%Y%m%dT%H%M%S}", set(table_names())
    numbered = (f"{stamp}-{number:03d}.csv" for number in range(1, 1_000))
    name = next(name for name in numbered if name not in taken)
    write_whole(folder / name, _table_text(quotes))
    choose_table(name)
    return name


def choose_table(name: str | None) -> None:
    """Put a kept table in force; the shipped prices if None.

    Raises:
        InvalidInputError: No such table, or the folder cannot be written.
    """
    folder = offers_folder()
    if name is not None and name not in table_names():
        raise InvalidInputError(
            f"no prices named `{name}` are kept", hint="`paceline offers history` lists them"
        )
    make_folder(folder)
    write_whole(folder / _CURRENT, f"{name or _SHIPPED}\n")


def read_table(path: Path) -> tuple[Quote, ...]:
    """The quotes of a kept table.

    Raises:
        InvalidInputError: The file is missing or not as it was written.
    """
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
        return tuple(_quote(row) for row in rows)
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        raise InvalidInputError(
            f"the refreshed prices in `{path}` cannot be read",
            hint="`paceline offers rollback --shipped` goes back to the shipped ones",
        ) from None


def _table_text(quotes: Sequence[Quote]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for quote in quotes:
        writer.writerow(["" if (v := getattr(quote, c)) is None else v for c in COLUMNS])
    return out.getvalue()


def _quote(row: Mapping[str, str]) -> Quote:
    cells = {column: row[column] for column in COLUMNS}
    values = {c: (float(cell) if cell else None) for c, cell in cells.items() if c in _NUMBERS}
    return Quote(
        **{
            **cells,
            **values,
            "priced_on": date.fromisoformat(cells["priced_on"]),
            "num_vcpus": int(cells["num_vcpus"]) if cells["num_vcpus"] else None,
            "device_name": cells["device_name"] or None,
        }  # type: ignore[arg-type]
    )
