"""The price of a job, not of an hour: rental terms, spot risk, storage, traffic, price age."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import Literal, get_args

from paceline.catalog.entities import Offer
from paceline.errors import InvalidInputError, MissingFactError
from paceline.planfile import Interval
from paceline.planning.goal.chance import Z_80
from paceline.planning.places.interruption import (
    MONTH_S,
    UNPUBLISHED_FRAC_PER_MONTH,
    Checkpointing,
    InterruptedRun,
    interrupted_run,
    interruptions_per_s,
)
from paceline.planning.places.own_machines import OWN
from paceline.shipped import shipped_rows
from paceline.units import DAY_S, HOUR_S, format_duration, format_percent
from paceline.values import dataclass

Term = Literal["on-demand", "reserved-1y", "reserved-3y", "spot"]
#: Every way of paying.
TERMS: tuple[Term, ...] = get_args(Term)
#: Chances that a machine is taken back where none is.
_NONE_TAKEN = (0.0, 0.0, 0.0)
#: Unpaid wait for a new spot machine.
_SPOT_WAIT_S = 600.0

#: Standard deviation of log price after one year: root mean square over the price histories of
#: the catalogue, most of which never moved (a test computes it again). It grows with the square
#: root of the age.
PRICE_LOG_SIGMA_PER_SQRT_YEAR = 0.10
#: Of its variance, what the prices of two devices at one provider have in common: most move on one
#: day or not at all. Pooled over pairs of devices in those histories (a test computes it again).
PRICE_COMMON_FRAC = 0.57
#: Spread of spot prices, whose history the catalogue does not have: assumed.
SPOT_LOG_SIGMA_PER_SQRT_YEAR = 0.35
#: A price seen elsewhere than where the job runs: spread of one type over regions, assumed.
REGION_LOG_SIGMA = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDemand:
    """What a job asks of a provider.

    Attributes:
        run_s: Undisturbed time of the job on its machines.
        num_nodes: Machines.
        setup_s: Paid time before work begins: booting, images, fetching data.
        storage_bytes: Kept on the provider's disks while the job runs.
        egress_bytes: Taken out of the provider's network at the end.
        checkpointing: How it saves its state; needed on spot machines.
    """

    run_s: float
    num_nodes: int = 1
    setup_s: float = 0.0
    storage_bytes: float = 0.0
    egress_bytes: float = 0.0
    checkpointing: Checkpointing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalTerms:
    """What a provider charges, for one machine.

    Attributes:
        term: Which way of paying.
        usd_per_hour: Price while it runs.
        granularity_s: Paid time is rounded up to a multiple of it.
        minimum_s: Paid at least so long, at each start.
        commitment_s: Paid in full whether used or not (reserved terms); zero otherwise.
        storage_usd_per_byte_month: Disk; None where unknown.
        egress_usd_per_byte: Traffic out; None where unknown.
        interruption_frac_per_month: Chance that one machine is taken back, as low, middle and high.
        interruptions_per_hour: Of one machine, in the place of that chance; None where not stated.
        wait_s: Unpaid wait for a new machine after an interruption.
        price_log_sigma: Standard deviation of log price, from its age and region.
        assumptions: What was assumed, one sentence each.
    """

    term: Term
    usd_per_hour: float
    granularity_s: float = 1.0
    minimum_s: float = 0.0
    commitment_s: float = 0.0
    storage_usd_per_byte_month: float | None = None
    egress_usd_per_byte: float | None = None
    interruption_frac_per_month: tuple[float, float, float] = _NONE_TAKEN
    interruptions_per_hour: float | None = None
    wait_s: float = 0.0
    price_log_sigma: float = 0.0
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPrice:
    """What a job costs and how long it takes, in expectation, with an 80 % interval of the total.

    Attributes:
        compute_usd: Machines.
        storage_usd: Disks while it runs.
        egress_usd: Traffic out.
        total_usd: All of it; the interval covers price age, region and interruption band.
        wall_s: From the first start to the end, waits included.
        paid_s: Paid time of each machine.
        used_usd: What that time costs at the hourly rate: less than the machines where a term is
            paid in whole.
        run: Course under interruptions.
        assumptions: What was assumed, one sentence each.
    """

    compute_usd: float
    storage_usd: float
    egress_usd: float
    total_usd: Interval
    wall_s: float
    paid_s: float
    used_usd: float
    run: InterruptedRun
    assumptions: tuple[str, ...]


def price_job(demand: JobDemand, terms: RentalTerms) -> JobPrice:
    """Expected price of ``demand`` under ``terms``.

    Raises:
        InvalidInputError: A spot job that says nothing about its checkpoints.
        MissingFactError: Storage or traffic is asked for whose price is unknown.
    """
    run = _run(demand, terms, _rates_per_s(demand, terms)[1])
    paid_s = _billed_s(run, demand, terms)
    wall_s = demand.setup_s + run.paid_s + run.num_interruptions * terms.wait_s
    compute_usd = _compute_usd(paid_s, demand, terms)
    storage_usd = _charge(demand.storage_bytes, terms.storage_usd_per_byte_month, "storage")
    storage_usd *= wall_s / MONTH_S
    egress_usd = _charge(demand.egress_bytes, terms.egress_usd_per_byte, "traffic out")
    extras_usd = storage_usd + egress_usd
    return JobPrice(
        compute_usd=compute_usd,
        storage_usd=storage_usd,
        egress_usd=egress_usd,
        total_usd=_interval(demand, terms, compute_usd, extras_usd),
        wall_s=wall_s,
        paid_s=paid_s,
        used_usd=terms.usd_per_hour * demand.num_nodes * paid_s / HOUR_S,
        run=run,
        assumptions=(*terms.assumptions, *_beside_words(demand)),
    )


def rental_terms(
    offer: Offer, *, term: Term = "on-demand", today: date, region: str = "",
    usd_per_hour: float | None = None, interruptions_per_hour: float | None = None,
) -> RentalTerms:  # fmt: skip
    """Terms of one offer from the catalogue, with what had to be assumed.

    Args:
        offer: Whose price is meant.
        term: Which way of paying.
        today: Day on which the age of the price counts.
        region: Where the job runs; another region than the price's widens the interval.
        usd_per_hour: The user's own price, which is certain; the offer's if None.
        interruptions_per_hour: Of one machine, as the user has seen them; as published if None.

    Raises:
        MissingFactError: The offer has no price of that kind.
    """
    row = _billing_rows().get(offer.cloud, {})
    if usd_per_hour is None:
        price, sigma, price_notes = _seen(offer, term, row, today=today, region=region)
    else:
        price, sigma, price_notes = usd_per_hour, 0.0, ("the price is yours",)
    is_published = interruptions_per_hour is None
    band, band_note = _band(offer, term) if is_published else (_NONE_TAKEN, ())
    return RentalTerms(
        term=term,
        usd_per_hour=price,
        granularity_s=float(row.get("granularity_s") or 1.0),
        minimum_s=float(row.get("minimum_s") or 0.0),
        commitment_s={"reserved-1y": 1.0, "reserved-3y": 3.0}.get(term, 0.0) * 365.25 * DAY_S,
        storage_usd_per_byte_month=_per_byte(row.get("storage_usd_per_gb_month", "")),
        egress_usd_per_byte=_per_byte(row.get("egress_usd_per_gb", "")),
        interruption_frac_per_month=band,
        interruptions_per_hour=interruptions_per_hour,
        wait_s=_SPOT_WAIT_S if term == "spot" else 0.0,
        price_log_sigma=sigma,
        assumptions=(*band_note, *_billing_note(offer, row), *price_notes),
    )


def reserved_discount_frac(cloud: str, term: Term) -> float | None:
    """What a provider takes off for a term that is paid whole; None where that is not known."""
    row = _billing_rows().get(cloud, {})
    discount = row.get(f"{term.replace('-', '_')}_discount_frac", "")
    return float(discount) if discount else None


def _seen(
    offer: Offer, term: Term, row: dict[str, str], *, today: date, region: str
) -> tuple[float, float, tuple[str, ...]]:
    """The price of an offer, the spread of its logarithm, and what is said of it."""
    price, seen_on, discount_note = _price(offer, term, row)
    place_note = _place_note(offer, region)
    sigma = math.hypot(_age_sigma(term, seen_on, today), REGION_LOG_SIGMA if place_note else 0.0)
    return price, sigma, (*discount_note, *place_note, _age_note(seen_on, today))


def _rates_per_s(demand: JobDemand, terms: RentalTerms) -> tuple[float, float, float]:
    """Interruptions of the job per second: low, middle and high."""
    if terms.interruptions_per_hour is not None:
        return (demand.num_nodes * terms.interruptions_per_hour / HOUR_S,) * 3
    low, mid, high = terms.interruption_frac_per_month
    nodes = demand.num_nodes
    return (
        interruptions_per_s(low, nodes),
        interruptions_per_s(mid, nodes),
        interruptions_per_s(high, nodes),
    )


def _run(demand: JobDemand, terms: RentalTerms, rate: float) -> InterruptedRun:
    saving = demand.checkpointing
    if saving is None and rate > 0:
        raise InvalidInputError(
            "a job on spot machines needs to know what a checkpoint costs",
            hint="give the time to save and the time to restart, or use on-demand machines",
        )
    saving = saving if saving and terms.term == "spot" else Checkpointing(save_s=0.0, restart_s=0.0)
    return interrupted_run(demand.run_s, saving, rate)


def _beside_words(demand: JobDemand) -> tuple[str, ...]:
    """What is paid beside the run, and what nobody stated and is left out."""
    amounts = {"storage": demand.storage_bytes, "traffic": demand.egress_bytes}
    absent = [what for what, amount in amounts.items() if not amount]
    set_up = f"{format_duration(demand.setup_s)} to set up a machine, paid"
    left_out = f"{' and '.join(absent)} not counted" if absent else ""
    return tuple(filter(None, (set_up if demand.setup_s else "", left_out)))


def _billed_s(run: InterruptedRun, demand: JobDemand, terms: RentalTerms) -> float:
    """Paid time of one machine; each start pays the minimum, each stay whole granules."""
    num_stays = 1 + run.num_interruptions
    stay_s = (demand.setup_s + run.paid_s) / num_stays
    granules = math.ceil(round(stay_s / terms.granularity_s, 9))
    return num_stays * max(granules * terms.granularity_s, terms.minimum_s)


def _compute_usd(paid_s: float, demand: JobDemand, terms: RentalTerms) -> float:
    return terms.usd_per_hour * demand.num_nodes * max(paid_s, terms.commitment_s) / HOUR_S


def _charge(amount_bytes: float, usd_per_byte: float | None, what: str) -> float:
    if amount_bytes == 0:
        return 0.0
    if usd_per_byte is None:
        raise MissingFactError(
            f"the price of {what} is not known for this provider",
            hint="add the provider to your own offers file, or plan without it",
        )
    return amount_bytes * usd_per_byte


def _interval(
    demand: JobDemand, terms: RentalTerms, compute_usd: float, extras_usd: float
) -> Interval:
    """The band of interruption times the spread of the price."""
    low, _, high = _rates_per_s(demand, terms)
    spread = math.exp(Z_80 * terms.price_log_sigma)
    ends = [
        _compute_usd(_billed_s(_run(demand, terms, rate), demand, terms), demand, terms)
        for rate in (low, high)
    ]
    return Interval(
        low=min(ends) / spread + extras_usd,
        mid=compute_usd + extras_usd,
        high=max(ends) * spread + extras_usd,
    )


def _price(
    offer: Offer, term: Term, row: dict[str, str]
) -> tuple[float, date | None, tuple[str, ...]]:
    if term == "spot":
        return _known(offer.spot_usd_per_hour, offer, "spot"), offer.spot_on, ()
    on_demand = _known(offer.usd_per_hour, offer, "on-demand")
    if term == "on-demand":
        return on_demand, offer.priced_on, ()
    frac = _known(reserved_discount_frac(offer.cloud, term), offer, term)
    note = f"{term}: {format_percent(frac)} below on-demand over the whole term ({row['source']})"
    return on_demand * (1 - frac), offer.priced_on, (note,)


def _known(price: float | None, offer: Offer, term: str) -> float:
    if price is None:
        raise MissingFactError(
            f"no {term} price is known for `{offer.name}`",
            hint="add it to your own offers file, or choose another way of paying",
        )
    return price


def _age_sigma(term: Term, seen_on: date | None, today: date) -> float:
    is_spot = term == "spot"
    per_sqrt_year = SPOT_LOG_SIGMA_PER_SQRT_YEAR if is_spot else PRICE_LOG_SIGMA_PER_SQRT_YEAR
    age_years = 2.0 if seen_on is None else max(0, (today - seen_on).days) / 365.25
    return per_sqrt_year * math.sqrt(age_years)


def check_region(region: str, offer: Offer, offers: Iterable[Offer]) -> None:
    """Refuse a region whose name is built unlike every region of the offer's cloud.

    Another region than those seen is fine: its price is then less sure.

    Raises:
        InvalidInputError: Such a name.
    """
    known = sorted({one.region for one in offers if one.cloud == offer.cloud and one.region})
    starts = any(one.lower().startswith(region.lower()) for one in known)
    if known and not starts and _shape(region) not in {_shape(one) for one in known}:
        raise InvalidInputError(
            f"`{region}` is no region of {offer.cloud}",
            hint=f"regions are named like {', '.join(known[:3])}",
        )


def _shape(region: str) -> str:
    """How a name is built: letters and digits by kind.

    >>> _shape("us-east-1")
    'a-a-0'
    """
    return re.sub(r"[a-z]+", "a", re.sub(r"\d+", "0", region.lower()))


def _place_note(offer: Offer, region: str) -> tuple[str, ...]:
    """What is said where the job runs elsewhere than where the price was seen."""
    if not region or offer.region.lower().startswith(region.lower()):
        return ()
    seen_in = offer.region or "an unknown region"
    return (f"price of {seen_in}: that of {region} is not known, the range is wider for it",)


def _age_note(seen_on: date | None, today: date) -> str:
    if seen_on is None:
        return "price is undated: taken to be two years old"
    return f"price seen {seen_on.isoformat()}, {(today - seen_on).days} days ago"


def _band(offer: Offer, term: Term) -> tuple[tuple[float, float, float], tuple[str, ...]]:
    if term != "spot":
        return _NONE_TAKEN, ()
    if offer.interruption_frac_per_month is None:
        assumed = format_percent(UNPUBLISHED_FRAC_PER_MONTH[1])
        note = f"interruptions: {assumed} a month assumed, no figure published"
        return UNPUBLISHED_FRAC_PER_MONTH, (note,)
    low, high = offer.interruption_frac_per_month
    note = f"interruptions: {format_percent(low)} to {format_percent(high)} of machines a month"
    return (low, (low + high) / 2, high), (note,)


def _billing_note(offer: Offer, row: dict[str, str]) -> tuple[str, ...]:
    if row:
        return (f"billing of {offer.cloud}: {row['source']}",)
    return (f"billing of {offer.cloud}: paid by the second, nothing else known",)


def traffic_out_usd_per_byte(cloud: str) -> float | None:
    """What a provider charges for traffic out; nothing at one's own, None where unknown."""
    return _charge_of(cloud, "egress_usd_per_gb")


def storage_usd_per_byte_month(cloud: str) -> float | None:
    """What a provider charges for its disks; nothing at one's own, None where unknown."""
    return _charge_of(cloud, "storage_usd_per_gb_month")


def _charge_of(cloud: str, column: str) -> float | None:
    if cloud == OWN:
        return 0.0
    return _per_byte(_billing_rows().get(cloud, {}).get(column, ""))


def _per_byte(usd_per_gb: str) -> float | None:
    return float(usd_per_gb) / 1e9 if usd_per_gb else None


@lru_cache(maxsize=1)
def _billing_rows() -> dict[str, dict[str, str]]:
    return {row["cloud"]: row for row in shipped_rows("catalog", "billing_terms.csv")}
