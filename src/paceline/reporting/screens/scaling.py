"""A scaling curve as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from paceline.planfile import Interval
from paceline.planning.decisions.curve import ScalingCurve, ScalingPoint
from paceline.reporting.figures import (
    ItemRate,
    duration_range,
    memory_range,
    number_range,
    usd_range,
)
from paceline.reporting.tables import ABSENT, Table, continued_table, header, markdown_table
from paceline.reporting.texts import labelled
from paceline.units import format_duration, format_percent, format_usd

_LOSSES = {
    "collective": "communication",
    "batch floor": "too small batches",
    "memory": "memory",
}


def scaling_text(
    title: str, assumptions: Sequence[str], curve: ScalingCurve, rate: ItemRate, *,
    width: int = 100, head: str = "",
) -> str:  # fmt: skip
    """The curve as text, with the knee and the counts that do not work, below a sentence."""
    table = scaling_table(curve, rate)
    blocks = (
        "\n".join(textwrap.wrap(head, width, break_on_hyphens=False)),
        "\n".join((title, *labelled("assumed", assumptions, width))),
        continued_table(table.of_columns(range(len(table.columns) - 1)), width=width),
        "\n".join(
            (
                *labelled("lost to", _lost_to(curve), width),
                *labelled("knee", (curve.reason,) if _compares(curve) else (), width),
                *labelled("left out", left_out(curve), width),
            )
        ),
    )
    return "\n\n".join(filter(None, blocks))


def scaling_markdown(
    title: str, assumptions: Sequence[str], curve: ScalingCurve, rate: ItemRate, *, head: str = ""
) -> str:
    """The curve as Markdown."""
    notes = "\n".join(f"- {note}" for note in assumptions)
    missing = "\n".join(f"- {note}" for note in left_out(curve))
    table = markdown_table(scaling_table(curve, rate))
    knee = f"Knee: {curve.reason}" if _compares(curve) else ""
    blocks = (f"# {title}", head, notes, table, knee, missing)
    return "\n\n".join(filter(None, blocks))


def scaling_table(curve: ScalingCurve, rate: ItemRate) -> Table:
    """One row per device count, with an efficiency where counts are compared.

    Without an amount of work the cost is that of a million units.
    """
    compares = _compares(curve)
    has_work = any(point.time_s is not None for point in curve.points)
    spent = "time > | cost USD >" if has_work else f"USD per M {rate.unit} >"
    efficiency = " | efficiency >" if compares else ""
    return Table(
        columns=header(
            f"devices > | strategy | batch > | {rate.unit}/s >{efficiency} | {spent}"
            " | memory > | exposed comm. > | lost to"
        ),
        rows=tuple(
            (
                str(point.count),
                point.strategy,
                str(point.global_batch),
                _rate(point, rate),
                *((format_percent(point.efficiency_frac),) if compares else ()),
                *(_spent(point) if has_work else (_per_million(point, rate),)),
                memory_range(point.memory_interval_bytes),
                format_duration(point.exposed_communication_s),
                str(point.limit),
            )
            for point in curve.points
        ),
    )


def _spent(point: ScalingPoint) -> tuple[str, str]:
    """Time and cost of the job."""
    return (
        _or_absent(duration_range, point.time_interval_s),
        _or_absent(usd_range, point.cost_interval_usd),
    )


def _per_million(point: ScalingPoint, rate: ItemRate) -> str:
    """What a million units cost."""
    usd = point.usd_per_million_items
    return ABSENT if usd is None else format_usd(usd / rate.per_item)


def _devices(counts: Sequence[str]) -> str:
    return f"{', '.join(counts)} {'device' if list(counts) == ['1'] else 'devices'}"


def _compares(curve: ScalingCurve) -> bool:
    """Whether there is another count that one can be efficient against."""
    return len(curve.points) > 1


def _lost_to(curve: ScalingCurve) -> list[str]:
    """What costs most at which counts, a sentence for each; nothing where nothing is lost."""
    counts: dict[str, list[str]] = {}
    for point in curve.points:
        if point.limit != "nothing":
            counts.setdefault(_LOSSES[point.limit], []).append(f"{point.count:,}")
    if not _compares(curve):
        (point,) = curve.points
        share = format_percent(point.exposed_communication_s / point.step_s)
        return [
            f"{what}, {share} of the step" if what == "communication" else what for what in counts
        ]
    return [f"{what} at {_devices(same)}" for what, same in counts.items()]


def _rate(point: ScalingPoint, rate: ItemRate) -> str:
    """Throughput; its interval is that of the time, and stands there where a time is known."""
    if point.time_s is None:
        return number_range(rate.range_of(point.items_per_s_interval))
    return rate.text(point.items_per_s)


def _or_absent(words: Callable[[Interval], str], figure: Interval | None) -> str:
    return ABSENT if figure is None else words(figure)


def left_out(curve: ScalingCurve) -> list[str]:
    """Why counts do not work, a sentence for each reason."""
    counts: dict[str, list[str]] = {}
    for count, reason in curve.rejected:
        counts.setdefault(reason, []).append(f"{count:,}")
    return [f"{_devices(same)}: {reason}" for reason, same in counts.items()]
