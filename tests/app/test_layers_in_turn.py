"""Engines that share no layer, asked of `predict`, `plan` and `score`: devices work in turn."""

from __future__ import annotations

import pytest
from tests.sampled import sampled

import paceline
from paceline.catalog.load import load_catalog
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.scoring.completion import completed
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate

_DEVICE = "A100 SXM4 80GB"
_ENGINES = ("llamacpp", "exllama")


@pytest.mark.parametrize("engine", _ENGINES)
def test_more_devices_hold_less_each_and_are_no_faster(engine: str) -> None:
    catalog = load_catalog()
    device = next(one for one in catalog.devices if one.name == _DEVICE)
    link = next(one for one in catalog.links if one.name == "dgx-a100")
    workload = load_workload("llama-3-8b", task="infer")
    jobs = [
        Job(
            workload=workload,
            configuration=Configuration(precision="bf16"),
            strategy=Strategy.parse(f"tp{count}" if count > 1 else "dp1"),
            batch=4, prompt_tokens=512, output_tokens=64, profile=engine,
        )
        for count in (1, 2, 4)
    ]  # fmt: skip
    machines = [Machine.of(device, count, device_link=link) for count in (1, 2, 4)]
    steps = simulate(jobs, machines)
    assert steps.per_token_s.tolist() == pytest.approx([float(steps.per_token_s[0])] * 3)
    assert steps.parameter_bytes.tolist() == pytest.approx(
        [float(steps.parameter_bytes[0]) / count for count in (1, 2, 4)]
    )
    one, two, four = steps.memory_mid_bytes.tolist()
    own = 2.0 * two - one
    assert own > 0.0
    assert four - own == pytest.approx((one - own) / 4.0)


@pytest.mark.parametrize("engine", sampled(_ENGINES, "llamacpp"))
def test_predict_plan_and_score_tell_the_same(engine: str) -> None:
    """A model that one device does not hold, one request at a time."""
    asked = {"device": _DEVICE, "precision": "bf16", "framework": engine}
    cell = paceline.predict("llama-2-70b", devices=(4,), concurrency=1, **asked).services[0]
    assert (cell.num_replicas, cell.num_ranks) == (1, 4)
    row = {
        "model": "llama-2-70b", "task": "infer", "framework": engine, "precision": "bf16",
        "gpu": _DEVICE, "n_gpus": "4", "parallelism": "tp=4", "unit": "requests/s",
        "extra": "scenario=closed loop;isl=512;osl=128;concurrency=1",
    }  # fmt: skip
    answer = predict_rows(
        [parse_row(completed(row))], catalog=load_catalog(), calibration=builtin_calibration()
    )[0]
    assert answer.per_token is not None
    assert cell.per_token is not None
    assert answer.per_token.p50_mid_s == pytest.approx(cell.per_token.p50_s.mid, rel=1e-6)
    plan = paceline.plan(
        "llama-2-70b", rps=0.05, max_devices=4, as_of="2026-11-20", pin=["strategy=tp4"], **asked
    )
    seen = paceline.predict("llama-2-70b", devices=(4,), rps=0.05, **asked).services[0]
    assert seen.per_token is not None
    assert plan.choices[0].latency_s is not None
    assert plan.choices[0].latency_s.mid == pytest.approx(seen.per_token.p95_s.mid, rel=1e-6)


def test_predict_says_that_devices_work_in_turn() -> None:
    grid = paceline.predict(
        "llama-2-70b", task="infer", device=_DEVICE, devices=(4,), batch=(1,), precision="bf16",
        framework="llamacpp",
    )  # fmt: skip
    assert any("hold its layers one after the other" in words for words in grid.assumptions)
