"""A purchase as people state it, judged against renting the same work, each figure traced.

The file names rows of the shipped tables (a system, a price of electricity, an overhead, an
upkeep allowance, an offer), or gives figures of its own.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from paceline.catalog.entities import Catalog
from paceline.catalog.lookup import find_offer
from paceline.documents import validate
from paceline.errors import InvalidInputError, MissingFactError, UnknownNameError
from paceline.planfile import TracedFigure
from paceline.planning.places.ownership import (
    OwnedCosts,
    OwnershipFact,
    RentOrBuy,
    electricity_usd_per_kwh,
    ownership_bill,
    ownership_facts,
    rent_or_buy,
)
from paceline.reading import read_text
from paceline.units import format_percent, format_usd
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """What somebody thinks of buying, and of renting instead.

    Attributes:
        title: What it is about.
        busy_power_w: Drawn while it works, without cooling.
        utilisation_frac: Share of all hours in which it works.
        months: Horizon.
        rent_offer: Offer that would do the same work.
        system: Row of the ownership table that holds its price; empty where ``price_usd`` says it.
        num_systems: So many of them.
        idle_power_w: Drawn while it waits.
        electricity_region: Where it stands.
        pue: Row of the ownership table with the overhead of cooling; none if empty.
        upkeep: Row with parts and repair; none if empty.
        price_usd: Price paid, instead of the system's.
        usd_per_kwh: Electricity as it is paid, instead of the region's.
        power_overhead: Power of the building over that of the machine, instead of the row ``pue``.
        residual_frac: Resale value at the end of ``lifetime_years``; zero means never sold.
        lifetime_years: For the resale value.
        staff_usd_per_year: Share of a person.
        space_usd_per_kw_month: Colocation.
        answer: What the writer expects, ``own`` or ``rent``; unused by the judgement.
        sources: Where figures come from that the buyer does not state, by field.
    """

    title: str
    busy_power_w: float
    utilisation_frac: float
    months: float
    rent_offer: str
    system: str = ""
    num_systems: int = 1
    rented_machines: int = 1
    idle_power_w: float = 0.0
    electricity_region: str = "World"
    pue: str = ""
    upkeep: str = ""
    price_usd: float | None = None
    usd_per_kwh: float | None = None
    power_overhead: float | None = None
    residual_frac: float = 0.0
    lifetime_years: float = 4.0
    staff_usd_per_year: float = 0.0
    space_usd_per_kw_month: float = 0.0
    answer: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseAnswer:
    """The judgement, its figures with their sources, and the words for a person who signs."""

    purchase: Purchase
    result: RentOrBuy
    rent_usd_per_hour: float
    figures: tuple[TracedFigure, ...]
    text: str


def read_purchases(path: Path) -> dict[str, Purchase]:
    """Purchases of a TOML file, by name; the file may come from anybody.

    Raises:
        InvalidInputError: Not such a file, or a value that makes no sense.
    """
    try:
        tables = tomllib.loads(read_text(path, what="purchase file"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInputError(
            f"{path} is not readable TOML: {error}", hint="see examples/scenarios/purchases.toml"
        ) from None
    purchases = validate(_PurchaseFile, {"purchases": tables}, what="purchase file").purchases
    for name, purchase in purchases.items():
        _check(name, purchase)
    return purchases


def restated(purchase: Purchase, stated: Mapping[str, Any]) -> Purchase:
    """The same purchase with what the buyer knows better, by field.

    Raises:
        InvalidInputError: A value makes no sense.
    """
    sources = {key: text for key, text in purchase.sources.items() if key not in stated}
    changed = replace(purchase, sources=sources, **stated)
    _check(changed.title, changed)
    return changed


def judge_purchase(purchase: Purchase, catalog: Catalog) -> PurchaseAnswer:
    """Owning against renting over the horizon.

    Raises:
        UnknownNameError: A row or offer that does not exist.
        MissingFactError: The offer has no price.
    """
    facts = _facts(purchase)
    offer = find_offer(catalog, purchase.rent_offer)
    if offer.usd_per_hour is None:
        raise MissingFactError(
            f"`{offer.name}` has no price to compare with", hint="name another offer, or your own"
        )
    costs = _costs(purchase, facts)
    rent_per_hour = offer.usd_per_hour * purchase.rented_machines
    ranges = _ranges(purchase, facts)
    result = rent_or_buy(costs, rent_per_hour, purchase.months, ranges)
    seen = offer.priced_on.isoformat() if offer.priced_on else "undated"
    rent = _traced(
        "rent per busy hour",
        rent_per_hour,
        "usd_per_hour",
        source=f"{offer.name}, {seen}: {offer.source.text}",
    )
    return PurchaseAnswer(
        purchase=purchase,
        result=result,
        rent_usd_per_hour=rent_per_hour,
        figures=(*_figures(purchase, facts), rent),
        text=_text(purchase, costs, result),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PurchaseFile:
    purchases: dict[str, Purchase]


def _check(name: str, purchase: Purchase) -> None:
    positive = ("busy_power_w", "months", "rented_machines", "num_systems")
    for figure in positive:
        if (value := getattr(purchase, figure)) <= 0:
            raise InvalidInputError(
                f"`{name}`: {figure} is {value:g}", hint=f"{figure} must be above zero"
            )
    if not 0 < purchase.utilisation_frac <= 1:
        raise InvalidInputError(
            f"`{name}`: utilisation_frac is {purchase.utilisation_frac:g}, not within 0 and 1",
            hint="utilisation_frac = 0.5 means: half of all hours",
        )
    if not purchase.system and purchase.price_usd is None:
        raise InvalidInputError(
            f"`{name}` has no price", hint="state price_usd, or name a row of prices as system"
        )
    prices = (purchase.price_usd, purchase.usd_per_kwh)
    if any(price is not None and not 0 <= price < math.inf for price in prices):
        raise InvalidInputError(
            f"`{name}`: a price is not below zero and finite", hint="give it in US dollars"
        )
    if purchase.power_overhead is not None and not 1 <= purchase.power_overhead < math.inf:
        raise InvalidInputError(
            f"`{name}`: a PUE of {purchase.power_overhead:g} is below 1",
            hint="it is the power of the building over that of the machine, such as 1.3",
        )


def _facts(purchase: Purchase) -> dict[str, OwnershipFact]:
    """Rows of the ownership table that the purchase names, by field of the costs."""
    found = {"usd_per_kwh": electricity_usd_per_kwh(purchase.electricity_region)}
    if purchase.system:
        found["price_usd"] = _times(_row("system_price", purchase.system), purchase.num_systems)
    if purchase.pue:
        found["pue"] = _row("pue", purchase.pue)
    if purchase.upkeep:
        found["upkeep_frac_per_year"] = _row("maintenance", purchase.upkeep)
    return found


def _row(category: str, item: str) -> OwnershipFact:
    rows = {fact.item: fact for fact in ownership_facts() if fact.category == category}
    if item not in rows:
        raise UnknownNameError.from_name(category.replace("_", " "), item, rows)
    return rows[item]


def _times(fact: OwnershipFact, number: int) -> OwnershipFact:
    if number == 1:
        return fact
    low, high = (end if end is None else number * end for end in (fact.low, fact.high))
    item = f"{number} × {fact.item}"
    return replace(fact, item=item, value=number * fact.value, low=low, high=high)


def _costs(purchase: Purchase, facts: dict[str, OwnershipFact]) -> OwnedCosts:
    costs = OwnedCosts(
        price_usd=facts["price_usd"].value if "price_usd" in facts else 0.0,
        busy_power_w=purchase.busy_power_w,
        idle_power_w=purchase.idle_power_w,
        usd_per_kwh=facts["usd_per_kwh"].value,
        pue=facts["pue"].value if "pue" in facts else 1.0,
        utilisation_frac=purchase.utilisation_frac,
        lifetime_years=purchase.lifetime_years,
        residual_frac=purchase.residual_frac,
        upkeep_frac_per_year=facts["upkeep_frac_per_year"].value
        if "upkeep_frac_per_year" in facts
        else 0.0,
        staff_usd_per_year=purchase.staff_usd_per_year,
        space_usd_per_kw_month=purchase.space_usd_per_kw_month,
    )
    return replace(costs, **_stated(purchase))


def _stated(purchase: Purchase) -> dict[str, float]:
    """What the buyer knows better than the table, by field of the costs."""
    given = {
        "price_usd": purchase.price_usd,
        "usd_per_kwh": purchase.usd_per_kwh,
        "pue": purchase.power_overhead,
    }
    return {field: number for field, number in given.items() if number is not None}


def _ranges(
    purchase: Purchase, facts: dict[str, OwnershipFact]
) -> Iterator[tuple[str, float, float]]:
    """Inputs with a published range; what the buyer states is known, and has none."""
    stated = _stated(purchase)
    for key, fact in facts.items():
        is_ranged = fact.low is not None or fact.high is not None
        if is_ranged and key not in stated:
            yield key, fact.low or fact.value, fact.high or fact.value


def _figures(purchase: Purchase, facts: dict[str, OwnershipFact]) -> Iterator[TracedFigure]:
    known = _stated(purchase)
    for key, fact in facts.items():
        source = f"{fact.source}, confidence {fact.confidence}"
        if key not in known:
            yield _traced(fact.item, fact.value, fact.unit, source=source)
    stated = {
        "price paid": ("price_usd", "usd"),
        "electricity": ("usd_per_kwh", "usd_per_kwh"),
        "PUE": ("power_overhead", "ratio"),
        "busy power": ("busy_power_w", "w"),
        "idle power": ("idle_power_w", "w"),
        "utilisation": ("utilisation_frac", "frac"),
        "horizon": ("months", "months"),
    }
    for name, (field_name, unit) in stated.items():
        number = getattr(purchase, field_name)
        if number is not None:
            source = purchase.sources.get(field_name, "stated by the buyer")
            yield _traced(name, number, unit, source=source)


def _traced(name: str, number: float, unit: str, *, source: str) -> TracedFigure:
    is_stated = source.startswith(("stated", "assumed"))
    return TracedFigure(
        name=name,
        value=_in_words(number, unit),
        formula="",
        inputs=(),
        origin="assumption" if is_stated or "estimate" in source else "source",
        source=source,
        number=number,
    )


def _in_words(number: float, unit: str) -> str:
    """A figure of the ownership table in people's units.

    >>> _in_words(0.03, "frac_per_year"), _in_words(12_000.0, "usd")
    ('3 % per year', '12,000 USD')
    """
    quantity, _, rest = unit.partition("_per_")
    after = f" per {rest.replace('_', ' ').replace('kw', 'kW')}" if rest else ""
    if quantity == "frac":
        return f"{format_percent(number)}{after}"
    if quantity == "ratio":
        return f"× {number:g}{after}"
    whole = f"{number:,.0f}" if number >= _SHOWN_WHOLE else f"{number:,.4g}"
    shown = format_usd(number) if quantity == "usd" and number >= 1 else whole
    return f"{shown} {_UNIT_WORDS.get(quantity, quantity)}{after}"


_SHOWN_WHOLE = 1e4
_UNIT_WORDS = {"usd": "USD", "w": "W"}


def _text(purchase: Purchase, costs: OwnedCosts, result: RentOrBuy) -> str:
    bill = ownership_bill(costs, purchase.months)
    verb = "Buy" if result.cheaper == "own" else "Rent"
    crossing = result.break_even_months
    when = f"owning pays from month {crossing:.0f}" if crossing is not None else "owning never pays"
    share = result.break_even_utilisation_frac
    use = "" if share is None else f", and within this time above {format_percent(share)} use"
    return (
        f"{verb}: over {purchase.months:g} months at "
        f"{format_percent(costs.utilisation_frac)} use, owning costs "
        f"{format_usd(result.own_usd)} USD ({format_usd(bill.electricity_usd)} of it electricity) "
        f"and renting {format_usd(result.rent_usd)} USD; {when}{use}."
    )
