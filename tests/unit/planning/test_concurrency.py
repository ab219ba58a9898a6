"""Requests in flight as they are stated: no plan keeps another number of them."""

from __future__ import annotations

from datetime import date

import pytest
from tests.sampled import sampled

from paceline.catalog.load import load_catalog
from paceline.errors import InvalidInputError
from paceline.model.reading.load import load_workload
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.planner import make_plan

DAY = date(2026, 11, 20)


def planned(model, work, **goal):
    workload = load_workload(model, task="infer")
    return make_plan(workload, Goal(**goal), work, load_catalog(), today=DAY)


@pytest.mark.parametrize(
    ("model", "concurrency"),
    sampled(
        [(model, count) for model in ("gpt2-xl", "mixtral-8x7b") for count in (1, 6, 13)],
        ("gpt2-xl", 1), ("gpt2-xl", 13), ("mixtral-8x7b", 6),
    ),
)  # fmt: skip
def test_every_choice_keeps_as_many_requests_in_flight_as_stated(model, concurrency):
    plan = planned(model, Work(concurrency=concurrency), devices=("h100", "a100"))
    assert plan.choices
    for choice in plan.choices:
        assert choice.global_batch == concurrency
        assert choice.batch_per_device <= concurrency
    assert plan.workload.concurrency == concurrency


def test_replicas_beyond_the_requests_add_nothing():
    alone, beside_idle = (
        planned("gpt2-xl", Work(concurrency=1), devices=("h100",), pins={"strategy": strategy})
        for strategy in ("dp1", "dp8")
    )  # fmt: skip
    served = [plan.choices[0].samples_per_s for plan in (alone, beside_idle)]
    assert served[1].mid == pytest.approx(served[0].mid, rel=0.02)
    assert served[1].high < 1.1 * served[0].high


def test_a_latency_alone_means_one_request_at_a_time():
    plan = planned("gpt2-xl", Work(), devices=("a100",), latency_s=0.05)
    assert {choice.batch_per_device for choice in plan.choices} == {1}


def test_a_rate_makes_its_own_number_of_requests_in_flight():
    with pytest.raises(InvalidInputError, match="--concurrency"):
        planned("gpt2", Work(concurrency=4, requests_per_s=2.0))
