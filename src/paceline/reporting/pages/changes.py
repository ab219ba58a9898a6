"""Pages of how an answer changes: with the deadline, the load, more devices, another question."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.planfile import PlanFile, PlannedChoice
from paceline.planning.decisions.curve import ScalingCurve
from paceline.reporting.charts.changes import curve_chart, deadline_chart, load_chart
from paceline.reporting.figures import (
    ItemRate,
    chance,
    duration_range,
    memory_share,
    number_range,
    usd_range,
)
from paceline.reporting.pages.page import Page, Section
from paceline.reporting.screens.plans import headline, how_in_full, machine_name, workload_line
from paceline.reporting.screens.scaling import left_out, scaling_table
from paceline.reporting.tables import ABSENT, Table, header
from paceline.units import format_duration, format_percent, format_significant, format_usd


def deadlines_page(plans: Sequence[tuple[float, PlanFile]], plan: PlanFile) -> Page:
    """The first choice at several deadlines, and the prices at which others would be first.

    Args:
        plans: Deadlines in seconds, each with its plan.
        plan: As asked.
    """
    chart = deadline_chart(plans)
    deadlines = Section(
        title="With another deadline",
        charts=() if chart is None else (chart,),
        table=_deadline_table(plans),
    )
    sections = [deadlines] if plans else []
    prices = tuple(
        (one.name, format_usd(one.wins_below_usd_per_hour), one.reason)
        for one in plan.rejected
        if one.wins_below_usd_per_hour is not None
    )
    if prices:
        columns = header("excluded | first below USD/h > | excluded because")
        table = Table(columns=columns, rows=prices)
        sections.append(Section(title="At another price", table=table))
    return Page(title="", subtitle="", tiles=(), sections=tuple(sections), sources=())


def load_page(plan: PlanFile) -> Page:
    """What requests see of a service as more of them come."""
    section = load_section(plan)
    sections = () if section is None else (section,)
    return Page(title="", subtitle="", tiles=(), sections=sections, sources=())


def load_section(plan: PlanFile) -> Section | None:
    """The same as a part of a page; None where no service was simulated."""
    service = plan.choices[0].service if plan.choices else None
    chart = load_chart(plan)
    if service is None or chart is None:
        return None
    most = service.capacity_requests_per_s.mid
    rows = tuple(
        (
            format_significant(one.requests_per_s),
            format_percent(one.requests_per_s / most),
            ABSENT if one.ttft_s is None else format_duration(one.ttft_s),
            ABSENT if one.ttft_s is None else format_duration(one.latency_s),
            format_duration(one.request_s),
        )
        for one in service.curve
    )
    columns = header("requests/s > | of what it can do > | first token > | per token > | answer >")
    advice = tuple(f"One setting: {text}." for text in service.settings)
    return Section(
        title="Latency against load",
        charts=(chart,),
        table=Table(columns=columns, rows=rows),
        lines=advice,
    )


def scaling_page(
    title: str, assumptions: Sequence[str], curve: ScalingCurve, unit: str, rate: ItemRate
) -> Page:
    """A scaling curve with its knee."""
    section = Section(
        title="More devices",
        charts=(curve_chart(curve, unit),),
        table=scaling_table(curve, rate),
        lines=tuple(left_out(curve)),
    )
    return Page(title=title, subtitle="", tiles=(), sections=(section,), sources=tuple(assumptions))


def comparison_page(first: PlanFile, second: PlanFile) -> Page:
    """Two plans beside each other, a row per figure of their first choices."""
    sides = [_figures(plan) for plan in (first, second)]
    table = Table(
        columns=header(" | first | second"),
        rows=tuple(
            (name, sides[0][name], sides[1][name])
            for name in sides[0]
            if sides[0][name] != ABSENT or sides[1][name] != ABSENT
        ),
    )
    sections = (
        Section(title="Side by side", table=table),
        *(
            Section(title=f"{word}: {workload_line(plan.workload)}", lines=(headline(plan),))
            for word, plan in (("First", first), ("Second", second))
        ),
    )
    return Page(
        title="Two plans compared",
        subtitle="figures of the first choice of each",
        tiles=(),
        sections=sections,
        sources=tuple(dict.fromkeys((*first.assumptions, *second.assumptions))),
    )


def _figures(plan: PlanFile) -> dict[str, str]:
    choice = plan.choices[0]
    return {
        "model": workload_line(plan.workload),
        "goal": plan.goal_text or ABSENT,
        "where": machine_name(choice),
        "USD/h": format_usd(choice.place.usd_per_hour),
        "time": ABSENT if choice.time_s is None else duration_range(choice.time_s),
        "cost, USD": ABSENT if choice.cost_usd is None else usd_range(choice.cost_usd),
        "in time": chance(choice.chance_time),
        "in budget": chance(choice.chance_cost),
        **_rates(choice, plan.workload.sample_unit),
        "memory": memory_share(choice.memory_bytes, choice.memory_capacity_bytes),
        "how": how_in_full(choice),
    }


def _rates(choice: PlannedChoice, unit: str) -> dict[str, str]:
    return {
        "first token": ABSENT if choice.ttft_s is None else duration_range(choice.ttft_s),
        "latency": ABSENT if choice.latency_s is None else duration_range(choice.latency_s),
        "rate": f"{number_range(choice.samples_per_s)} {unit}/s",
    }


def _deadline_table(plans: Sequence[tuple[float, PlanFile]]) -> Table:
    columns = header("deadline | first choice | time | cost USD | in time")
    rows = (
        (
            format_duration(seconds),
            machine_name(choice),
            ABSENT if choice.time_s is None else duration_range(choice.time_s),
            ABSENT if choice.cost_usd is None else usd_range(choice.cost_usd),
            chance(choice.chance_time),
        )
        for seconds, plan in plans
        for choice in plan.choices[:1]
    )
    return Table(columns=columns, rows=tuple(rows))
