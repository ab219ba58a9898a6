"""Products whose rows begin anywhere, as an H200 ran them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.prediction.devices import DeviceTable
from paceline.prediction.kernels.unaligned_products import begin_bytes
from paceline.prediction.prediction import Points
from paceline.prediction.step.breakdown import break_down
from paceline.prediction.step.one_pass import predict_pass

H200 = DeviceTable.from_devices([find_device(load_catalog(), "H200 SXM")])
EAGER = Configuration(precision="bf16")
#: Tokens of one step, so that kernels set the pace.
POINTS = Points(batch=np.array([16.0]), seq=np.array([1024.0]))


def step_s(words: int, how: Configuration) -> float:
    """Of a small decoder with so many words."""
    entry = f"transformer:layers=2,hidden=768,heads=12,vocab={words}"
    graph = load_workload(entry).passes[0].graph
    return float(predict_pass(lower(graph, how), H200, POINTS).device_s[0, 0])


@pytest.mark.parametrize(("words", "begins"), [(50257, 2), (30522, 4), (30524, 8), (50264, 16)])
def test_rows_begin_where_their_width_says(words: int, begins: int) -> None:
    graph = load_workload(f"transformer:layers=1,hidden=64,heads=2,vocab={words}").passes[0].graph
    lowered = lower(graph, EAGER)
    found = begin_bytes(lowered.costs, EAGER)
    products = found[lowered.costs.kind == OpKind.MATMUL]
    assert products.min() == begins
    assert products.max() == 16
    assert (found[lowered.costs.kind != OpKind.MATMUL] == 16).all()


def test_the_head_of_gpt2_takes_what_it_took_on_an_h200() -> None:
    """112.6 ms a step with 50,257 words, 88.0 with 50,304 (benchmarks/gpu_asked.jsonl)."""
    longer_s = step_s(50257, EAGER) - step_s(50304, EAGER)
    assert longer_s == pytest.approx(0.0246, rel=0.15)


def test_padding_takes_the_narrow_loads_away() -> None:
    odd, padded = (step_s(50257, replace(EAGER, widths=one)) for one in ("as-written", "padded"))
    assert padded == pytest.approx(step_s(50264, EAGER), rel=1e-3)
    assert odd > 1.2 * padded


@pytest.mark.parametrize("changes", [{"compiler": "compiled"}, {"precision": "fp32"}])
def test_compilers_and_vector_units_do_not_mind(changes: dict[str, str]) -> None:
    how = replace(EAGER, **changes)
    assert step_s(50257, how) == pytest.approx(step_s(50264, how), rel=0.01)


def test_what_an_odd_width_costs_is_named() -> None:
    """In a breakdown, so that who reads it can pad."""

    def limits(words: int) -> set[str | None]:
        entry = f"transformer:layers=2,hidden=768,heads=12,vocab={words}"
        lowered = lower(load_workload(entry).passes[0].graph, EAGER)
        return {one.limit for one in break_down(lowered, H200, batch=16, seq=1024).ops}

    assert "odd width" in limits(50257)
    assert "odd width" not in limits(50304)
