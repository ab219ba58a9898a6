"""A plan is the same whether its candidates were kept from another limit or made for it alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache

import pytest

from paceline.catalog.entities import Catalog
from paceline.catalog.load import load_catalog
from paceline.errors import PacelineError
from paceline.model.reading.load import load_workload
from paceline.planning.forecast.forecast_choice import choose_forecast
from paceline.planning.goal.files import dump_plan
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.planner import make_plan
from paceline.planning.search import all_candidates

TODAY = date(2026, 11, 20)
HOUR_S = 3600.0
#: A deadline, a budget, both.
LIMITS = (
    {"deadline_s": 24 * HOUR_S},
    {"budget_usd": 400.0},
    {"deadline_s": 12 * HOUR_S, "budget_usd": 900.0},
)
JOBS = {
    "training": ("resnet50", "train", Work()),
    "inference": ("mnist-cnn", "infer", Work(num_samples=1e9)),
}


@cache
def catalog() -> Catalog:
    """A few of the offers; what an old price would have to be is asked for each of them."""
    whole = load_catalog()
    return replace(whole, offers=whole.offers[::36])


def answer(job, limits):
    """The plan as its file has it, or the refusal."""
    name, task, work = JOBS[job]
    workload = load_workload(name, task=task)
    try:
        found = make_plan(workload, Goal(**limits), work, catalog(), today=TODAY)
    except PacelineError as refusal:
        return str(refusal)
    return dump_plan(found)


def forget():
    all_candidates._ground.cache_clear()
    choose_forecast.cache_clear()
    all_candidates._evaluated.cache_clear()


@pytest.fixture
def alone(monkeypatch):
    """Each question keeps its limits on the whole road, and nothing of another."""

    def ask(job, limits):
        with monkeypatch.context() as patch:
            patch.setattr(all_candidates, "_without_limits", lambda goal: goal)
            forget()
            return answer(job, limits)

    return ask


@pytest.mark.parametrize("job", JOBS)
def test_limits_choose_among_the_same_candidates(job, alone) -> None:
    made = [alone(job, limits) for limits in LIMITS]
    forget()
    kept = [answer(job, limits) for limits in LIMITS]
    assert kept == made
    assert len(set(made)) > 1


def test_candidates_of_another_limit_are_taken() -> None:
    forget()
    for hours in (24, 30, 36):
        answer("training", {"deadline_s": hours * HOUR_S})
    assert all_candidates._ground.cache_info().misses == 1


def test_what_changes_candidates_is_asked_anew() -> None:
    forget()
    answer("training", {"deadline_s": 24 * HOUR_S})
    for goal in ({"vendors": ("amd",)}, {"allow_spot": True}, {"pins": {"precision": "fp32"}}):
        answer("training", {"deadline_s": 24 * HOUR_S, **goal})
    assert all_candidates._ground.cache_info().misses == 4
