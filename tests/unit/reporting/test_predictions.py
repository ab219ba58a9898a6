"""Predictions as text: what is known of a figure is shown wherever the figure is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.planfile import Interval
from paceline.planning.forecast.grid import GridCell, MemoryParts, PredictionGrid
from paceline.planning.forecast.services import SeenTimes, ServiceCell
from paceline.reporting.figures import number_range
from paceline.reporting.screens.predictions import grid_text

COUNTS = (1, 2, 4, 8, 16)


def cell(count: int, batch: int) -> GridCell:
    rate = 1234.0 * count * batch
    return GridCell(
        device="Acme X1",
        num_devices=count,
        batch_per_device=batch,
        precision="bf16",
        compiler="eager",
        status="fits",
        memory_bytes=Interval(low=9e9, mid=10e9, high=11e9),
        memory_parts=MemoryParts(
            weights_bytes=1e9, optimizer_bytes=2e9, process_bytes=1e9, rest_bytes=6e9
        ),
        memory_capacity_bytes=80e9,
        chance_memory=1.0,
        bound="compute",
        reason="",
        step_s=Interval(low=0.9, mid=1.0, high=1.1),
        samples_per_s=Interval(low=0.8 * rate, mid=rate, high=1.25 * rate),
        efficiency_frac=0.97,
    )


def grid(counts: tuple[int, ...]) -> PredictionGrid:
    return PredictionGrid(
        model="m",
        title="M",
        task="train",
        sample_unit="images",
        num_parameters=1,
        calibration="builtin",
        catalog_version="2026-11",
        assumptions=("input fed fast enough",),
        cells=tuple(cell(count, batch) for count in counts for batch in (1, 8, 64)),
        unanswered=(),
    )


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("counts", [COUNTS[:1], COUNTS[:2], COUNTS])
def test_every_figure_has_its_interval_at_every_width(counts, width) -> None:
    predicted = grid(counts)
    text = grid_text(predicted, width=width)
    for one in predicted.cells:
        assert one.samples_per_s is not None
        assert number_range(one.samples_per_s) in text
    assert max(map(len, text.splitlines())) <= width


def test_counts_stand_beside_each_other_where_there_is_room() -> None:
    header = "batch per device"
    assert grid_text(grid(COUNTS), width=200).count(header) == 1
    narrow = grid_text(grid(COUNTS), width=60)
    assert all(f"{count}× images/s" in narrow for count in COUNTS)
    assert narrow.count(header) > 1


@pytest.mark.parametrize(("shares", "is_told"), [((0.4, 0.99), False), ((0.4, 1.19), True)])
def test_a_share_of_the_rate_above_one_is_explained_where_it_stands(shares, is_told) -> None:
    predicted = grid((1,))
    pairs = zip(predicted.cells, (*shares, None), strict=True)
    cells = tuple(replace(one, mfu_frac=share) for one, share in pairs)
    text = grid_text(replace(predicted, cells=cells))
    assert ("MFU above 100 %" in text) == is_told


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize(
    ("replicas", "precisions"), [((2, 1), ("bf16",) * 2), ((2, 2), ("bf16", "fp8"))]
)
def test_services_are_told_apart_at_every_width(width, replicas, precisions) -> None:
    seen_s = Interval(low=0.1, mid=0.12, high=0.15)
    seen = SeenTimes(p50_s=seen_s, p95_s=seen_s, p99_s=seen_s)
    table = service_lines(width, replicas, precisions, seen)
    rows = [line for line in table if line.startswith("2×Acme X1")]
    assert len(set(rows)) == len(rows) == 2
    assert all("120 ms (100–150)" in row for row in rows)


@pytest.mark.parametrize("width", [80, 100])
def test_services_of_three_percentiles_and_two_formats_fit(width) -> None:
    times_s = [Interval(low=0.8 * mid, mid=mid, high=1.25 * mid) for mid in (0.235, 0.686, 1.907)]
    seen = SeenTimes(**dict(zip(("p50_s", "p95_s", "p99_s"), times_s, strict=True)))
    table = service_lines(width, (2, 1), ("bf16", "fp8"), seen)
    start = next(i for i, line in enumerate(table) if line.startswith("devices"))
    lines = table[start : start + 3]
    assert max(map(len, lines)) <= width
    assert "replicas" in lines[0]
    assert ["2×1  bf16" in lines[1], "1×2  fp8" in lines[2]] == [True, True]
    assert all("686 ms" in line for line in lines[1:])


def service_lines(width, replicas, precisions, seen) -> list[str]:
    services = tuple(
        ServiceCell(
            device="Acme X1", num_devices=2, num_replicas=number, num_ranks=2 // number,
            precision=precision, first_token=seen, per_token=seen,
            requests_per_s=4.0, capacity_requests_per_s=Interval(low=8.0, mid=9.0, high=10.0),
        )
        for number, precision in zip(replicas, precisions, strict=True)
    )  # fmt: skip
    return grid_text(replace(grid((1,)), services=services), width=width).splitlines()
