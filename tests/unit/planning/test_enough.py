from __future__ import annotations

import re
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from paceline.catalog.load import load_catalog
from paceline.model.reading.load import load_workload
from paceline.planfile import PlanFile
from paceline.planning.forecast.question import SearchOptions
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.planner import make_plan

TODAY = date(2026, 11, 20)
LAPTOP = Path(__file__).parents[3] / "examples/scenarios/machines/laptop.yaml"
CPU_WORDS = re.compile(
    r"a CPU (is|would be) enough up to ([0-9.,]+) requests/s, at ([0-9.,]+) USD a month"
)
#: Hours of a month on average.
MONTH_H = 365.25 * 24 / 12


@cache
def served(requests_per_s: float) -> PlanFile:
    return make_plan(
        load_workload("resnet50", task="infer"),
        Goal(latency_s=1.0, max_devices=8, clouds=("aws", "lambda")),
        Work(requests_per_s=requests_per_s),
        load_catalog(),
        today=TODAY,
        options=SearchOptions(max_batch=64),
    )


def turning_rate(plan: PlanFile) -> float:
    found = next(match for turn in plan.turns if (match := CPU_WORDS.search(turn)))
    return float(found[2].replace(",", ""))


def usd_per_month(plan: PlanFile) -> float:
    found = next(match for turn in plan.turns if (match := CPU_WORDS.search(turn)))
    return float(found[3].replace(",", ""))


def kind_of(plan: PlanFile) -> str:
    kinds = {d.name: d.kind for d in load_catalog().devices}
    return kinds[plan.choices[0].place.device]


def test_the_stated_rate_is_where_the_cpu_stops_being_first() -> None:
    """Just below it a CPU wins, and well above it something else does."""
    rate = turning_rate(served(0.1))
    assert kind_of(served(0.1)) == "cpu"
    assert kind_of(served(round(0.9 * rate, 3))) == "cpu"
    assert kind_of(served(round(3 * rate, 3))) != "cpu"


def test_the_stated_cost_is_that_of_the_machines_which_the_rate_needs() -> None:
    rate, cost_usd = turning_rate(served(0.1)), usd_per_month(served(0.1))
    first = served(round(0.99 * rate, 3)).choices[0]
    assert first.place.num_nodes == 1
    assert cost_usd == pytest.approx(first.place.usd_per_hour * MONTH_H, rel=5e-3)


def test_an_accelerator_says_where_a_cpu_would_do() -> None:
    plan = served(200.0)
    assert kind_of(plan) != "cpu"
    assert 0 < turning_rate(plan) < 200


@pytest.mark.parametrize("model", ["mnist-cnn"])
def test_an_own_machine_says_up_to_where_it_is_enough(model: str) -> None:
    plan = make_plan(load_workload(model), Goal(), Work(), load_catalog([LAPTOP]), today=TODAY)
    assert plan.choices[0].place.cloud == "own"
    assert any("laptop" in t.lower() and "is enough up to" in t for t in plan.turns)


def test_a_cpu_that_no_engine_serves_on_is_compared_by_its_own_loop() -> None:
    """Its loop writes token by token, so that no queue of items stands for it."""
    plan = make_plan(
        load_workload("llama-3-8b", task="infer"),
        Goal(max_devices=32, clouds=("aws", "lambda")),
        Work(requests_per_s=200.0, prompt_tokens=512, output_tokens=128),
        load_catalog(),
        today=TODAY,
    )
    assert kind_of(plan) != "cpu"
    assert plan.turns
