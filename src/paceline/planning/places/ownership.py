"""Rent or buy: what an owned machine costs, and where its curve crosses the rented one's.

Owning costs the purchase, then a running rate (electricity, upkeep, staff, space, capital), and
gives back what the machine is still worth; renting costs the hours used. Both are functions of
the months the machine is kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import lru_cache

from paceline.catalog.tables import read_rows
from paceline.errors import UnknownNameError
from paceline.shipped import read_as
from paceline.values import dataclass

HOURS_PER_MONTH = 365.25 * 24 / 12
#: Boards of a server, and how rows of prices name a board and such a server.
_BOARDS = 8
_BOARD, _SERVER = re.compile(r"(\w+) GPU \(street\)"), re.compile(rf"{_BOARDS}x (\w+) ")
#: Nothing is planned further ahead than this.
MAX_MONTHS = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipFact:
    """One figure of the shipped ownership table.

    Attributes:
        category: Such as ``electricity`` or ``depreciation``.
        value: The figure, in ``unit``.
        unit: Such as ``usd_per_kwh`` or ``years``.
        low: Lower end where given.
        high: Upper end where given.
        region: Where it holds; empty for everywhere.
        dated: Day of the figure; None where that is not known.
        source: Where it was read, with its date.
        confidence: ``high``, ``medium`` or ``low``.
    """

    category: str
    item: str
    value: float
    unit: str
    low: float | None
    high: float | None
    region: str
    dated: date | None
    source: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedCosts:
    """What an owned machine costs. Rates are per year of ownership, prices in US dollars.

    Attributes:
        price_usd: Purchase of the whole machine.
        busy_power_w: Drawn while it works, without cooling.
        idle_power_w: Drawn while it waits.
        usd_per_kwh: Electricity.
        pue: Power of the building over power of the machine (cooling).
        utilisation_frac: Share of all hours in which it works.
        lifetime_years: After which it is worth ``residual_frac`` of its price.
        residual_frac: Resale value at the end of its lifetime; zero means it is never sold.
        upkeep_frac_per_year: Parts, repair and support, of the price.
        staff_usd_per_year: Share of a person.
        space_usd_per_kw_month: Colocation of its busy power.
        capital_frac_per_year: Cost of the money bound, of the price.
    """

    price_usd: float
    busy_power_w: float
    idle_power_w: float = 0.0
    usd_per_kwh: float = 0.0
    pue: float = 1.0
    utilisation_frac: float = 1.0
    lifetime_years: float = 4.0
    residual_frac: float = 0.0
    upkeep_frac_per_year: float = 0.0
    staff_usd_per_year: float = 0.0
    space_usd_per_kw_month: float = 0.0
    capital_frac_per_year: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipBill:
    """Total cost of owning over a number of months, by part; ``resale_usd`` is subtracted."""

    purchase_usd: float
    electricity_usd: float
    upkeep_usd: float
    staff_usd: float
    space_usd: float
    capital_usd: float
    resale_usd: float
    total_usd: float
    usd_per_busy_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What one input does to the total over the horizon, others held."""

    name: str
    low_input: float
    high_input: float
    low_usd: float
    high_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RentOrBuy:
    """The comparison over a horizon.

    Attributes:
        own_usd: Owning for the horizon, the machine sold at its end.
        rent_usd: Renting the same work for the horizon.
        cheaper: ``own`` or ``rent``.
        break_even_months: First month from which owning is cheaper; None if not within 20 years.
        break_even_busy_hours: Hours of work by then.
        break_even_utilisation_frac: Share of hours above which owning is cheaper over the horizon;
            None if even full use does not pay.
        sensitivity: What each uncertain input does to the cost of owning, largest first.
    """

    own_usd: float
    rent_usd: float
    cheaper: str
    break_even_months: float | None
    break_even_busy_hours: float | None
    break_even_utilisation_frac: float | None
    sensitivity: tuple[Sensitivity, ...]


def ownership_bill(costs: OwnedCosts, months: float) -> OwnershipBill:
    """Total cost of owning for ``months``, sold at the end at what it is still worth.

    The value falls by the same factor every month, down to ``residual_frac`` at the end of the
    lifetime; a machine with no residual value is never sold.
    """
    years, price = months / 12, costs.price_usd
    parts = {
        "purchase_usd": price,
        "electricity_usd": _electricity_usd_per_month(costs) * months,
        "upkeep_usd": costs.upkeep_frac_per_year * price * years,
        "staff_usd": costs.staff_usd_per_year * years,
        "space_usd": costs.space_usd_per_kw_month * costs.busy_power_w / 1e3 * months,
        "capital_usd": costs.capital_frac_per_year * price * years,
    }
    resale_usd = _resale_usd(costs, years)
    total_usd = sum(parts.values()) - resale_usd
    busy_hours = months * HOURS_PER_MONTH * costs.utilisation_frac
    return OwnershipBill(
        **parts,
        resale_usd=resale_usd,
        total_usd=total_usd,
        usd_per_busy_hour=total_usd / busy_hours if busy_hours > 0 else math.inf,
    )


def rent_usd(usd_per_busy_hour: float, costs: OwnedCosts, months: float) -> float:
    """Renting the same busy hours for ``months``."""
    return usd_per_busy_hour * costs.utilisation_frac * HOURS_PER_MONTH * months


def break_even_months(costs: OwnedCosts, rent_usd_per_busy_hour: float) -> float | None:
    """First month from which owning costs no more than renting; None within 20 years never."""

    def gain_usd(months: float) -> float:
        rented = rent_usd(rent_usd_per_busy_hour, costs, months)
        return rented - ownership_bill(costs, months).total_usd

    return _first_root(gain_usd, MAX_MONTHS)


def break_even_utilisation_frac(
    costs: OwnedCosts, rent_usd_per_busy_hour: float, months: float
) -> float | None:
    """Share of hours above which owning for ``months`` pays; None if even full use does not."""

    def gain_usd(utilisation_frac: float) -> float:
        """What owning saves at a share of hours in use."""
        used = replace(costs, utilisation_frac=utilisation_frac)
        rented = rent_usd(rent_usd_per_busy_hour, used, months)
        return rented - ownership_bill(used, months).total_usd

    return _first_root(gain_usd, 1.0)


def rent_or_buy(
    costs: OwnedCosts,
    rent_usd_per_busy_hour: float,
    months: float,
    ranges: Iterable[tuple[str, float, float]] = (),
) -> RentOrBuy:
    """Compare owning with renting the same work.

    Args:
        costs: Of the owned machine.
        rent_usd_per_busy_hour: Rent of as much machine as does in an hour what the owned one does;
            scale it by the ratio of their speeds.
        months: Horizon.
        ranges: Uncertain inputs as (field of ``OwnedCosts``, low, high).
    """
    own = ownership_bill(costs, months).total_usd
    rent = rent_usd(rent_usd_per_busy_hour, costs, months)
    crossing = break_even_months(costs, rent_usd_per_busy_hour)
    hours_per_month = HOURS_PER_MONTH * costs.utilisation_frac
    return RentOrBuy(
        own_usd=own,
        rent_usd=rent,
        cheaper="own" if own < rent else "rent",
        break_even_months=crossing,
        break_even_busy_hours=None if crossing is None else crossing * hours_per_month,
        break_even_utilisation_frac=break_even_utilisation_frac(
            costs, rent_usd_per_busy_hour, months
        ),
        sensitivity=sensitivity(costs, months, ranges),
    )


def sensitivity(
    costs: OwnedCosts, months: float, ranges: Iterable[tuple[str, float, float]]
) -> tuple[Sensitivity, ...]:
    """Total cost with each input at its ends, the others held; the largest swing first."""
    swings = [
        Sensitivity(
            name=name,
            low_input=low,
            high_input=high,
            low_usd=ownership_bill(replace(costs, **{name: low}), months).total_usd,
            high_usd=ownership_bill(replace(costs, **{name: high}), months).total_usd,
        )
        for name, low, high in ranges
    ]
    return tuple(sorted(swings, key=lambda s: abs(s.high_usd - s.low_usd), reverse=True))


@lru_cache(maxsize=1)
def ownership_facts() -> tuple[OwnershipFact, ...]:
    """The shipped figures on owning: prices of systems, electricity, cooling, upkeep.

    With servers of eight boards whose own price nobody published, as what their parts cost.
    """
    shipped = tuple(
        read_as(OwnershipFact, row, source=f"{row['source']} ({row['dated'] or 'undated'})")
        for row in read_rows("ownership.csv")
    )
    return (*shipped, *_servers_by_parts(shipped))


def _servers_by_parts(facts: Sequence[OwnershipFact]) -> Iterator[OwnershipFact]:
    """Eight boards at their street price, in what the newest known server has beside its own."""
    boards = {found[1]: fact for fact in facts if (found := _BOARD.fullmatch(fact.item))}
    servers = {
        found[1]: fact
        for fact in sorted(facts, key=lambda fact: fact.dated or date.min)
        if fact.unit == "usd" and (found := _SERVER.match(fact.item)) and found[1] in boards
    }
    for known, server in list(servers.items())[-1:]:
        rest_usd = server.value - _BOARDS * boards[known].value
        for model, board in boards.items():
            if model not in servers:
                yield _of_parts(model, board, rest_usd, server)


def _of_parts(
    model: str, board: OwnershipFact, rest_usd: float, server: OwnershipFact
) -> OwnershipFact:
    low, high = (
        None if end is None else _BOARDS * end + rest_usd for end in (board.low, board.high)
    )
    return replace(
        board,
        item=f"{_BOARDS}x {model} server, by its parts",
        value=_BOARDS * board.value + rest_usd,
        unit="usd",
        low=low,
        high=high,
        source=f"{_BOARDS} boards: {board.source}; all else as in {server.item}: {server.source}",
        confidence="low",
    )


def electricity_usd_per_kwh(region: str = "World") -> OwnershipFact:
    """The newest business price of electricity in ``region``.

    Raises:
        UnknownNameError: No price for that region; the regions known are in the hint.
    """
    prices = [f for f in ownership_facts() if f.category == "electricity"]
    found = [f for f in prices if f.region.lower() == region.lower()]
    if not found:
        raise UnknownNameError.from_name("electricity region", region, [f.region for f in prices])
    return found[0]


def _electricity_usd_per_month(costs: OwnedCosts) -> float:
    busy, idle = costs.utilisation_frac, 1 - costs.utilisation_frac
    mean_w = costs.pue * (busy * costs.busy_power_w + idle * costs.idle_power_w)
    return mean_w / 1e3 * HOURS_PER_MONTH * costs.usd_per_kwh


def _resale_usd(costs: OwnedCosts, years: float) -> float:
    if costs.residual_frac <= 0:
        return 0.0
    return float(costs.price_usd * costs.residual_frac ** (years / costs.lifetime_years))


def _first_root(gain: Callable[[float], float], end: float) -> float | None:
    """Smallest argument in (0, end] from which ``gain`` is not negative, by scan and bisection.

    Owning starts as expensive as its resale loss, so ``gain`` starts at or below zero and crosses
    once: rent grows linearly, and the loss of value slows down.
    """
    low, high = 0.0, end
    if gain(high) < 0:
        return None
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if gain(middle) >= 0 else (middle, high)
    return high
