"""The roofline of a pass: a slope, a level, and every op with a time below them."""

from __future__ import annotations

import pytest

import paceline
from paceline.reporting.charts.planned import roofline_chart

PEAK_FLOP_PER_S, BYTES_PER_S = 312e12, 2.039e12


def drawn(device: str | None):
    traced = paceline.trace("mnist-cnn", device=device, top=200).passes[0]
    chart = roofline_chart(traced, flop_per_s=PEAK_FLOP_PER_S, bytes_per_s=BYTES_PER_S)
    return traced, chart


def test_the_roof_rises_with_the_memory_and_ends_at_the_arithmetic() -> None:
    _, chart = drawn("a100")
    assert chart is not None
    roof = chart.spec["layer"][0]["data"]["values"]
    assert roof[0]["r"] == pytest.approx(roof[0]["i"] * BYTES_PER_S / 1e12)
    assert [end["r"] for end in roof[1:]] == [pytest.approx(PEAK_FLOP_PER_S / 1e12)] * 2
    assert roof[1]["i"] == pytest.approx(PEAK_FLOP_PER_S / BYTES_PER_S)


def test_every_op_that_computes_is_a_dot_and_without_a_device_there_is_no_picture() -> None:
    traced, chart = drawn("a100")
    assert chart is not None
    dots = chart.spec["layer"][1]["data"]["values"]
    assert len(dots) == sum(op.flop > 0 for op in traced.ops) > 2
    assert drawn(None)[1] is None


@pytest.mark.parametrize(
    ("flop_per_s", "bytes_per_s", "said"),
    [
        (1e30, 1e30, ""),
        (1e30, 1.0, "Above the slope: a part of the counted bytes stays in the cache."),
        (1.0, 1e30, "Above the level: Winograd's kernels compute less than is counted."),
    ],
)
def test_the_caption_says_why_dots_stand_above_the_roof(
    flop_per_s: float, bytes_per_s: float, said: str
) -> None:
    traced, _ = drawn("a100")
    chart = roofline_chart(traced, flop_per_s=flop_per_s, bytes_per_s=bytes_per_s)
    assert chart is not None
    assert chart.caption.partition("time.")[2].strip() == said
