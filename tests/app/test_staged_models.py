"""Models that no machine holds, in stages over several: typed, planned and told alike."""

from __future__ import annotations

import pytest

import paceline

ASKED = {"task": "infer", "device": "h100", "precision": "bf16", "prompt_tokens": 512,
         "output_tokens": 128}  # fmt: skip
MODEL = "llama-3.1-405b"


def test_a_model_that_eight_do_not_hold_is_staged_over_sixteen() -> None:
    (eight,) = paceline.predict(MODEL, **ASKED, devices=(8,), batch=(8,)).cells
    assert eight.status == "out of memory"
    grid = paceline.predict(MODEL, **ASKED, devices=(16,), batch=(8,))
    (cell,) = grid.cells
    assert (cell.status, cell.tensor_degree, cell.stages) == ("fits", 8, 2)
    assert any("pp2.tp8" in said for said in grid.assumptions)
    weights = cell.memory_parts.weights_bytes
    assert 16 * weights == pytest.approx(2.0 * grid.num_parameters, rel=0.01)


def test_replicas_of_stages_answer_as_many_times_as_much() -> None:
    one, two = (
        paceline.predict(MODEL, **ASKED, devices=(count,), batch=(8,)).cells[0]
        for count in (16, 32)
    )
    assert two.stages == 2
    assert two.samples_per_s.mid == pytest.approx(2.0 * one.samples_per_s.mid, rel=1e-9)


def test_a_plan_is_told_as_the_cell_is() -> None:
    (cell,) = paceline.predict(MODEL, **ASKED, devices=(16,), batch=(8,)).cells
    plan = paceline.plan(
        MODEL, task="infer", device="h100", precision="bf16", concurrency=16, prompt_tokens=512,
        output_tokens=128, max_devices=16, cloud="aws",
    )  # fmt: skip
    first = plan.choices[0]
    assert first.strategy == "pp2.tp8@1f1b/mb2"
    assert (first.place.num_nodes, first.place.devices_per_node) == (2, 8)
    assert first.latency_s.mid == pytest.approx(cell.latency_s.mid, rel=1e-6)
