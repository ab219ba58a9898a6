"""Large models: complete strategies join the candidates, and their figures are the search's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache

import numpy as np

from paceline.catalog.freshness import unranked_reason
from paceline.catalog.load import load_catalog
from paceline.model.reading.load import load_workload
from paceline.parallelism.memory.memory_fit import quantile_bytes
from paceline.parallelism.strategy.complexity import complexity, kinds_mask
from paceline.planning.forecast.question import SearchOptions, resolve_question
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.search import whole_search
from paceline.planning.search.all_candidates import _evaluated as run_search_parts
from paceline.planning.search.all_candidates import run_search
from paceline.planning.search.choices import planned_choice
from paceline.planning.search.evaluation import MATTERS_FRAC

TODAY = date(2026, 11, 20)


@cache
def search(name="llama-3-8b", devices=("A100 SXM4 80GB",), max_devices=16):
    whole = load_catalog()
    offers = [o for o in whole.offers if unranked_reason(o, TODAY) is None and o.num_devices == 8]
    goal = Goal(max_devices=max_devices, devices=devices)
    question = resolve_question(
        load_workload(name), goal, Work(num_tokens=1e9), today=TODAY,
        options=SearchOptions(num_largest_batches=2),
    )  # fmt: skip
    return run_search(question, replace(whole, offers=tuple(offers)))


def whole_rows():
    found = search()
    rows = range(len(found.candidates) - len(found.whole.jobs), len(found.candidates))
    return found, [(row, found.whole_job(row)) for row in rows]


def test_a_large_model_gets_complete_strategies_and_a_small_one_does_not():
    assert search().whole is not None
    assert search("gpt2").whole is None
    assert all(search().whole_job(row) is None for row in range(10))


def test_steps_memory_and_batches_are_those_of_the_strategy():
    found, rows = whole_rows()
    for (row, one), step_s in zip(rows, found.whole.steps.step_s, strict=True):
        assert found.evaluation.steps.step_s[row] == step_s
        assert one.strategy.num_ranks == found.candidates.num_devices[row]
        made = one.batch * one.strategy.schedule.num_microbatches * one.strategy.num_batches
        assert found.candidates.global_batch[row] == made
        assert made <= found.workload.max_global_batch


def test_a_choice_prints_the_strategy_and_fits():
    found, rows = whole_rows()
    for row, one in rows[:4]:
        choice = planned_choice(found, row)
        assert choice.strategy == str(one.strategy)
        memory = choice.memory_bytes
        needed_bytes = quantile_bytes(memory.mid, memory.high, found.goal.memory_confidence)
        assert needed_bytes <= choice.memory_capacity_bytes
        assert choice.step_s.low < choice.step_s.mid < choice.step_s.high
        assert 0 < choice.mfu_frac < 1


def test_searching_whole_strategies_never_worsens_the_best():
    found, _ = whole_rows()
    first = len(found.candidates) - len(found.whole.jobs)
    ranked = found.is_ranked
    best = found.objective[ranked].min()
    assert best <= found.objective[:first][ranked[:first]].min()


def test_a_budget_and_a_deadline_choose_among_the_same_strategies():
    whole = load_catalog()
    offers = [o for o in whole.offers if unranked_reason(o, TODAY) is None][::16]
    found = []
    for limit in ({"deadline_s": 3e5}, {"budget_usd": 300.0}):
        goal = Goal(max_devices=8, devices=("A100 SXM4 80GB", "H100 SXM5 80GB"), **limit)
        question = resolve_question(
            load_workload("llama-3-8b"), goal, Work(num_tokens=1e9), today=TODAY,
            options=SearchOptions(num_largest_batches=2),
        )  # fmt: skip
        found.append(run_search(question, replace(whole, offers=tuple(offers))).whole)
    first, second = found
    assert list(map(str, first.jobs)) == list(map(str, second.jobs))
    assert np.array_equal(first.steps.step_s, second.steps.step_s)


def test_what_is_not_searched_gains_less_than_matters_over_what_is_simple(monkeypatch):
    pruned = search()
    monkeypatch.setattr(whole_search, "_can_gain", lambda *_: True)
    run_search_parts.cache_clear()
    try:
        every = search.__wrapped__()
    finally:
        run_search_parts.cache_clear()
    is_simple = pruned.is_ranked & (complexity(pruned.kinds) <= complexity(kinds_mask("recompute")))
    cost, time = pruned.evaluation.cost_usd[is_simple], pruned.evaluation.time_s[is_simple]
    kept = {(str(job.strategy), job.batch) for job in pruned.whole.jobs}
    left_out = [
        row
        for row in np.flatnonzero(every.is_ranked).tolist()
        if (job := every.whole_job(row)) and (str(job.strategy), job.batch) not in kept
    ]
    assert left_out, "the search left nothing out"
    for row in left_out:
        near = (1.0 + MATTERS_FRAC) * every.evaluation.cost_usd[row] >= cost
        near &= (1.0 + MATTERS_FRAC) * every.evaluation.time_s[row] >= time
        assert near.any()
