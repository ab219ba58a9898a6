"""Better within the noise is not better: laws of what stands first, over the models of the zoo."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from paceline.catalog.freshness import unranked_reason
from paceline.catalog.load import load_catalog
from paceline.errors import DoesNotFitError, InvalidInputError, UnknownNameError
from paceline.model.reading.load import load_workload, zoo_names
from paceline.parallelism.strategy.complexity import USUAL_KINDS, complexity, kinds_in, kinds_of
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planning.forecast.question import SearchOptions, resolve_question
from paceline.planning.goal.chance import STATED_CHANCE, normal_cdf
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.planner import make_plan
from paceline.planning.search.all_candidates import run_search
from paceline.planning.search.choices import strategy_of
from paceline.planning.search.preference import Standing, better_chance, competing
from paceline.planning.search.script import within
from paceline.planning.search.selection import select

TODAY = date(2026, 11, 20)
OPTIONS = SearchOptions(num_largest_batches=2)
MAX_DEVICES = {"mixtral-8x7b": 64, "llama-3-70b": 64, "llama-3.1-405b": 512}
CORE = {"alexnet", "bert-large", "dcgan", "dlrm", "llama-3-8b", "mnist-cnn", "resnet50", "unet"}
MODELS = [
    name if name in CORE else pytest.param(name, marks=pytest.mark.slow) for name in zoo_names()
]


@cache
def catalog():
    whole = load_catalog()
    return replace(
        whole, offers=tuple(o for o in whole.offers if unranked_reason(o, TODAY) is None)[::9]
    )


def search_of(name, work=None, **goal):
    wanted = Goal(**{"max_devices": MAX_DEVICES.get(name, 8), **goal})
    question = resolve_question(
        load_workload(name), wanted, work or Work(), today=TODAY, options=OPTIONS
    )
    return run_search(question, catalog())


@cache
def searched(name, objective="cost"):
    return search_of(name, objective=objective)


@pytest.mark.parametrize("objective", ["cost", "time", "balanced"])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_told_to_be_better_than_the_first_choice(name, objective):
    """So no first place is dearer and slower than another at the stated chance."""
    search = searched(name, objective)
    first, rows = select(search).best, competing(search, search.is_feasible)
    chances = [better_chance(search, int(row), first) for row in rows[:: max(1, len(rows) // 200)]]
    assert max(chances) < STATED_CHANCE
    assert not Standing.of(search).is_told_worse(first, rows).any()


@pytest.mark.parametrize("name", MODELS)
def test_a_strategy_stands_first_only_if_it_gains_more_than_its_doubt(name):
    """Everything simpler is told to be worse, than the first choice or than one as good."""
    search = searched(name)
    standing, rows = Standing.of(search), competing(search, search.is_feasible)
    first = select(search).best
    simpler = rows[complexity(search.kinds[rows]) < complexity(search.kinds[first])]
    for row in simpler.tolist():
        assert standing.is_told_worse(row, rows).any()
    same = simpler[search.candidates.place[simpler] == search.candidates.place[first]]
    assert standing.is_told_better(first, same).all()


@pytest.mark.parametrize("name", MODELS)
def test_kinds_are_those_of_the_strategy_that_is_printed(name):
    search = searched(name)
    rows = np.flatnonzero(search.is_ranked)
    for row in rows[:: max(1, len(rows) // 50)].tolist():
        assert int(search.kinds[row]) | 1 == kinds_of(strategy_of(search, row)) | 1


def test_the_same_step_on_the_same_device_is_told_apart_by_its_price_alone():
    search = searched("resnet50", "time")
    standing, rows = Standing.of(search), competing(search, search.is_feasible)
    first = select(search).best
    same = rows[
        (standing.cell[rows] == standing.cell[first])
        & (standing.device[rows] == standing.device[first])
        & (search.candidates.num_devices[rows] == search.candidates.num_devices[first])
    ]
    assert standing.apart(first, same) == pytest.approx(0.0, abs=1e-6)


def test_what_is_shared_never_makes_two_plans_less_alike():
    search = searched("dcgan")
    standing, rows = Standing.of(search), competing(search, search.is_feasible)
    for row in rows[::97].tolist():
        apart = standing.apart(row, rows)
        alone = np.hypot(standing.log_sigma[row], standing.log_sigma[rows])
        widened = np.sqrt(alone**2 + standing._of_strategies(row, rows))
        assert (apart <= widened + 1e-12).all()


def test_chances_of_either_order_add_to_one():
    search = searched("unet")
    rows = competing(search, search.is_feasible)[::53].tolist()
    for one, other in pairwise(rows):
        both = better_chance(search, one, other) + better_chance(search, other, one)
        assert both == pytest.approx(1.0)


def test_a_small_job_takes_what_a_script_can_do_and_a_large_one_what_pays():
    small = search_of("llama-3-8b", Work(num_tokens=50e6), devices=("h100",))
    first = select(small).best
    assert within(small.kinds[[first]], USUAL_KINDS).all()
    beyond = ~within(small.kinds, USUAL_KINDS) & small.is_feasible
    assert beyond.any()
    assert not np.isin(np.flatnonzero(beyond), competing(small, small.is_feasible)).any()
    large = search_of("llama-3-8b", Work(num_tokens=15e12), devices=("h100",))
    assert not within(large.kinds, USUAL_KINDS)[competing(large, large.is_feasible)].all()


@pytest.mark.parametrize("kinds", [("fsdp",), ("fsdp", "recompute"), ("fsdp", "recompute", "tp")])
def test_no_plan_asks_for_more_than_the_script_can_do(kinds):
    wanted = Goal(max_devices=16, devices=("h100", "a100"), strategies=kinds)
    plan = make_plan(
        load_workload("llama-3-8b"), wanted, Work(num_tokens=1e9), catalog(), today=TODAY,
        options=OPTIONS,
    )  # fmt: skip
    for choice in plan.choices:
        needed = kinds_in(kinds_of(Strategy.parse(choice.strategy)))
        assert set(needed) <= {"dp", *kinds}


def test_a_script_that_can_do_nothing_that_fits_is_told_what_it_lacks():
    with pytest.raises(DoesNotFitError, match="nothing fits with dp") as told:
        search_of("llama-3-8b", Work(num_tokens=1e9), devices=("h100",), strategies=("dp",))
    assert "fsdp" in told.value.hint


def test_a_kind_that_is_none_is_refused():
    with pytest.raises(UnknownNameError, match="ddp"):
        Goal(strategies=("ddp",))


@pytest.mark.parametrize("name", ["alexnet", "bert-large"])
def test_the_dearer_an_hour_the_faster_the_first_choice(name):
    times = []
    for usd in (0.01, 1.0, 100.0, 10_000.0):
        search = search_of(name, objective="balanced", hour_value_usd=usd)
        times.append(search.evaluation.time_s[np.argmin(search.objective)])
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]


def test_an_hour_is_worth_something():
    with pytest.raises(InvalidInputError):
        Goal(hour_value_usd=0.0)


def test_the_stated_chance_is_that_of_the_rule():
    search = searched("resnet50")
    standing, rows = Standing.of(search), competing(search, search.is_feasible)
    first = select(search).best
    told = standing.is_told_better(first, rows)
    gains = np.log(search.objective[rows] / search.objective[first])
    for is_told, gain, sigma in zip(told, gains, standing.apart(first, rows), strict=True):
        if sigma > 0:
            assert bool(is_told) == (normal_cdf(gain / sigma) >= STATED_CHANCE)
