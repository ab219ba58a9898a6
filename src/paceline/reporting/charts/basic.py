"""Charts as Vega-Lite specifications: plain data, drawn by whoever shows them.

A chart computes nothing beyond choosing units: the figures are those of its records. Drawing to
SVG, PNG or an offline page is in `paceline.reporting.charts.drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.measurements.ledger import LedgerRow
from paceline.measurements.records import Record
from paceline.reporting.texts import sample_unit_of
from paceline.values import dataclass

Row = Mapping[str, object]
Layer = dict[str, object]

#: Colours that stay apart for colour-blind readers (Okabe and Ito, 2008), without the yellow.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6e6e6e")
OOM_COLOR = "#c0392b"

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
#: How what is expected is drawn beside what is shown.
IDEAL: Layer = {"type": "line", "strokeDash": [5, 4], "color": PALETTE[6], "strokeWidth": 1}
BAR: Layer = {"type": "bar", "cornerRadiusEnd": 2, "tooltip": {"content": "data"}}
#: A range of four of five cases.
RANGE: Layer = {"type": "rule", "color": PALETTE[6], "opacity": 0.45}
BAND: Layer = {"type": "area", "opacity": 0.13}
#: Width of the whole picture, axis titles included.
WIDTH, _HEIGHT = 455, 260


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture with the words around it.

    Attributes:
        title: What it shows.
        caption: How to read it, in one or two sentences.
        spec: Vega-Lite specification.
    """

    title: str
    caption: str
    spec: Mapping[str, object]


def throughput_chart(rows: Sequence[LedgerRow]) -> Chart | None:
    """Throughput against batch, a line per number of devices, with the edge where memory ends.

    None where no cell has a time.
    """
    unit = sample_unit_of(row.record for row in rows)
    points = [_throughput_point(row) for row in rows if row.record.samples_per_s]
    if not points:
        return None
    edges = [_edge(row.record) for row in rows if row.record.outcome == "out-of-memory"]
    layers = [_line(points, "measured", f"{unit} per second")]
    if any(point["predicted"] is not None for point in points):
        layers.append(_predicted_line(points))
    if edges:
        layers.extend(_oom_layers(_first_edges(edges)))
    oom_words = " The red rule is the smallest batch that ran out of memory." if edges else ""
    return Chart(
        title="Throughput against batch",
        caption=f"Solid: measured median. Dashed: predicted.{oom_words}",
        spec=layered(layers),
    )


def speed_up_chart(rows: Sequence[LedgerRow]) -> Chart | None:
    """Speed-up against the number of devices with the ideal line; None with only one of them."""
    single = {
        row.record.batch_per_device: row.record.samples_per_s
        for row in rows
        if row.record.num_devices == 1 and row.record.samples_per_s
    }
    points: list[Row] = [
        {
            "devices": record.num_devices,
            "speed_up": record.samples_per_s / base,
            "batch": f"{record.batch_per_device:.0f}",
        }
        for record in (row.record for row in rows)
        if record.samples_per_s and (base := single.get(record.batch_per_device))
    ]
    counts = sorted({row.record.num_devices for row in rows})
    if len(counts) < 2 or not points:
        return None
    ideal: list[Row] = [{"devices": n, "speed_up": n} for n in counts]
    return Chart(
        title="Speed-up",
        caption="Throughput of all devices over that of one, at the same batch per device. "
        "Dashed: ideal.",
        spec=layered([_ideal_line(ideal), _speed_up_line(points, counts)]),
    )


def memory_chart(rows: Sequence[LedgerRow]) -> Chart | None:
    """Peak memory against batch; None where no sensor told it."""
    points: list[Row] = [
        {
            "batch": row.record.batch_per_device,
            "memory": row.record.process_bytes / 1e9,
            "devices": str(row.record.num_devices),
        }
        for row in rows
        if row.record.process_bytes
    ]
    if not points:
        return None
    line = _line(points, "memory", "GB per process")
    return Chart(
        title="Memory against batch",
        caption="Peak of one process as the operating system or the driver sees it.",
        spec=layered([line]),
    )


def samples_chart(rows: Sequence[LedgerRow]) -> Chart:
    """Every sample of every cell over its median: is the machine calm enough to believe it?"""
    points: list[Row] = [
        {
            "cell": f"batch {row.record.batch_per_device:.0f} × {row.record.num_devices}",
            "ratio": sample / row.record.median_s,
        }
        for row in rows
        if row.record.median_s
        for sample in row.record.samples_s
    ]
    ticks = layer(
        points,
        {"type": "tick", "thickness": 1.5, "opacity": 0.45},
        x=quantity("ratio", "sample over the cell's median", zero=False),
        y=nominal("cell", sort=None),
    )
    return Chart(
        title="All samples",
        caption="Each tick is one timed sample. A narrow comb is a calm machine.",
        spec=styled({**ticks, "width": WIDTH}),
    )


def stacks_chart(records: Sequence[Record]) -> Chart:
    """Frameworks and compilers side by side on the same cells.

    Args:
        records: Cells of one model; those without samples are left out.
    """
    points: list[Row] = [
        {
            "stack": f"{record.stack.partition('/')[0]} · {record.compiler}",
            "rate": record.samples_per_s,
            "batch": f"batch {record.batch_per_device:.0f}",
        }
        for record in records
        if record.samples_per_s
    ]
    bars = layer(
        points,
        {"type": "bar", "cornerRadiusEnd": 2, "tooltip": True},
        y=nominal("stack", sort="-x"),
        x=quantity("rate", f"{sample_unit_of(records)} per second"),
        yOffset={"field": "batch", "sort": None},
        color=nominal("batch", sort=None),
    )
    return Chart(
        title="Frameworks and compilers",
        caption="The same architecture and batch in isolated environments on this machine.",
        spec=styled({**bars, "width": WIDTH, "height": {"step": 14}}),
    )


def ledger_chart(rows: Sequence[LedgerRow]) -> Chart | None:
    """Predicted against measured step time, with ±20 % around equality; None without pairs."""
    points: list[Row] = [
        {
            "measured": 1e3 * row.record.median_s,
            "predicted": 1e3 * row.predicted_s,
            "model": row.record.workload,
            "cell": row.record.cell,
        }
        for row in rows
        if row.predicted_s and row.record.median_s
    ]
    if not points:
        return None
    ends = [
        f(float(str(p[k])) for p in points for k in ("measured", "predicted")) for f in (min, max)
    ]
    band: list[Row] = [{"m": x, "low": 0.8 * x, "mid": x, "high": 1.2 * x} for x in ends]
    return Chart(
        title="Predicted against measured",
        caption="On the line the prediction was right; the band is ±20 %.",
        spec=layered(_ledger_layers(points, band)),
    )


def _ledger_layers(points: Sequence[Row], band: Sequence[Row]) -> list[Layer]:
    x: Layer = {"field": "m", "type": "quantitative", "scale": {"type": "log"}}
    near: Layer = {"type": "area", "opacity": 0.12, "color": PALETTE[2]}
    dot: Layer = {"type": "point", "filled": True, "size": 70, "tooltip": {"content": "data"}}
    return [
        layer(band, near, x=x, y={**x, "field": "low"}, y2={"field": "high"}),
        layer(band, IDEAL, x=x, y={**x, "field": "mid"}),
        layer(
            points, dot,
            x={**x, "field": "measured", "title": "measured ms"},
            y={**x, "field": "predicted", "title": "predicted ms"},
            color=nominal("model"),
        ),
    ]  # fmt: skip


def _throughput_point(row: LedgerRow) -> Row:
    record = row.record
    scale = (record.samples_per_s or 0.0) * (record.median_s or 0.0)
    return {
        "batch": record.batch_per_device,
        "measured": record.samples_per_s,
        "predicted": scale / row.predicted_s if row.predicted_s else None,
        "devices": str(record.num_devices),
    }


def _edge(record: Record) -> Row:
    return {
        "batch": record.batch_per_device,
        "devices": str(record.num_devices),
        "text": f"OOM ×{record.num_devices}",
    }


def _first_edges(edges: Sequence[Row]) -> list[Row]:
    """The smallest batch that failed, per number of devices."""
    first: dict[object, Row] = {}
    for edge in sorted(edges, key=lambda e: float(str(e["batch"]))):
        first.setdefault(edge["devices"], edge)
    return list(first.values())


def _line(points: Sequence[Row], field: str, title: str) -> Layer:
    return layer(
        points,
        dotted_line(),
        x=quantity("batch", "batch per device", log=True),
        y=quantity(field, title),
        color=nominal("devices", title="devices"),
    )


def _predicted_line(points: Sequence[Row]) -> Layer:
    return layer(
        [p for p in points if p["predicted"] is not None],
        {"type": "line", "strokeDash": [5, 4], "opacity": 0.8},
        x=quantity("batch", "batch per device", log=True),
        y={"field": "predicted", "type": "quantitative"},
        color={"field": "devices", "type": "nominal"},
    )


def _oom_layers(edges: Sequence[Row]) -> list[Layer]:
    x: Layer = {"field": "batch", "type": "quantitative", "scale": {"type": "log", "base": 2}}
    word: Layer = {
        "type": "text", "color": OOM_COLOR, "fontWeight": 600, "align": "right", "dx": -5, "dy": 8,
        "baseline": "top",
    }  # fmt: skip
    return [
        layer(edges, dashed_rule(OOM_COLOR), x=x),
        layer(edges, word, x=x, y={"value": 0}, text={"field": "text"}),
    ]


def _ideal_line(points: Sequence[Row]) -> Layer:
    x = quantity("devices", "devices", zero=False)
    return layer(points, IDEAL, x=x, y={"field": "speed_up", "type": "quantitative"})


def _speed_up_line(points: Sequence[Row], counts: Sequence[int]) -> Layer:
    axis = {"values": list(counts), "format": "d"}
    return layer(
        points,
        dotted_line(),
        x={**quantity("devices", "devices", zero=False), "axis": axis},
        y=quantity("speed_up", "speed-up"),
        color=nominal("batch", title="batch", sort=None),
    )


def layer(values: Sequence[Row], mark: Layer, **encoding: object) -> Layer:
    """What is drawn of some values, and what each of its properties shows."""
    return {"data": {"values": values}, "mark": mark, "encoding": encoding}


def dotted_line(size: int = 45) -> Layer:
    """A line with its points, which say their values."""
    return {"type": "line", "point": {"size": size}, "tooltip": {"content": "data"}}


def dashed_rule(color: str) -> Layer:
    """A rule at a limit."""
    return {"type": "rule", "color": color, "strokeWidth": 1.5, "strokeDash": [2, 2]}


def nominal(field: str, *, title: str | None = None, **more: object) -> Layer:
    """Names, in a colour or place each."""
    return {"field": field, "type": "nominal", "title": title, **more}


def quantity(field: str, title: str, *, log: bool = False, zero: bool = True) -> Layer:
    """A numeric axis; ``log`` in powers of two."""
    scale: Layer = {"type": "log", "base": 2, "nice": False} if log else {"zero": zero}
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": scale,
        **({"axis": {"format": "~s"}} if log else {}),
    }


def layered(layers: Sequence[Layer]) -> Mapping[str, object]:
    """Layers on one pair of axes, in the usual size."""
    return styled({"layer": list(layers), "width": WIDTH, "height": _HEIGHT})


def styled(spec: Layer) -> Mapping[str, object]:
    """One look for all charts."""
    label = {"labelColor": "#4a5563", "titleColor": "#4a5563", "titleFontWeight": 500}
    return {
        "$schema": _SCHEMA,
        "background": "transparent",
        "autosize": {"type": "fit-x", "contains": "padding"},
        **spec,
        "config": {
            "font": "system-ui, -apple-system, Segoe UI, Roboto, sans-serif",
            "range": {"category": list(PALETTE)},
            "view": {"stroke": None},
            "axis": {"gridColor": "#e6e9ee", "domain": False, "ticks": False,
                     "labelSeparation": 8, **label},
            "legend": {"orient": "top", "columns": 2, "labelLimit": 200, "symbolStrokeWidth": 3,
                       **label},
            "line": {"strokeWidth": 2.2},
            "mark": {"color": PALETTE[0]},
        },
    }  # fmt: skip
