"""Pages of what was planned, predicted and traced; the page itself is `pages.page`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.planfile import PlanFile, PlannedChoice
from paceline.planning.forecast.grid import PredictionGrid
from paceline.prediction.step.breakdown import PassBreakdown
from paceline.reporting.charts import planned as charts
from paceline.reporting.charts.memory import course_chart
from paceline.reporting.figures import (
    MEMORY_BOUND,
    chance,
    duration_range,
    memory_bound_bytes,
    number_range,
    usd_range,
)
from paceline.reporting.pages.changes import load_section
from paceline.reporting.pages.page import Detail, Page, Section
from paceline.reporting.screens.plans import (
    asked_columns,
    choice_table,
    how,
    how_in_full,
    machine_name,
    rejection_text,
    workload_line,
)
from paceline.reporting.screens.predictions import batch_table
from paceline.reporting.screens.traces import op_table, owner_table, remedy_table
from paceline.simulation.observed import Trace
from paceline.units import (
    format_bytes,
    format_count,
    format_duration,
    format_percent,
    format_usd,
)

_NUM_OPS_IN_TABLE = 12


def plan_page(plan: PlanFile) -> Page:
    """A plan as a page: front, scaling, memory, every choice, why, and what was left out."""
    first = plan.choices[0] if plan.choices else None
    sections = (
        Section(title="Assumptions", lines=plan.assumptions),
        _choices_section(plan),
        *filter(None, (load_section(plan),)),
        Section(title="Why", lines=tuple(filter(None, plan.why))),
        Section(
            title="What would change the answer",
            lines=tuple(filter(None, (*plan.turns, plan.rent_or_buy))),
        ),
        Section(title="Electricity", lines=tuple(filter(None, (plan.emissions,)))),
        Section(title="Left out", lines=tuple(rejection_text(one) for one in plan.rejected)),
    )
    return Page(
        title=workload_line(plan.workload),
        subtitle=plan.goal_text,
        tiles=() if first is None else _plan_tiles(first, plan.workload.sample_unit),
        sections=tuple(section for section in sections if section.lines or section.table),
        sources=_plan_sources(plan),
    )


def predictions_page(grid: PredictionGrid) -> Page:
    """Predictions as a page: throughput against batch, then every cell."""
    names = dict.fromkeys(cell.device for cell in grid.cells)
    tables = tuple(
        Section(
            title=name,
            table=batch_table(
                [c for c in grid.cells if c.device == name],
                grid.sample_unit,
                has_latency=grid.generates,
            ),
        )
        for name in names
    )
    overview = Section(title="Overview", charts=(charts.prediction_chart(grid),))
    unanswered = tuple(f"{one.device}: {one.reason}" for one in grid.unanswered)
    sections = (
        overview,
        *tables,
        Section(title="To fit where nothing does", lines=grid.remedies),
        Section(title="No answer", lines=unanswered),
    )
    return Page(
        title=f"Predicted: {grid.title}",
        subtitle=f"{grid.task} · {format_count(grid.num_parameters)} parameters",
        tiles=(),
        sections=tuple(s for s in sections if s.lines or s.table or s.charts),
        sources=(
            *grid.assumptions,
            f"Catalogue {grid.catalog_version}, calibration {grid.calibration}.",
        ),
    )


def trace_page(
    title: str,
    traced: Trace,
    *,
    flop_per_s: float,
    bytes_per_s: float,
    memory_bytes: float | None,
) -> Page:
    """A model on a device as a page: roofline, where the time goes, memory over the pass.

    Args:
        title: Of the model.
        traced: Its passes on one device.
        flop_per_s: Dense peak of the device at the precision of the passes.
        bytes_per_s: Peak of its memory.
        memory_bytes: What it has of that; None if unknown.
    """
    sections = []
    for number, one in enumerate(traced.passes):
        drawn = (
            charts.roofline_chart(one, flop_per_s=flop_per_s, bytes_per_s=bytes_per_s),
            charts.ops_chart(one),
        )
        sections.append(
            Section(
                title=one.name,
                charts=tuple(chart for chart in drawn if chart is not None),
                table=op_table(one.ops[:_NUM_OPS_IN_TABLE]),
            )
        )
        sections += _memory_sections(traced, number, memory_bytes)
    return Page(
        title=title,
        subtitle=" · ".join(f"{one.name}: batch {one.batch}" for one in traced.passes),
        tiles=_trace_tiles(traced.passes[0]),
        sections=tuple(sections),
        sources=("Predicted, not measured; dense peaks of the catalogue's device.",),
    )


def _memory_sections(traced: Trace, number: int, memory_bytes: float | None) -> Iterator[Section]:
    """The course with its owners at the peak, and what would lower it."""
    one = traced.passes[number]
    course = course_chart(traced.memory_courses[number], capacity_bytes=memory_bytes)
    yield Section(title=f"Memory of {one.name}", charts=(course,), table=owner_table(one.memory))
    if traced.remedies[number]:
        yield Section(
            title=f"To need less memory in {one.name}",
            table=remedy_table(traced.remedies[number]),
        )


def _choices_section(plan: PlanFile) -> Section:
    drawn = (
        charts.front_chart(plan),
        charts.scaling_chart(plan),
        charts.memory_fill_chart(plan),
        charts.split_chart(plan),
    )
    return Section(
        title="Choices",
        charts=tuple(chart for chart in drawn if chart is not None),
        table=choice_table(plan.choices, plan.workload.sample_unit, asked_columns(plan)),
        details=tuple(_choice_detail(rank, one) for rank, one in enumerate(plan.choices, start=1)),
    )


def _choice_detail(rank: int, choice: PlannedChoice) -> Detail:
    """Everything that is known of a choice, beside its row."""
    place, stack = choice.place, choice.stack
    software = "" if stack is None else f"{stack.framework} {stack.framework_version}"
    platform = "" if stack is None else f"{stack.platform} {stack.platform_version or ''}".strip()
    share = "" if choice.mfu_frac is None else f", {format_percent(choice.mfu_frac)} of the peak"
    return Detail(
        title=f"{rank} · {machine_name(choice)}",
        lines=tuple(
            filter(
                None,
                (
                    choice.reason,
                    how_in_full(choice),
                    f"a step takes {duration_range(choice.step_s)}, bound by {choice.bound}{share}",
                    f"software: {software} on {platform}" if stack else "",
                    *price_sources((choice,)),
                    f"region {place.region}" if place.region else "",
                    *choice.notes,
                ),
            )
        ),
    )


def _plan_tiles(first: PlannedChoice, sample_unit: str) -> tuple[tuple[str, str], ...]:
    tiles = [(machine_name(first), how(first))]
    if first.time_s is not None:
        kept = first.chance_time
        in_time = "" if kept is None else f", in time at {chance(kept)}"
        tiles.append((duration_range(first.time_s), f"time{in_time}"))
    if first.cost_usd is not None:
        price = format_usd(first.place.usd_per_hour)
        tiles.append((f"{usd_range(first.cost_usd)} USD", f"cost at {price} USD per hour"))
    if first.service is not None:
        most = number_range(first.service.capacity_requests_per_s)
        tiles.append((most, "requests per second at most"))
        what = "an answer" if first.ttft_s is None else "a token"
        share = f"p{first.service.percentile} of {what}"
        tiles += [] if first.latency_s is None else [(duration_range(first.latency_s), share)]
    tiles.append((number_range(first.samples_per_s), f"{sample_unit} per second"))
    tiles.append(
        (
            format_bytes(memory_bound_bytes(first.memory_bytes)),
            f"memory of {format_bytes(first.memory_capacity_bytes)}",
        )
    )
    return tuple(tiles)


def _trace_tiles(one: PassBreakdown) -> tuple[tuple[str, str], ...]:
    tiles = [
        (format_count(one.num_parameters), "parameters"),
        (f"{format_count(one.flop)}FLOP", f"one pass at batch {one.batch}"),
        (format_bytes(one.moved_bytes), "moved through device memory"),
    ]
    if one.device_s is not None:
        tiles.append((format_duration(one.device_s), f"busy on {one.device}"))
    return tuple(tiles)


def price_sources(choices: Iterable[PlannedChoice]) -> tuple[str, ...]:
    """Price of each machine with its day and where it was read; own machines have none."""
    places = [choice.place for choice in choices if choice.place.priced_on]
    return tuple(
        dict.fromkeys(
            f"{place.offer}: {format_usd(place.usd_per_hour / place.num_nodes)} USD/h of "
            f"{place.priced_on} ({place.source})"
            for place in places
        )
    )


def _plan_sources(plan: PlanFile) -> tuple[str, ...]:
    return (
        *price_sources(plan.choices),
        f"Judged on {plan.created_on}; catalogue {plan.catalog_version}, calibration "
        f"{plan.calibration}, paceline {plan.paceline_version}.",
        f"Ranges hold in four of five cases; memory is {MEMORY_BOUND}.",
    )
