"""Memory over a pass as a picture: who holds what, when it is fullest, and what the device has."""

from __future__ import annotations

from itertools import groupby

from paceline.model.live_bytes import MemoryCourse
from paceline.reporting.charts.basic import (
    OOM_COLOR,
    PALETTE,
    Chart,
    Layer,
    Row,
    layer,
    layered,
    nominal,
    quantity,
)
from paceline.units import format_bytes

#: Owners below this share of the peak at every moment are left out.
_LEAST_FRAC = 0.002
#: The name of a phase needs this share of the axis.
_NAME_FRAC = 0.08
#: A capacity further away than this factor would press the course to the ground.
_NEAR_FACTOR = 2.0


def course_chart(course: MemoryCourse, *, capacity_bytes: float | None = None) -> Chart:
    """Live bytes by owner from the first op to the last, with the phases and the peak.

    Args:
        course: Of the pass.
        capacity_bytes: What the device has; drawn where it is within reach. None if unknown.
    """
    areas = layer(
        _owned(course),
        {"type": "area", "interpolate": "step-after", "tooltip": {"content": "data"}},
        x=_op_axis(course),
        y={**quantity("GB", "GB live"), "stack": True},
        color=nominal("owner", sort=list(course.owners)),
        order={"field": "rank", "type": "quantitative"},
    )
    layers = [areas, *_phase_layers(course), *_peak_layers(course)]
    if capacity_bytes and capacity_bytes < _NEAR_FACTOR * course.peak_bytes:
        limit: Layer = {"type": "rule", "color": OOM_COLOR, "strokeWidth": 2}
        layers.append(layer([{"GB": capacity_bytes / 1e9}], limit, y=quantity("GB", "GB live")))
    return Chart(
        title="Memory over the pass",
        caption=f"Live bytes by owner, before allocator and context. Fullest at op "
        f"{course.peak_op:,} of {course.num_ops:,} ({course.peak_phase}"
        f"{f', {course.peak_module}' if course.peak_module else ''}): "
        f"{format_bytes(course.peak_bytes)}. A red line is what the device has.",
        spec=layered(layers),
    )


def _owned(course: MemoryCourse) -> list[Row]:
    """One row per owner and part of the pass, and the last once more at the end."""
    starts = (*course.starts, course.num_ops)
    return [
        {"op": start, "owner": owner, "rank": rank, "GB": held / 1e9}
        for rank, (owner, moments) in enumerate(zip(course.owners, course.owned_bytes, strict=True))
        if max(moments) >= _LEAST_FRAC * course.peak_bytes
        for start, held in zip(starts, (*moments, moments[-1]), strict=True)
    ]


def _op_axis(course: MemoryCourse) -> Layer:
    scale = {"domain": [1, course.num_ops], "nice": False}
    return {**quantity("op", "op, in order"), "scale": scale}


def _phase_layers(course: MemoryCourse) -> list[Layer]:
    """A line where each phase begins, and its name where there is room for it."""
    begun = [
        next(group)
        for _, group in groupby(zip(course.phases, course.starts, strict=True), lambda p: p[0])
    ]
    ends = [*(start for _, start in begun[1:]), course.num_ops]
    values: list[Row] = [
        {"phase": phase if end - start > _NAME_FRAC * course.num_ops else "", "op": start}
        for (phase, start), end in zip(begun, ends, strict=True)
    ]
    x = _op_axis(course)
    rule: Layer = {"type": "rule", "strokeDash": [3, 3], "color": PALETTE[6], "opacity": 0.7}
    word: Layer = {"type": "text", "align": "left", "dx": 4, "dy": 6, "fontSize": 11, "y": 0}
    return [layer(values, rule, x=x), layer(values, word, x=x, text={"field": "phase"})]


def _peak_layers(course: MemoryCourse) -> list[Layer]:
    peak: Row = {"op": course.peak_op, "GB": course.peak_bytes / 1e9}
    point: Layer = {"type": "point", "filled": True, "size": 70, "color": OOM_COLOR}
    return [layer([peak], point, x=_op_axis(course), y=quantity("GB", "GB live"))]
