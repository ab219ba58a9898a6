"""A sweep of measurements as a page."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.measurements.ledger import LedgerRow, summarize_ledger
from paceline.measurements.records import Record
from paceline.reporting.charts import basic as charts
from paceline.reporting.charts.basic import Chart
from paceline.reporting.pages.page import Page, Section
from paceline.reporting.screens import measurements
from paceline.units import format_percent, format_significant


def measurements_page(rows: Sequence[LedgerRow]) -> Page:
    """A sweep as a page: each model and setting with its charts and table, then the stacks."""
    records = [row.record for row in rows]
    groups = measurements.series(rows)
    sections = [_series_section(title, group) for title, group in groups.items()]
    if len({(record.framework, record.compiler) for record in records}) > 1:
        sections.insert(0, _stacks_section(records))
    if ledger := charts.ledger_chart(rows):
        sections.append(Section(title="The ledger", charts=(ledger,), lines=_ledger_lines(rows)))
    models = ", ".join(dict.fromkeys(record.workload for record in records))
    return Page(
        title=f"Measured: {models}",
        subtitle=_subtitle(records),
        tiles=_measured_tiles(rows),
        sections=tuple(sections),
        sources=_measured_sources(records),
    )


def _series_section(title: str, rows: Sequence[LedgerRow]) -> Section:
    drawn = [charts.throughput_chart(rows), charts.speed_up_chart(rows), charts.memory_chart(rows)]
    if any(len(row.record.samples_s) > 1 for row in rows):
        drawn.append(charts.samples_chart(rows))
    reasons = measurements.reason_lines(row.record for row in rows)
    return Section(
        title=title,
        charts=tuple(chart for chart in drawn if chart is not None),
        table=measurements.series_table(rows),
        lines=tuple(line.strip() for line in reasons),
    )


def _stacks_section(records: Sequence[Record]) -> Section:
    by_model: dict[str, list[Record]] = {}
    for record in records:
        name = f"{record.workload} · {measurements.task_words(record)}"
        by_model.setdefault(name, []).append(record)
    drawn = tuple(
        Chart(title=name, caption=chart.caption, spec=chart.spec)
        for name, group in by_model.items()
        for chart in (charts.stacks_chart(group),)
    )
    table = measurements.stacks_table(records)
    return Section(title="Frameworks and compilers side by side", charts=drawn, table=table)


def _measured_tiles(rows: Sequence[LedgerRow]) -> tuple[tuple[str, str], ...]:
    records = [row.record for row in rows]
    best = max((r for r in records if r.samples_per_s), key=_rate, default=None)
    num_out = sum(record.outcome == "out-of-memory" for record in records)
    tiles = [(f"{sum(r.outcome == 'ok' for r in records)} of {len(records)}", "cells with a time")]
    if best is not None:
        text = f"{format_significant(_rate(best))} {best.sample_unit}/s"
        tiles.append((text, f"best: {best.workload}, batch {best.batch_per_device:.0f}"))
    if num_out:
        tiles.append((str(num_out), "cells out of memory"))
    if summary := summarize_ledger(rows):
        tiles.append((format_percent(summary.median_error_frac), "median error of prediction"))
    return tuple(tiles)


def _rate(record: Record) -> float:
    return record.samples_per_s or 0.0


def _ledger_lines(rows: Sequence[LedgerRow]) -> tuple[str, ...]:
    summary = summarize_ledger(rows)
    if summary is None:
        return ()
    return (
        f"{summary.num_rows} cells predicted and measured: median error "
        f"{format_percent(summary.median_error_frac)}, worst "
        f"{format_percent(summary.worst_error_frac)}, inside the 80 % interval "
        f"{format_percent(summary.coverage_frac)}.",
    )


def _subtitle(records: Sequence[Record]) -> str:
    devices = ", ".join(dict.fromkeys(record.device_name for record in records))
    days = sorted({record.recorded_at.partition("T")[0] for record in records})
    period = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"on {devices} · {period}"


def _measured_sources(records: Sequence[Record]) -> tuple[str, ...]:
    stacks = ", ".join(dict.fromkeys(record.stack for record in records))
    systems = ", ".join(dict.fromkeys(record.operating_system or "" for record in records))
    machines = ", ".join(dict.fromkeys(record.machine for record in records if record.machine))
    return (
        f"Software: {stacks}; {systems}.",
        f"Machine: {machines} (a hash; it names neither host nor user).",
        "Each cell ran in processes of its own; medians of all samples after a warm-up that had "
        "to settle; ± is half the distance of the quartiles.",
    )
