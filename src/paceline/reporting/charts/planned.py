"""Charts of what was planned and predicted: front, scaling, split, roofline, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from paceline.planfile import PlanFile, PlannedChoice
from paceline.planning.forecast.grid import GridCell, PredictionGrid
from paceline.prediction.step.breakdown import PassBreakdown
from paceline.reporting.charts.basic import (
    BAND,
    BAR,
    IDEAL,
    OOM_COLOR,
    PALETTE,
    RANGE,
    WIDTH,
    Chart,
    Layer,
    Row,
    dotted_line,
    layer,
    layered,
    nominal,
    quantity,
    styled,
)
from paceline.reporting.figures import (
    MEMORY_BOUND,
    duration_range,
    memory_bound_bytes,
    usd_range,
)
from paceline.units import HOUR_S

_NUM_BARS = 12
#: Costs further apart than this factor stand on a logarithmic axis.
_WIDE_FACTOR = 20.0
#: What a point of the front says of its choice.
_TOLD_OF_A_CHOICE = [
    {"field": name, "type": "nominal"}
    for name in ("rank", "offer", "devices", "takes", "costs", "why")
]
_LOG: Mapping[str, object] = {"scale": {"type": "log", "nice": False}}


def front_chart(plan: PlanFile) -> Chart | None:
    """Time against cost of every choice with its ranges; None where only rates were asked for."""
    points = [_front_point(rank, choice) for rank, choice in enumerate(plan.choices, start=1)]
    points = [point for point in points if point]
    if not points:
        return None
    costs = [float(str(point["cost"])) for point in points]
    x: Layer = quantity("cost", "cost, USD", zero=False)
    if max(costs) > _WIDE_FACTOR * min(costs):
        x = {**x, "scale": {"type": "log"}}
    y: Layer = quantity("time", "time, hours", zero=False)
    color = nominal("verdict", sort=["meets the goal", "misses it"])
    point: Layer = {"type": "point", "filled": True, "size": 80, "cursor": "pointer"}
    word: Layer = {"type": "text", "dx": 9, "dy": -7, "align": "left", "fontSize": 11}
    layers = [
        layer(points, RANGE, y=y, x={**x, "field": "cost_low"}, x2={"field": "cost_high"}),
        layer(points, RANGE, x=x, y={**y, "field": "time_low"}, y2={"field": "time_high"}),
        layer(points, point, x=x, y=y, color=color, tooltip=_TOLD_OF_A_CHOICE),
        layer(points, word, x=x, y=y, text={"field": "rank"}),
    ]
    return Chart(
        title="Time against cost",
        caption="Numbers are ranks. Lines hold four of five cases; left and low is better. "
        "Hover for the reason.",
        spec=layered(layers),
    )


def scaling_chart(plan: PlanFile) -> Chart | None:
    """Throughput of the first choice's device against how many; None with fewer than two."""
    if len(plan.scaling) < 2:
        return None
    base = plan.scaling[0]
    rate_title = f"{plan.workload.sample_unit} per second"
    per_device = base.samples_per_s / base.num_devices
    points: list[Row] = [
        {
            "devices": point.num_devices,
            "rate": point.samples_per_s,
            "ideal": per_device * point.num_devices,
            "efficiency": point.efficiency_frac,
            "bound": point.bound,
        }
        for point in plan.scaling
    ]
    counts = [point.num_devices for point in plan.scaling]
    x: Layer = {**quantity("devices", "devices", log=True), "axis": {"values": counts}}
    ideal = layer(points, IDEAL, x=x, y={"field": "ideal", "type": "quantitative", **_LOG})
    line = layer(points, dotted_line(), x=x, y={**quantity("rate", rate_title), **_LOG})
    return Chart(
        title="Scaling of the first choice's device",
        caption=plan.knee or "Dashed: so many times one device.",
        spec=layered([ideal, line]),
    )


def split_chart(plan: PlanFile) -> Chart:
    """Of each choice's step, what communication adds."""
    points: list[Row] = []
    for rank, choice in enumerate(plan.choices, start=1):
        exposed_s = choice.exposed_communication_s
        name = f"{rank} · {choice.place.device} ×{choice.num_devices}"
        for part, seconds in (
            ("device", choice.step_s.mid - exposed_s),
            ("communication", exposed_s),
        ):
            points.append({"choice": name, "part": part, "ms": 1e3 * max(0.0, seconds)})
    spec = _bars(points, "choice", "step, ms", "part", ["device", "communication"])
    return Chart(
        title="One step",
        caption="Device time, and communication that nothing hides.",
        spec=spec,
    )


def memory_fill_chart(plan: PlanFile) -> Chart:
    """Predicted peak of each choice against what its device has."""
    points: list[Row] = [
        {
            "choice": f"{rank} · {choice.place.device}",
            "low": choice.memory_bytes.low / 1e9,
            "bound": memory_bound_bytes(choice.memory_bytes) / 1e9,
            "capacity": choice.memory_capacity_bytes / 1e9,
        }
        for rank, choice in enumerate(plan.choices, start=1)
        if choice.memory_capacity_bytes < 1e15
    ]
    y = nominal("choice", sort=None)
    limit: Layer = {"type": "tick", "thickness": 2, "color": OOM_COLOR}
    layers = [
        layer(points, BAR, y=y, x=quantity("bound", "GB on one device")),
        layer(points, limit, y=y, x={"field": "capacity", "type": "quantitative"}),
    ]
    spec = styled({"layer": layers, "width": WIDTH, "height": {"step": 22}})
    return Chart(
        title="Memory",
        caption=f"Bar: {MEMORY_BOUND}. Red: what the device has.",
        spec=spec,
    )


def prediction_chart(grid: PredictionGrid) -> Chart:
    """Predicted throughput against batch, a line per device and count, with its interval."""
    points = [_grid_point(cell) for cell in grid.cells if cell.samples_per_s is not None]
    edges = _grid_edges(grid.cells)
    x = quantity("batch", "batch per device", log=True)
    color = nominal("device", sort=None)
    y, mid = quantity("low", f"{grid.sample_unit} per second"), "mid"
    layers = [
        layer(points, BAND, x=x, color=color, y=y, y2={"field": "high"}),
        layer(points, dotted_line(40), x=x, color=color, y={"field": mid, "type": "quantitative"}),
    ]
    if edges:
        edge: Layer = {"type": "rule", "strokeDash": [2, 2], "strokeWidth": 1.5}
        layers.append(layer(edges, edge, x=x, color=color))
    return Chart(
        title="Predicted throughput",
        caption="Bands hold four of five cases. Dotted: the smallest batch that does not fit.",
        spec=layered(layers),
    )


def roofline_chart(
    broken_down: PassBreakdown, *, flop_per_s: float, bytes_per_s: float
) -> Chart | None:
    """Ops of a pass under the roof of its device; None without a device.

    Args:
        broken_down: The pass.
        flop_per_s: Dense peak that its products can reach.
        bytes_per_s: Peak of device memory.
    """
    points: list[Row] = [
        {
            "op": op.kind,
            "module": op.module,
            "intensity": op.flop / op.moved_bytes,
            "rate": op.flop / op.device_s / 1e12,
            "share": op.time_frac,
        }
        for op in broken_down.ops
        if op.device_s and op.flop > 0 and op.moved_bytes > 0
    ]
    if not points:
        return None
    layers = [_roof_layer(flop_per_s, bytes_per_s), _dots_layer(points)]
    above = _above_words(points, flop_per_s, bytes_per_s)
    return Chart(
        title=f"Roofline of {broken_down.device}",
        caption=f"Each dot is a distinct op, as large as its share of the time.{above}",
        spec=layered(layers),
    )


def _above_words(points: Sequence[Row], flop_per_s: float, bytes_per_s: float) -> str:
    """Why dots stand above the roof, which is no bound to what it does not count."""
    ridge = flop_per_s / bytes_per_s
    spots = [(float(str(point["intensity"])), float(str(point["rate"])) * 1e12) for point in points]
    words = ""
    if any(i < ridge and rate > i * bytes_per_s for i, rate in spots):
        words += " Above the slope: a part of the counted bytes stays in the cache."
    if any(i >= ridge and rate > flop_per_s for i, rate in spots):
        words += " Above the level: Winograd's kernels compute less than is counted."
    return words


def _roof_layer(flop_per_s: float, bytes_per_s: float) -> Layer:
    """The slope of the memory up to the ridge, and the level of the arithmetic beyond."""
    ridge = flop_per_s / bytes_per_s
    ends = (min(0.1, ridge / 100), ridge, max(ridge * 30, 1e3))
    roof: list[Row] = [{"i": i, "r": min(flop_per_s, i * bytes_per_s) / 1e12} for i in ends]
    return layer(
        roof,
        {"type": "line", "color": PALETTE[6], "strokeWidth": 1.6},
        x={**quantity("i", "FLOP per byte"), **_LOG},
        y={**quantity("r", "TFLOP/s"), **_LOG},
    )


def _dots_layer(points: Sequence[Row]) -> Layer:
    """An op each, as large as its share of the time."""
    size = {"field": "share", "type": "quantitative", "legend": None}
    return layer(
        points,
        {"type": "point", "filled": True, "opacity": 0.75, "tooltip": {"content": "data"}},
        x={**quantity("intensity", "FLOP per byte"), **_LOG},
        y={**quantity("rate", "TFLOP/s"), **_LOG},
        size={**size, "scale": {"range": [30, 700]}},
        color=nominal("op"),
    )


def ops_chart(broken_down: PassBreakdown) -> Chart | None:
    """The ops that take most time, by what holds them back; None without a device."""
    points: list[dict[str, object]] = [
        {"op": f"{op.kind} · {op.module or op.phase}", "ms": 1e3 * op.device_s, "limit": op.limit}
        for op in broken_down.ops[:_NUM_BARS]
        if op.device_s is not None
    ]
    # Ops of one name share a bar: the longest bar is the first.
    total_ms = Counter[object]()
    for point in points:
        total_ms[point["op"]] += point["ms"]  # type: ignore[operator]
    points.sort(key=lambda point: -total_ms[point["op"]])
    if not points:
        return None
    limits = ["compute", "bandwidth", "overhead", "odd width"]
    spec = _bars(points, "op", "ms of a step", "limit", limits)
    return Chart(
        title="Where the time goes",
        caption="Distinct ops with all their occurrences.",
        spec=spec,
    )


def _front_point(rank: int, choice: PlannedChoice) -> Row:
    time_s, cost = choice.time_s, choice.cost_usd
    if time_s is None or cost is None:
        return {}
    return {
        "rank": str(rank),
        "offer": choice.place.offer,
        "devices": choice.num_devices,
        "takes": duration_range(time_s),
        "costs": f"{usd_range(cost)} USD",
        "why": choice.reason,
        "verdict": "meets the goal" if choice.meets_goal else "misses it",
        "cost": cost.mid, "cost_low": cost.low, "cost_high": cost.high,
        "time": time_s.mid / HOUR_S, "time_low": time_s.low / HOUR_S,
        "time_high": time_s.high / HOUR_S,
    }  # fmt: skip


def _grid_point(cell: GridCell) -> Row:
    rate = cell.samples_per_s
    assert rate is not None
    return {
        "device": _place(cell), "batch": cell.batch_per_device, "low": rate.low, "mid": rate.mid,
        "high": rate.high, "bound": cell.bound,
    }  # fmt: skip


def _place(cell: GridCell) -> str:
    count = f"{cell.num_devices} × " if cell.num_devices > 1 else ""
    return f"{count}{cell.device} {cell.precision} {cell.compiler}"


def _grid_edges(cells: Sequence[GridCell]) -> list[Row]:
    first: dict[str, Row] = {}
    for cell in sorted(cells, key=lambda c: c.batch_per_device):
        if cell.status == "out of memory":
            first.setdefault(_place(cell), {"device": _place(cell), "batch": cell.batch_per_device})
    return list(first.values())


def _bars(
    points: Sequence[Row], category: str, title: str, part: str, parts: Sequence[str]
) -> dict[str, object]:
    """Bars of milliseconds in stacked parts, the first part at the axis."""
    bars = layer(
        [{**point, "place": parts.index(str(point[part]))} for point in points],
        BAR,
        y=nominal(category, sort=None),
        x=quantity("ms", title),
        color=nominal(part, sort=list(parts)),
        order={"field": "place", "type": "quantitative"},
    )
    return dict(styled({**bars, "width": WIDTH, "height": {"step": 22}}))
