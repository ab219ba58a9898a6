"""One HTML file that opens offline: tiles, charts, tables, and where every number comes from.

Everything is inside the file: the style, the specifications of the charts and the script that
draws them. Text from outside is escaped, so a hostile model name is shown and not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path

from paceline.measurements.ledger import LedgerRow, summarize_ledger
from paceline.measurements.records import Record
from paceline.reporting.charts import basic as charts
from paceline.reporting.charts.basic import Chart
from paceline.reporting.charts.drawing import drawing_script, write_chart
from paceline.reporting.screens import measurements
from paceline.reporting.tables import Table
from paceline.units import format_percent, format_significant
from paceline.writing import make_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a page.

    Attributes:
        title: Its heading.
        charts: Pictures, in order.
        table: Figures below them; None for none.
        lines: Sentences below that.
    """

    title: str
    charts: tuple[Chart, ...] = ()
    table: Table | None = None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole page.

    Attributes:
        title: Heading.
        subtitle: One line under it.
        tiles: Figures that matter most, as (figure, what it is).
        sections: Parts, in order.
        sources: Where the numbers come from, one sentence each.
    """

    title: str
    subtitle: str
    tiles: tuple[tuple[str, str], ...]
    sections: tuple[Section, ...]
    sources: tuple[str, ...]


def page_html(page: Page) -> str:
    """The page as one file's text."""
    style = resources.files("paceline.reporting").joinpath("data/page.css").read_text()
    specs = [chart.spec for section in page.sections for chart in section.charts]
    body = "\n".join(_section_html(section, page) for section in page.sections)
    return _SKELETON.format(
        title=escape(page.title),
        style=style,
        subtitle=escape(page.subtitle),
        tiles=_tiles_html(page.tiles),
        body=body,
        sources="".join(f"<li>{escape(line)}</li>" for line in page.sources),
        specs=_script_json(specs),
        library=_script_text(drawing_script()) if specs else "",
    )


def write_pictures(page: Page, folder: Path, *, ending: str) -> tuple[Path, ...]:
    """Write every chart of the page as a picture of its own, numbered in order.

    Args:
        page: Any page.
        folder: Made if it is not there.
        ending: ``svg`` or ``png``.

    Raises:
        InvalidInputError: The folder or a picture cannot be written.
    """
    make_folder(folder)
    drawn = [chart for section in page.sections for chart in section.charts]
    paths = []
    for number, chart in enumerate(drawn, start=1):
        words = "-".join(re.findall(r"\w+", chart.title.lower()))
        paths.append(folder / f"{number:02}-{words}.{ending}")
        write_chart(chart, paths[-1])
    return tuple(paths)


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


def _section_html(section: Section, page: Page) -> str:
    first = sum(len(s.charts) for s in page.sections[: page.sections.index(section)])
    figures = "".join(_figure_html(c, first + i) for i, c in enumerate(section.charts))
    parts = [f"<h2>{escape(section.title)}</h2>"]
    if figures:
        parts.append(f'<div class="charts">{figures}</div>')
    if section.table is not None:
        parts.append(
            f'<div class="table" style="margin-top:14px">{table_html(section.table)}</div>'
        )
    if section.lines:
        parts.append("<ul>" + "".join(f"<li>{escape(x)}</li>" for x in section.lines) + "</ul>")
    return "\n".join(parts)


def _figure_html(chart: Chart, number: int) -> str:
    return (
        f'<figure><h3>{escape(chart.title)}</h3><div id="chart-{number}"></div>'
        f"<figcaption>{escape(chart.caption)}</figcaption></figure>"
    )


def table_html(table: Table) -> str:
    """A table as HTML, numbers on the right and failed cells in red."""
    head = "".join(
        f'<th class="{"n" if c.is_number else ""}">{escape(c.title)}</th>' for c in table.columns
    )
    remarks = table.remarks or ("",) * len(table.rows)
    rows = "".join(
        _row_html(table, row) + _remark_html(table, remark)
        for row, remark in zip(table.rows, remarks, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row_html(table: Table, row: Sequence[str]) -> str:
    cells = []
    for column, text in zip(table.columns, row, strict=True):
        kinds = ["n"] if column.is_number else []
        kinds += ["bad"] if text in measurements.FAILED_WORDS else []
        cells.append(f'<td class="{" ".join(kinds)}">{escape(text)}</td>')
    return f"<tr>{''.join(cells)}</tr>"


def _remark_html(table: Table, remark: str) -> str:
    if not remark:
        return ""
    return f'<tr class="note"><td colspan="{len(table.columns)}">{escape(remark)}</td></tr>'


def _tiles_html(tiles: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f'<div class="tile"><b>{escape(_unbroken(figure))}</b><span>{escape(what)}</span></div>'
        for figure, what in tiles
    )


def _unbroken(figure: str) -> str:
    """A figure whose ranges do not break at their dash (U+2060 joins words)."""
    return figure.replace("–", "\u2060–\u2060")


def _script_json(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")


def _script_text(script: str) -> str:
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


_SKELETON = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<header><h1>{title}</h1><p>{subtitle}</p></header>
<div class="tiles">{tiles}</div>
{body}
<footer><ul>{sources}</ul></footer>
</main>
<script type="application/json" id="specs">{specs}</script>
<script type="module">
{library}
JSON.parse(document.getElementById("specs").textContent).forEach(
  (spec, number) => window.drawChart(document.getElementById("chart-" + number), spec)
);
</script>
</body>
</html>
"""
