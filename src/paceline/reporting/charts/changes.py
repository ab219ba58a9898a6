"""Charts of how an answer changes: with the deadline, the load, and the number of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.planfile import LoadPoint, PlanFile
from paceline.planning.decisions.curve import ScalingCurve
from paceline.reporting.charts.basic import (
    OOM_COLOR,
    PALETTE,
    Chart,
    Layer,
    Row,
    layered,
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
    rule: Layer = {
        "data": {"values": points},
        "mark": {"type": "rule", "color": PALETTE[6], "opacity": 0.45},
        "encoding": {"x": x, "y": quantity("low", "cost, USD"), "y2": {"field": "high"}},
    }
    line: Layer = {
        "data": {"values": points},
        "mark": {"type": "line", "point": {"size": 60}, "tooltip": {"content": "data"}},
        "encoding": {"x": x, "y": quantity("usd", "cost, USD")},
    }
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
    edge: Layer = {
        "data": {"values": [{"requests_per_s": most.low, "high": most.high}]},
        "mark": {"type": "rect", "color": OOM_COLOR, "opacity": 0.12},
        "encoding": {"x": x, "x2": {"field": "high"}},
    }
    line: Layer = {
        "data": {"values": points},
        "mark": {"type": "line", "point": {"size": 40}, "tooltip": {"content": "data"}},
        "encoding": {
            "x": x,
            "y": {**quantity("seconds", "seconds"), **_LOG},
            "color": {"field": "what", "type": "nominal", "title": None, "sort": None},
        },
    }
    return Chart(
        title="Latency against load",
        caption=f"{service.percentile} of 100 requests see no more. Full red: what the service "
        "completes at most, with its range; dashed: the load asked.",
        spec=layered([edge, line, _rule_at(service.requests_per_s, x), _edge_at(most.mid, x)]),
    )


def _seen_at(point: LoadPoint) -> dict[str, float]:
    """What requests see at a load, by what it is called."""
    if point.ttft_s is None:
        return {"answer": point.request_s}
    return {
        "first token": point.ttft_s, "per token": point.latency_s, "whole answer": point.request_s,
    }  # fmt: skip


def _rule_at(requests_per_s: float, x: Layer) -> Layer:
    return {
        "data": {"values": [{"requests_per_s": requests_per_s}]},
        "mark": {"type": "rule", "color": PALETTE[6], "strokeDash": [2, 2], "strokeWidth": 1.5},
        "encoding": {"x": x},
    }


def _edge_at(requests_per_s: float, x: Layer) -> Layer:
    return {
        "data": {"values": [{"requests_per_s": requests_per_s}]},
        "mark": {"type": "rule", "color": OOM_COLOR, "strokeWidth": 1.5},
        "encoding": {"x": x},
    }


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
    layers: list[Layer] = [
        {
            "data": {"values": points},
            "mark": {"type": "area", "opacity": 0.13},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "data": {"values": points},
            "mark": {"type": "line", "strokeDash": [5, 4], "color": PALETTE[6], "strokeWidth": 1},
            "encoding": {"x": x, "y": {"field": "ideal", "type": "quantitative", **_LOG}},
        },
        {
            "data": {"values": points},
            "mark": {"type": "line", "point": {"size": 45}, "tooltip": {"content": "data"}},
            "encoding": {"x": x, "y": y},
        },
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
    rule: Layer = {
        "data": {"values": values},
        "mark": {"type": "rule", "color": OOM_COLOR, "strokeDash": [2, 2], "strokeWidth": 1.5},
        "encoding": {"x": x},
    }
    word: Layer = {
        "data": {"values": values},
        "mark": {"type": "text", "color": OOM_COLOR, "align": "right", "dx": -5, "dy": 8},
        "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "text"}},
    }
    return [rule, word]
