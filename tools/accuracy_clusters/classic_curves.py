"""The scaling curves that everybody quotes, beside the tool's.

    PYTHONPATH=tools python -m accuracy_clusters.classic_curves --out benchmarks/classic_curves.md

The curves, their clusters and sources are in ``classic_curves.toml``.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pages import deliver

from accuracy_clusters.dense_hybrid import hybrid_step
from paceline.catalog.entities import Link, Source
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.schedule.blocks import TensorGroup, block_costs
from paceline.parallelism.split import SplitShape
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planning.decisions.device_counts import BatchRule, scaling_curve
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate

CURVES = Path(__file__).with_name("classic_curves.toml")
#: Difference, in points, that has to be explained.
AGREEMENT_POINTS = 5.0
_FP32_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One number of devices.

    Attributes:
        devices: How many.
        batch: Items per device and step.
        items_per_s: Of all, predicted.
        frac: Predicted throughput per device against the first point.
        published_frac: The same as published; None if nobody printed it.
    """

    devices: int
    batch: int
    items_per_s: float
    frac: float
    published_frac: float | None


def main() -> None:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="file; printed if not given")
    asked = parser.parse_args()
    deliver(page(tomllib.loads(CURVES.read_text(encoding="utf-8"))["curve"]), asked.out)


def page(curves: list[dict[str, Any]]) -> str:
    """All curves with their differences."""
    lines = [
        "# The classic scaling curves\n",
        f"{datetime.now(tz=UTC).date()}, `tools/accuracy_clusters/classic_curves.py`. Throughput",
        "per device against the first point of each curve, published and predicted; more than",
        f"{AGREEMENT_POINTS:.0f} points apart is explained. Clusters, batches and sources:",
        f"`{CURVES.name}` beside it.\n",
    ]
    for curve in curves:
        lines += section(curve, points_of(curve))
    return "\n".join(lines) + "\n"


def section(curve: dict[str, Any], points: list[Point]) -> Iterator[str]:
    """One curve as a table, its source, and why it differs."""
    yield f"## {curve['title']}\n"
    yield f"{curve['device']}, {curve['precision']}. Source: {curve['source']}.\n"
    yield "| devices | items per device | published | tool | difference |"
    yield "|--:|--:|--:|--:|--:|"
    for point in points:
        yield _line(point)
    first, known = points[0], curve.get("first_items_per_s")
    if known:
        yield (
            f"\nItems per second on {first.devices:,}: {known:,.0f} published, "
            f"{first.items_per_s:,.0f} predicted ({first.items_per_s / known:.2f})."
        )
    differs = any(abs(_difference(point) or 0.0) > AGREEMENT_POINTS for point in points)
    if "note" in curve:
        yield f"\n{curve['note']}\n"
    elif differs:
        raise SystemExit(f"{curve['title']}: a difference is not explained")
    else:
        yield "\nAgrees.\n"


def _line(point: Point) -> str:
    published, off = "–", "–"
    if point.published_frac is not None:
        published = f"{point.published_frac:.0%}"
        off = f"{_difference(point):+.0f} points"
    return f"| {point.devices:,} | {point.batch:,} | {published} | {point.frac:.0%} | {off} |"


def _difference(point: Point) -> float | None:
    """Predicted minus published, in points."""
    if point.published_frac is None:
        return None
    return 100.0 * (point.frac - point.published_frac)


def points_of(curve: dict[str, Any]) -> list[Point]:
    """Every point of a curve, predicted."""
    rates = [_items_per_s(curve, one["devices"], one["batch"]) for one in curve["points"]]
    per_device = [rate / one["devices"] for rate, one in zip(rates, curve["points"], strict=True)]
    first = next(
        (at for at, one in enumerate(curve["points"]) if one.get("published_frac") == 1.0), 0
    )
    return [
        Point(
            devices=one["devices"],
            batch=one["batch"],
            items_per_s=rate,
            frac=own / per_device[first],
            published_frac=one.get("published_frac"),
        )
        for one, rate, own in zip(curve["points"], rates, per_device, strict=True)
    ]


def _items_per_s(curve: dict[str, Any], devices: int, batch: int) -> float:
    if curve["way"] == "hybrid":
        return devices * batch / _hybrid_s(curve, devices, batch)
    job = Job(
        workload=load_workload(curve["model"]), configuration=_configuration(curve),
        seq=int(_seq(curve)),
    )  # fmt: skip
    if curve["way"] == "data parallel":
        found = scaling_curve(
            job, _cluster(curve), counts=[devices], batch=BatchRule(batch_per_device=batch)
        )
        return found.points[0].items_per_s
    items, strategy = devices * batch, _strategy(curve["way"], devices, batch)
    megatron = replace(
        job, configuration=replace(job.configuration, training_format="half-weights"),
        strategy=strategy, batch=items // strategy.num_parts,
    )  # fmt: skip
    steps = simulate([megatron], [Machine.of_cluster(_cluster(curve), devices)])
    steps.check()
    return items / float(steps.step_s[0])


def _strategy(template: str, devices: int, batch: int) -> Strategy:
    """The strategy with as many replicas as fill the devices, one item per microbatch."""
    without = Strategy.parse(template.format(replicas=2, microbatches=64))
    replicas = devices // (without.num_ranks // 2)
    microbatches = devices * batch // replicas
    return Strategy.parse(template.format(replicas=replicas, microbatches=microbatches))


def _hybrid_s(curve: dict[str, Any], devices: int, batch: int) -> float:
    cluster, alone = _cluster(curve), TensorGroup(
        shape=SplitShape(), ranks_per_node=1, device_link=LinkTable.from_links([None]),
        node_link=LinkTable.from_links([None]),
    )  # fmt: skip
    costs = block_costs(
        _graph(curve["model"]), _configuration(curve), DeviceTable.from_devices([cluster.device]),
        Points(batch=np.array([float(batch)]), seq=np.array([_seq(curve)])), alone,
    )  # fmt: skip
    return hybrid_step(
        costs,
        np.array([name.startswith("classifier") for name in costs.names]),
        num_ranks=devices,
        ranks_per_node=cluster.devices_per_node,
        device_link=LinkTable.from_links([cluster.device_link]),
        node_link=LinkTable.from_links([cluster.node_link]),
        gradient_element_bytes=_FP32_BYTES,
    ).step_s


def _configuration(curve: dict[str, Any]) -> Configuration:
    return Configuration(
        precision=curve["precision"],
        compiler=curve.get("compiler", "eager"),
        training_format=curve.get("training_format", "autocast"),
    )


def _seq(curve: dict[str, Any]) -> float:
    return float(curve.get("seq", 1))


def _cluster(curve: dict[str, Any]) -> Cluster:
    return Cluster(
        device=find_device(load_catalog(), curve["device"]),
        devices_per_node=curve["devices_per_node"],
        device_link=_link(curve["inside"], "device"),
        node_link=_link(curve["between"], "node") if "between" in curve else None,
    )


def _link(stated: dict[str, Any], scope: Literal["device", "node"]) -> Link:
    """A link of the catalogue by its name, or one that is written out."""
    if "name" in stated:
        return next(link for link in load_catalog().links if link.name == stated["name"])
    return Link(
        name=stated["kind"], scope=scope, measured_bus_bytes_per_s=None,
        reduces_in_switch=False, source=Source(text=CURVES.name), **stated,
    )  # fmt: skip


@cache
def _graph(entry: str) -> Graph:
    return load_workload(entry).passes[0].graph


if __name__ == "__main__":
    main()
