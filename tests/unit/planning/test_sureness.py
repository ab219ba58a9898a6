"""Sentences that compare two candidates say in how many cases the comparison holds."""

from __future__ import annotations

from datetime import date
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.model.reading.load import load_workload
from paceline.parallelism.uncertainty import is_rough
from paceline.planning.explain.wording import better_words
from paceline.planning.forecast.question import Question, resolve_question
from paceline.planning.goal.goal import Work
from paceline.planning.goal.options import parse_goal
from paceline.planning.planner import make_plan, why_not
from paceline.planning.search.all_candidates import Search, run_search
from paceline.planning.search.preference import better_chance

TODAY = date(2026, 11, 20)
WORK = Work(num_samples=200_000, num_epochs=30)
GOALS = {
    "cost": {},
    "time": {"objective": "time"},
    "energy": {"objective": "energy"},
    "per dollar": {"objective": "performance-per-usd"},
}


@cache
def search(case: str) -> Search:
    goal = parse_goal({"cloud": "lambda,vast", "max_devices": "4", **GOALS[case]})
    return run_search(
        resolve_question(load_workload("resnet50"), goal, WORK, today=TODAY), load_catalog()
    )


def some_rows(found: Search) -> list[int]:
    rows = np.flatnonzero(found.is_feasible & np.isfinite(found.objective))
    rows = rows[np.argsort(found.objective[rows], kind="stable")]
    return [int(row) for row in rows[:: max(1, len(rows) // 12)]]


@pytest.mark.parametrize("case", GOALS)
def test_the_smaller_median_is_the_likelier(case: str) -> None:
    found = search(case)
    rows = some_rows(found)
    for first, second in pairwise(rows):
        assert better_chance(found, first, second) >= 0.5
        assert better_chance(found, first, second) + better_chance(found, second, first) == (
            pytest.approx(1.0)
        )
    assert better_chance(found, rows[0], rows[-1]) >= better_chance(found, rows[0], rows[1])


@pytest.mark.parametrize("case", GOALS)
def test_no_candidate_beats_itself(case: str) -> None:
    found = search(case)
    row = some_rows(found)[0]
    assert better_chance(found, row, row) == 0.5
    assert better_words(found, row, row).startswith("as likely")


def test_a_runner_up_and_a_why_not_say_how_sure_they_are() -> None:
    goal, work, catalog = parse_goal({"cloud": "lambda,vast"}), WORK, load_catalog()
    workload = load_workload("resnet50")
    plan = make_plan(workload, goal, work, catalog, today=TODAY)
    [runner_up, *_] = [one for one in plan.why if one.startswith(("a toss-up", "runner-up"))]
    assert "cases" in runner_up or "as likely" in runner_up
    [other] = {"lambda", "vast"} - {plan.choices[0].place.cloud}
    [sentence, *_] = why_not(workload, goal, work, catalog, other, today=TODAY)
    assert "cases" in sentence or "as likely" in sentence


def test_a_device_that_is_known_roughly_is_planned_where_it_is_named() -> None:
    named = run_search(question_of(device="tpu-v5p", budget="100"), load_catalog())
    assert is_rough(named.evaluation.steps.log_sigma).all()
    assert named.is_feasible.any()
    free = run_search(question_of(budget="100"), load_catalog())
    rough = is_rough(free.evaluation.steps.log_sigma)
    assert rough.any()
    assert not free.is_ranked[rough].any()


def test_a_plan_on_what_is_known_roughly_says_so_first() -> None:
    goal = parse_goal({"device": "tpu-v5p"})
    plan = make_plan(load_workload("bert-base"), goal, WORK, load_catalog(), today=TODAY)
    assert "known only within" in plan.assumptions[0]
    assert all(any("known only within" in note for note in one.notes) for one in plan.choices)


def question_of(**options: str) -> Question:
    return resolve_question(load_workload("bert-base"), parse_goal(options), WORK, today=TODAY)
