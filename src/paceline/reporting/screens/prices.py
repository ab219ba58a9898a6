"""Refreshed prices as text and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.catalog.quotes import PriceChange
from paceline.catalog.refreshed import KeptPrices, Refresh
from paceline.reporting.tables import Table, header

#: More changes than this are counted, not listed.
_MAX_LINES = 20


def feed_table(page: Refresh) -> Table:
    """One line per feed."""
    return Table(
        columns=header("feed | prices > | new > | left out > -1 | problem ~20"),
        rows=tuple(
            (one.feed, str(one.num_prices), str(one.num_new), str(one.num_left_out), one.problem)
            for one in page.feeds
        ),
    )


def refresh_lines(page: Refresh) -> Iterator[str]:
    """What the refresh comes to, in sentences."""
    num_new = sum(one.num_new for one in page.feeds)
    moved = len(page.changes) - num_new
    held = f", {len(page.held_back):,} held back" if page.held_back else ""
    yield (
        f"{moved:,} prices moved, {num_new:,} offers are new, {page.num_unchanged:,} stay{held}; "
        f"prices of {page.day}"
    )
    if page.table is None:
        yield "nothing was written (--dry-run)"
    else:
        yield f"in force as {page.table} · paceline offers rollback goes back"
    yield from page.plan


def change_table(page: Refresh) -> Table:
    """The largest moves, then new offers."""
    rows = [
        (c.name, _usd(c.old_usd_per_hour), _usd(c.new_usd_per_hour), _move(c)) for c in page.changes
    ]
    return _first_lines("offer ~20 | USD/h before > | now > | change >", rows)


def held_back_table(page: Refresh) -> Table:
    """Doubtful prices with the reason."""
    rows = [
        (h.name, _usd(h.old_usd_per_hour), _usd(h.quoted_usd_per_hour), h.reason)
        for h in page.held_back
    ]
    return _first_lines("held back ~20 | USD/h stays > | quoted > | because ~20", rows)


def _first_lines(columns: str, rows: Sequence[tuple[str, str, str, str]]) -> Table:
    """So many rows, and how many more there are."""
    more = len(rows) - _MAX_LINES
    rest = [(f"… {more:,} more (--json has all)", "", "", "")] if more > 0 else []
    return Table(columns=header(columns), rows=(*rows[:_MAX_LINES], *rest))


def history_table(kept: Sequence[KeptPrices]) -> Table:
    """One line per refresh."""
    return Table(
        columns=header("refresh | prices > | newest | "),
        rows=tuple(
            (k.name, str(k.num_prices), str(k.newest_on), "in force" if k.is_current else "")
            for k in kept
        ),
    )


def _usd(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _move(change: PriceChange) -> str:
    old = change.old_usd_per_hour
    return "new" if not old else f"{(change.new_usd_per_hour / old - 1) * 100:+.0f} %"
