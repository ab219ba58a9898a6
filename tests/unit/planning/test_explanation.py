"""Every figure of an answer can be walked back to a source or an assumption."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date
from functools import cache

import pytest

from paceline.catalog.freshness import unranked_reason
from paceline.catalog.load import load_catalog
from paceline.model.reading.load import load_workload
from paceline.planning.forecast.question import SearchOptions
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.planner import make_plan

TODAY = date(2026, 11, 20)
CASES = {
    "one device": ("resnet50", "train", Goal(max_devices=1), Work()),
    "many devices": ("resnet50", "train", Goal(objective="time"), Work()),
    "spot": ("bert-base", "train", Goal(allow_spot=True), Work()),
    "generation": ("gpt2", "infer", Goal(latency_s=0.05), Work()),
    "rates": ("resnet50", "infer", Goal(), Work(requests_per_s=100)),
}


@cache
def figures(case):
    name, task, goal, work = CASES[case]
    whole = load_catalog()
    offers = [o for o in whole.offers if unranked_reason(o, TODAY) is None][::9]
    plan = make_plan(
        load_workload(name, task=task), goal, work, replace(whole, offers=tuple(offers)),
        today=TODAY, options=SearchOptions(num_largest_batches=2),
    )  # fmt: skip
    return plan.choices[0], {figure.name: figure for figure in plan.explanation}


@pytest.mark.parametrize("case", CASES)
def test_every_input_of_a_formula_is_a_figure_itself(case):
    _, traced = figures(case)
    for figure in traced.values():
        assert set(figure.inputs) <= set(traced), figure.name


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_computed_has_a_source_and_what_is_has_a_formula(case):
    _, traced = figures(case)
    for figure in traced.values():
        if figure.origin == "computed":
            assert figure.formula
            assert figure.inputs
        else:
            assert figure.source
            assert not figure.inputs


@pytest.mark.parametrize("case", CASES)
def test_every_walk_back_ends_in_facts(case):
    _, traced = figures(case)

    def walk(name, seen):
        assert name not in seen, f"{name} explains itself"
        for source in traced[name].inputs:
            walk(source, (*seen, name))

    for name in traced:
        walk(name, ())


@pytest.mark.parametrize("case", ["one device", "many devices"])
def test_the_formulas_give_the_figures(case):
    choice, traced = figures(case)
    value = {name: figure.number for name, figure in traced.items()}
    assert math.isclose(
        value["cost_usd"], value["billed_s"] * value["usd_per_hour"] / 3600, rel_tol=1e-12
    )
    assert math.isclose(
        value["time_s"],
        value["setup_s"] + value["num_steps"] * value["step_s"] * (1.0 + value["overhead_frac"]),
        rel_tol=1e-12,
    )
    assert math.isclose(
        value["step_s"],
        value["microbatches"] * value["device_step_s"]
        + value["exposed_communication_s"]
        + value["starved_s"],
        rel_tol=1e-12,
    )
    assert value["global_batch"] == (
        value["num_groups"] * value["microbatch"] * value["microbatches"]
    )
    assert value["cost_usd"] == choice.cost_usd.mid
    assert value["time_s"] == choice.time_s.mid
    assert value["memory_bytes"] == choice.memory_bytes.mid


@pytest.mark.parametrize("case", CASES)
def test_every_figure_that_a_choice_prints_is_explained(case):
    choice, traced = figures(case)
    printed = {
        "cost_usd": choice.cost_usd, "time_s": choice.time_s, "memory_bytes": choice.memory_bytes,
        "step_s": choice.step_s, "samples_per_s": choice.samples_per_s,
        "usd_per_million_samples": choice.usd_per_million_samples,
        "latency_s": choice.latency_s, "ttft_s": choice.ttft_s,
    }  # fmt: skip
    assert {name for name, figure in printed.items() if figure is not None} <= set(traced)
