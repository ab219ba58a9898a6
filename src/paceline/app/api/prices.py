"""The public functions that refresh prices: `offers_refresh`, its history and the way back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from paceline.app.requests.kept_plan import plan_moves
from paceline.catalog.entities import Catalog
from paceline.catalog.feeds import Feed, read_quotes, shipped_feeds
from paceline.catalog.quotes import PriceChange, Quote, Settled, settle, with_quotes
from paceline.catalog.refreshed import (
    FeedResult,
    KeptPrices,
    Refresh,
    choose_table,
    current_name,
    current_quotes,
    keep_quotes,
    offers_folder,
    read_table,
    table_names,
)
from paceline.catalog.tables import shipped_catalog
from paceline.errors import InvalidInputError, PacelineError
from paceline.planning.goal.files import read_plan


def offers_refresh(
    feeds: Sequence[str] = (),
    *,
    seen_on: str | None = None,
    cloud: str | None = None,
    dry_run: bool = False,
    plan: Path | None = None,
) -> Refresh:
    """Read prices from feeds, hold them against the catalogue, and put the credible ones in force.

    Nothing else in paceline asks another machine for anything.

    Args:
        feeds: Names of known feeds, HTTPS addresses or files; every known feed if empty.
        seen_on: Day on which the prices of a file were seen, such as ``2026-11-23``; a file whose
            rows have no ``priced_on`` needs it. Prices of an address are today's.
        cloud: Provider of a table of your own whose rows do not say it.
        dry_run: Say what would change, and write nothing.
        plan: File of a kept plan; it is asked again, and the refresh says what would now differ.

    Raises:
        UnknownNameError: No such feed.
        InvalidInputError: No feed could be read, or none brought a price that is credible.
    """
    kept = None if plan is None else read_plan(plan)
    asked = [_feed(name, cloud) for name in feeds] or list(shipped_feeds().values())
    today = datetime.now(UTC).date()
    day = today if seen_on is None else _read_day(seen_on, today)
    catalog = shipped_catalog()
    before = current_quotes()
    known = with_quotes(catalog, before)
    results: list[FeedResult] = []
    settled: list[Settled] = []
    for feed in asked:
        result, found = _read(feed, known, day, is_dated=seen_on is not None)
        results.append(result)
        settled += [found] if found is not None else []
    _check_any(results, settled)
    merged = {quote.name: quote for quote in before}
    merged |= {quote.name: quote for one in settled for quote in one.quotes}
    quotes = tuple(merged.values())
    table = None if dry_run else keep_quotes(quotes, datetime.now(UTC))
    return Refresh(
        table=table,
        day=day,
        feeds=tuple(results),
        changes=tuple(sorted((c for s in settled for c in s.changes), key=_size_of_change)),
        num_unchanged=sum(one.num_unchanged for one in settled),
        held_back=tuple(held for one in settled for held in one.held_back),
        plan=() if kept is None else plan_moves(kept, with_quotes(catalog, quotes), today),
    )


def offers_history() -> tuple[KeptPrices, ...]:
    """The refreshes that are kept, the newest first."""
    current = current_name()
    return tuple(_kept(name, current) for name in table_names())


def offers_rollback(name: str | None = None, *, shipped: bool = False) -> KeptPrices | None:
    """Put the prices of an earlier refresh in force.

    Args:
        name: Of the refresh; the one before the one in force if None.
        shipped: Go back to the prices that paceline ships with.

    Returns:
        What is in force now; None where the shipped prices are.

    Raises:
        InvalidInputError: No such refresh, or nothing was refreshed.
    """
    if name is not None and shipped:
        raise InvalidInputError(
            "--shipped and the name of a refresh say two things", hint="give one of them"
        )
    if current_name() is None and name is None:
        raise InvalidInputError(
            "the shipped prices are in force already", hint="`paceline offers history` lists others"
        )
    chosen = None if shipped else name or _one_before(current_name())
    choose_table(chosen)
    return None if chosen is None else _kept(chosen, chosen)


def _feed(name: str, cloud: str | None) -> Feed:
    known = shipped_feeds()
    if name in known:
        return known[name]
    if "://" in name or os.path.exists(name):
        return Feed(name=Path(name.partition("?")[0]).name, url=name, cloud=cloud or "")
    from paceline.errors import UnknownNameError

    raise UnknownNameError.from_name(
        "feed", name, list(known), command="paceline offers refresh --help"
    )


def _read(
    feed: Feed, catalog: Catalog, day: date, *, is_dated: bool
) -> tuple[FeedResult, Settled | None]:
    """A feed held against the catalogue; None with the problem where nothing of it is taken."""
    from paceline.app.fetching import read_address

    try:
        text = read_address(feed.url, next_page=feed.next_page)
        _check_dated(feed, text, is_dated=is_dated)
        settled = settle(catalog, _with_cloud(read_quotes(text, feed, catalog, day), feed))
    except PacelineError as error:
        return FeedResult(feed=feed.name, problem=str(error)), None
    if not settled.is_trustworthy:
        return FeedResult(feed=feed.name, problem=_distrust(settled)), None
    known = {offer.name for offer in catalog.offers}
    return FeedResult(
        feed=feed.name,
        num_prices=len(settled.quotes),
        num_new=sum(quote.name not in known for quote in settled.quotes),
        num_left_out=settled.num_left_out,
    ), settled


def _check_dated(feed: Feed, text: str, *, is_dated: bool) -> None:
    is_file = "://" not in feed.url
    if is_file and not is_dated and "priced_on" not in text.partition("\n")[0]:
        raise InvalidInputError(
            f"`{feed.name}` does not say of which day its prices are",
            hint="say it with --seen-on 2026-11-23, or in a column priced_on",
        )


def _with_cloud(quotes: Sequence[Quote], feed: Feed) -> Sequence[Quote]:
    if any(not quote.cloud for quote in quotes):
        raise InvalidInputError(
            f"`{feed.name}` does not say whose prices it has", hint="say it with --cloud lambda"
        )
    return quotes


def _distrust(settled: Settled) -> str:
    if not settled.held_back:
        return "no machine in it has an accelerator that the catalogue knows"
    first, num_held = settled.held_back[0], len(settled.held_back)
    return (
        f"{num_held:,} of {num_held + len(settled.quotes):,} prices are doubtful, so none is "
        f"taken: {first.name}: {first.reason}"
    )


def _check_any(results: Sequence[FeedResult], settled: Sequence[Settled]) -> None:
    if not settled:
        first = results[0]
        more = f" (and {len(results) - 1} more)" if len(results) > 1 else ""
        raise InvalidInputError(
            f"no prices were taken: {first.feed}: {first.problem}{more}",
            hint="the prices stay as they were; a file of your own works offline: "
            "docs/how-to/prices.md",
        )


def _size_of_change(change: PriceChange) -> tuple[float, str]:
    old = change.old_usd_per_hour
    ratio = change.new_usd_per_hour / old if old else 1.0
    return (-max(ratio, 1 / ratio), change.name)


def _read_day(text: str, today: date) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(f"`{text}` is no day", hint="such as 2026-11-23") from None
    if day > today:
        raise InvalidInputError(f"{day} has not come yet", hint="the day the prices were seen")
    return day


def _one_before(current: str | None) -> str | None:
    older = [name for name in table_names() if current is None or name < current]
    return next(iter(older), None)


def _kept(name: str, current: str | None) -> KeptPrices:
    quotes = read_table(offers_folder() / name)
    return KeptPrices(
        name=name,
        num_prices=len(quotes),
        newest_on=max((quote.priced_on for quote in quotes), default=None),
        is_current=name == current,
    )
