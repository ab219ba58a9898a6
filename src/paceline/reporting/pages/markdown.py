"""A plan as Markdown for a purchase request: readable by someone who does not know the tool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.planfile import PlanFile, PlannedChoice, RejectedChoice
from paceline.reporting.figures import (
    MEMORY_BOUND,
    chance,
    duration_range,
    memory_bound_bytes,
    number_range,
    usd_range,
)
from paceline.reporting.screens.plans import (
    asked_columns,
    choice_table,
    how_in_full,
    machine_name,
    rejection_text,
    workload_line,
)
from paceline.reporting.tables import ABSENT, Table, header, markdown_table
from paceline.units import format_bytes, format_percent, format_usd

_NUM_CHOICES_SHOWN = 8
_NUM_REJECTED_SHOWN = 12


def plan_markdown(plan: PlanFile) -> str:
    """The plan as a document: proposal, assumptions, comparison, sensitivity, risks, sources."""
    shown = plan.choices[:_NUM_CHOICES_SHOWN]
    first = shown[0]
    sections = (
        (f"# Compute plan: {plan.workload.title}", [_made_with(plan)]),
        ("## Proposal", _proposal(first, plan.workload.sample_unit)),
        ("## Job and goal", _bullets((workload_line(plan.workload), plan.goal_text))),
        ("## Assumptions", _bullets(plan.assumptions)),
        (
            "## Options compared",
            [
                _how_to_read(),
                "",
                markdown_table(choice_table(shown, plan.workload.sample_unit, asked_columns(plan))),
            ],
        ),
        ("## Why this one", _bullets(plan.why or (first.reason,))),
        ("## The one setting to change", _bullets(first.service.settings if first.service else ())),
        ("## Sensitivity", _bullets((*plan.turns, plan.knee, plan.rent_or_buy))),
        ("## Electricity", _bullets((plan.emissions,))),
        ("## Risks", _bullets(_risks(first))),
        ("## Prices and where they were read", [markdown_table(_price_table(shown))]),
        ("## Considered and left out", _bullets(_left_out(plan.rejected))),
    )
    return "\n\n".join("\n".join((title, "", *body)) for title, body in sections if body)


def _made_with(plan: PlanFile) -> str:
    return (
        f"Made on {plan.created_on} with paceline {plan.paceline_version}, facts of "
        f"{plan.catalog_version}, calibration {plan.calibration}. Amounts in US dollars."
    )


def _proposal(first: PlannedChoice, sample_unit: str) -> list[str]:
    place = first.place
    seen = f", price of {place.priced_on}" if place.priced_on else ""
    together = f" for all {place.num_nodes} machines" if place.num_nodes > 1 else ""
    verb = "Use" if place.cloud == "own" else "Rent"
    sentences = [
        f"{verb} **{machine_name(first)}** (`{place.offer}`, {place.region or 'any region'}) at "
        f"{format_usd(place.usd_per_hour)} USD per hour{together}{seen}."
    ]
    if first.time_s is not None:
        sentences.append(f"Expected time: **{duration_range(first.time_s)}**.")
    if first.cost_usd is not None:
        sentences.append(f"Expected cost: **{usd_range(first.cost_usd)} USD**.")
    sentences += _seen(first)
    if first.service is not None:
        most = number_range(first.service.capacity_requests_per_s)
        sentences.append(f"Answers up to {most} requests per second.")
    sentences.append(
        f"Expected rate: {number_range(first.samples_per_s)} {sample_unit} per second."
    )
    sentences.append(f"Configuration: {how_in_full(first)}.")
    return _bullets(sentences)


def _seen(first: PlannedChoice) -> Iterable[str]:
    """What requests see, or how long a batch takes."""
    if first.latency_s is None:
        return
    service = first.service
    share = "" if service is None else f" of {service.percentile} of 100 requests"
    if first.ttft_s is not None:
        yield f"Expected time to the first token{share}: **{duration_range(first.ttft_s)}**."
        yield f"Expected time per token{share}: **{duration_range(first.latency_s)}**."
    else:
        what = "latency" if service is None else f"time of an answer{share}"
        yield f"Expected {what}: **{duration_range(first.latency_s)}**."


def _how_to_read() -> str:
    return (
        "Ranges in brackets hold in four of five cases. Memory is the peak on one device, at "
        f"{MEMORY_BOUND}, against what the device has."
    )


def _risks(first: PlannedChoice) -> Iterable[str]:
    yield "The figures are predicted, not measured on this offer; the ranges say how far off."
    if first.chance_time is not None:
        yield f"Chance to be in time: {chance(first.chance_time)}."
    if first.chance_cost is not None:
        yield f"Chance to stay in the budget: {chance(first.chance_cost)}."
    bound, there = memory_bound_bytes(first.memory_bytes), first.memory_capacity_bytes
    yield (
        f"Chance to fit in memory: {chance(first.chance_memory)} ({format_bytes(bound)} of "
        f"{format_bytes(there)})."
    )
    if first.place.is_spot:
        yield f"Spot capacity can be withdrawn{_interruption(first)}; keep checkpoints."
    elif first.place.cloud != "own":
        yield "Prices change and capacity may be sold out: check both before ordering."
    yield from first.notes


def _interruption(first: PlannedChoice) -> str:
    band = first.place.interruption_frac_per_month
    if band is None:
        return " (how often is not published)"
    return f" ({format_percent(band[0])} to {format_percent(band[1])} of machines per month)"


def _price_table(choices: Sequence[PlannedChoice]) -> Table:
    """The price of one machine of each offer, as its source has it."""
    columns = header("offer | region | terms | USD/h each > | price of | source")
    rows = (
        (
            place.offer,
            place.region or ABSENT,
            "spot" if place.is_spot else place.term.replace("on-demand", "on demand"),
            format_usd(place.usd_per_hour / place.num_nodes),
            place.priced_on or ABSENT,
            place.source or ABSENT,
        )
        for place in (choice.place for choice in choices)
    )
    return Table(
        columns=columns,
        rows=tuple(dict.fromkeys(rows)),
    )


def _left_out(rejected: Sequence[RejectedChoice]) -> Iterable[str]:
    yield from (rejection_text(choice) for choice in rejected[:_NUM_REJECTED_SHOWN])
    hidden = sum(choice.num_rejected for choice in rejected[_NUM_REJECTED_SHOWN:])
    if hidden:
        yield f"{hidden} more"


def _bullets(sentences: Iterable[str]) -> list[str]:
    return [f"- {sentence}" for sentence in sentences if sentence]
