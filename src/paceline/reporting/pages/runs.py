"""A watched run as a page: how it goes beside what was predicted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from paceline.planfile import Interval
from paceline.reporting.charts.basic import PALETTE, Chart, Layer, Row, layer, layered, quantity
from paceline.reporting.pages.page import Page, Section
from paceline.reporting.screens.runs import ledger_table, parts_text, summary_lines
from paceline.units import format_bytes, format_duration
from paceline.watch.verdict import RunSummary

_MILLISECONDS = 1e3


def run_page(summary: RunSummary, step_s: Sequence[float]) -> Page:
    """A run as far as it has got.

    Args:
        summary: What is known of it.
        step_s: Times of its steps, in order; thinned out where they are many.
    """
    chart = steps_chart(summary, step_s)
    ledger = Section(
        title="Beside its prediction",
        charts=() if chart is None else (chart,),
        table=ledger_table(summary),
        lines=tuple(summary_lines(summary))[1:],
    )
    parts = "" if summary.steps is None else parts_text(summary.steps)
    sections = [ledger, Section(title="A step is", lines=(parts,))] if parts else [ledger]
    return Page(
        title=f"Run {summary.id}: {summary.state}",
        subtitle=shlex.join(summary.command),
        tiles=tuple(_tiles(summary)),
        sections=tuple(sections),
        sources=(),
    )


def steps_chart(summary: RunSummary, step_s: Sequence[float]) -> Chart | None:
    """Time of each step, with the interval that was predicted; None before two have ended."""
    if not step_s or summary.steps is None:
        return None
    width = summary.steps.num_steps / len(step_s)
    points: list[Row] = [
        {"step": round((number + 1) * width), "ms": seconds * _MILLISECONDS}
        for number, seconds in enumerate(step_s)
    ]
    x: Layer = quantity("step", "step", zero=False)
    mark: Layer = {"type": "line", "tooltip": {"content": "data"}}
    line = layer(points, mark, x=x, y=quantity("ms", "ms a step"))
    predicted = next((one.predicted for one in summary.ledger if one.name == "step"), None)
    layers = [] if predicted is None else [_band(points, predicted, x)]
    words = "Green: the interval that was predicted." if predicted else "Nothing was predicted."
    return Chart(title="Time of each step", caption=words, spec=layered([*layers, line]))


def _band(points: Sequence[Row], predicted: Interval, x: Layer) -> Layer:
    ends: list[Row] = [
        {"step": point["step"], "low": predicted.low * _MILLISECONDS,
         "high": predicted.high * _MILLISECONDS}
        for point in (points[0], points[-1])
    ]  # fmt: skip
    mark: Layer = {"type": "area", "opacity": 0.2, "color": PALETTE[2]}
    return layer(ends, mark, x=x, y=quantity("low", "ms a step"), y2={"field": "high"})


def _tiles(summary: RunSummary) -> Iterator[tuple[str, str]]:
    if summary.steps is not None:
        yield f"{summary.steps.num_steps:,}", "steps"
        yield format_duration(summary.steps.step_s), "a step"
    yield format_duration(summary.elapsed_s), "since its start"
    if summary.peak_bytes is not None:
        yield format_bytes(summary.peak_bytes), "most that it held"
