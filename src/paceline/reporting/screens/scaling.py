"""A scaling curve as a table."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from paceline.planfile import Interval
from paceline.planning.decisions.curve import ScalingCurve, ScalingPoint
from paceline.reporting.figures import duration_range, memory_range, number_range, usd_range
from paceline.reporting.tables import ABSENT, Table, continued_table, header, markdown_table
from paceline.reporting.texts import labelled
from paceline.units import format_duration, format_percent, format_significant

#: The column that is the last of the table, and lines below it where there is little room.
_LOST_TO = 9
_LOSSES = {
    "collective": "communication",
    "batch floor": "too small batches",
    "memory": "memory",
}


def scaling_text(
    title: str, assumptions: Sequence[str], curve: ScalingCurve, unit: str, *, width: int = 100,
    head: str = "",
) -> str:  # fmt: skip
    """The curve as text, with the knee and the counts that do not work, below a sentence."""
    blocks = (
        "\n".join(textwrap.wrap(head, width, break_on_hyphens=False)),
        "\n".join((title, *labelled("assumed", assumptions, width))),
        continued_table(scaling_table(curve, unit).of_columns(range(_LOST_TO)), width=width),
        "\n".join(
            (
                *labelled("lost to", _lost_to(curve), width),
                *labelled("knee", (curve.reason,), width),
                *labelled("left out", left_out(curve), width),
            )
        ),
    )
    return "\n\n".join(filter(None, blocks))


def scaling_markdown(
    title: str, assumptions: Sequence[str], curve: ScalingCurve, unit: str, *, head: str = ""
) -> str:
    """The curve as Markdown."""
    notes = "\n".join(f"- {note}" for note in assumptions)
    missing = "\n".join(f"- {note}" for note in left_out(curve))
    table = markdown_table(scaling_table(curve, unit))
    blocks = (f"# {title}", head, notes, table, f"Knee: {curve.reason}", missing)
    return "\n\n".join(filter(None, blocks))


def scaling_table(curve: ScalingCurve, unit: str) -> Table:
    """One row per device count; the knee carries a remark."""
    return Table(
        columns=header(
            f"devices > | strategy | batch > | {unit}/s > | efficiency > | time > | cost USD >"
            " | memory > | exposed comm. > | lost to"
        ),
        rows=tuple(
            (
                str(point.count),
                point.strategy,
                str(point.global_batch),
                _rate(point),
                format_percent(point.efficiency_frac),
                _or_absent(duration_range, point.time_interval_s),
                _or_absent(usd_range, point.cost_interval_usd),
                memory_range(point.memory_interval_bytes),
                format_duration(point.exposed_communication_s),
                str(point.limit),
            )
            for point in curve.points
        ),
    )


def _lost_to(curve: ScalingCurve) -> list[str]:
    """What costs most at which counts, a sentence for each; nothing where nothing is lost."""
    counts: dict[str, list[str]] = {}
    for point in curve.points:
        if point.limit != "nothing":
            counts.setdefault(_LOSSES[point.limit], []).append(f"{point.count:,}")
    return [f"{what} at {', '.join(same)} devices" for what, same in counts.items()]


def _rate(point: ScalingPoint) -> str:
    """Throughput; its interval is that of the time, and stands there where a time is known."""
    if point.time_s is None:
        return number_range(point.items_per_s_interval)
    return format_significant(point.items_per_s)


def _or_absent(words: Callable[[Interval], str], figure: Interval | None) -> str:
    return ABSENT if figure is None else words(figure)


def left_out(curve: ScalingCurve) -> list[str]:
    """Why counts do not work, a sentence for each reason."""
    counts: dict[str, list[str]] = {}
    for count, reason in curve.rejected:
        counts.setdefault(reason, []).append(f"{count:,}")
    return [f"{', '.join(same)} devices: {reason}" for reason, same in counts.items()]
