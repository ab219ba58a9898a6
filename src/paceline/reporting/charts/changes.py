"""Charts of how an answer changes: with the deadline, the load, and the number of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.planfile import LoadPoint, PlanFile
from paceline.planning.decisions.curve import ScalingCurve
from paceline.reporting.charts.basic import (
    BAND,
    IDEAL,
    OOM_COLOR,
    PALETTE,
    RANGE,
    Chart,
    Layer,
    Row,
    dashed_rule,
    dotted_line,
    layer,
    layered,
    nominal,
    quantity,
)
from paceline.units import HOUR_S

_LOG: Mapping[str, object] = {"scale": {"type": "log", "nice": False}}


def deadline_chart(plans: Sequence[tuple[float, PlanFile]]) -> Chart | None:
    """Cost of the first choice against the deadline; None where no plan has a cost.

    Args:
        plans: Deadlines in seconds, each with its plan.
    """
    points: list[Row] = [
        {"hours": seconds / HOUR_S, "usd": cost.mid, "low": cost.low, "high": cost.high,
         "offer": first.place.offer}
        for seconds, plan in plans
        for first in plan.choices[:1]
        if (cost := first.cost_usd) is not None
    ]  # fmt: skip
    if not points:
        return None
    x: Layer = {**quantity("hours", "deadline, hours"), **_LOG}
    rule = layer(points, RANGE, x=x, y=quantity("low", "cost, USD"), y2={"field": "high"})
    line = layer(points, dotted_line(60), x=x, y=quantity("usd", "cost, USD"))
    return Chart(
        title="Cost against deadline",
        caption="The first choice at each deadline; lines hold four of five cases.",
        spec=layered([rule, line]),
    )


def load_chart(plan: PlanFile) -> Chart | None:
    """What requests of the first choice wait against how many come, up to where it saturates.

    None where no service was simulated.
    """
    service = plan.choices[0].service if plan.choices else None
    if service is None or not service.curve:
        return None
    points: list[Row] = [
        {"requests_per_s": one.requests_per_s, "seconds": seconds, "what": what}
        for one in service.curve
        for what, seconds in _seen_at(one).items()
    ]
    most = service.capacity_requests_per_s
    x: Layer = quantity("requests_per_s", "requests per second")
    ends: Row = {"requests_per_s": most.low, "high": most.high}
    near_most: Layer = {"type": "rect", "color": OOM_COLOR, "opacity": 0.12}
    edge = layer([ends], near_most, x=x, x2={"field": "high"})
    y: Layer = {**quantity("seconds", "seconds"), **_LOG}
    line = layer(points, dotted_line(40), x=x, y=y, color=nominal("what", sort=None))
    asked = layer([{"requests_per_s": service.requests_per_s}], dashed_rule(PALETTE[6]), x=x)
    full: Layer = {"type": "rule", "color": OOM_COLOR, "strokeWidth": 1.5}
    return Chart(
        title="Latency against load",
        caption=f"{service.percentile} of 100 requests see no more. Full red: what the service "
        "completes at most, with its range; dashed: the load asked.",
        spec=layered([edge, line, asked, layer([{"requests_per_s": most.mid}], full, x=x)]),
    )


def _seen_at(point: LoadPoint) -> dict[str, float]:
    """What requests see at a load, by what it is called."""
    if point.ttft_s is None:
        return {"answer": point.request_s}
    return {
        "first token": point.ttft_s, "per token": point.latency_s, "whole answer": point.request_s,
    }  # fmt: skip


def curve_chart(curve: ScalingCurve, unit: str) -> Chart:
    """Throughput against the number of devices, with the ideal and the knee."""
    first = curve.points[0]
    each = first.items_per_s / first.count
    points: list[Row] = [
        {"devices": one.count, "rate": one.items_per_s, "ideal": each * one.count,
         "low": one.items_per_s_interval.low, "high": one.items_per_s_interval.high,
         "strategy": one.strategy, "efficiency": round(one.efficiency_frac, 3),
         "lost to": one.limit}
        for one in curve.points
    ]  # fmt: skip
    x: Layer = {
        **quantity("devices", "devices", log=True),
        "axis": {"values": [one.count for one in curve.points]},
    }
    y: Layer = {**quantity("rate", f"{unit} per second"), **_LOG}
    layers = [
        layer(points, BAND, x=x, y={**y, "field": "low"}, y2={"field": "high"}),
        layer(points, IDEAL, x=x, y={"field": "ideal", "type": "quantitative", **_LOG}),
        layer(points, dotted_line(), x=x, y=y),
        *_knee_layers(curve, x),
    ]
    return Chart(
        title="Scaling",
        caption=f"Dashed: so many times one. {curve.reason}",
        spec=layered(layers),
    )


def _knee_layers(curve: ScalingCurve, x: Layer) -> list[Layer]:
    """A rule where more devices stop paying."""
    values: list[Row] = [{"devices": curve.knee.count, "text": "knee"}]
    word: Layer = {"type": "text", "color": OOM_COLOR, "align": "right", "dx": -5, "dy": 8}
    return [
        layer(values, dashed_rule(OOM_COLOR), x=x),
        layer(values, word, x=x, y={"value": 0}, text={"field": "text"}),
    ]
