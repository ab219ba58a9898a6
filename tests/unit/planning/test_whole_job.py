"""What a job does beside its steps, against limits and what is known of large runs."""

from __future__ import annotations

from datetime import date
from functools import cache

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.errors import InvalidInputError
from paceline.model.reading.load import load_workload
from paceline.planning.forecast.question import SearchOptions, resolve_question
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.interruption import Checkpointing, interrupted_run
from paceline.planning.places.whole_job import NO_OVERHEADS, usual_overheads
from paceline.planning.search.all_candidates import run_search
from paceline.units import DAY_S

TODAY = date(2026, 11, 20)
MODELS = ["alexnet", "bert-large", "gpt2", "dcgan"]


@cache
def search_of(name, *, is_ideal, task="train"):
    goal = Goal(devices=("a100",), clouds=("aws", "lambda"), is_ideal=is_ideal)
    workload = load_workload(name, task=task)
    options = SearchOptions(num_largest_batches=1)
    question = resolve_question(workload, goal, Work(), today=TODAY, options=options)
    return run_search(question, load_catalog())


@pytest.mark.parametrize("name", MODELS)
def test_an_ideal_job_is_its_set_up_and_its_steps(name):
    found = search_of(name, is_ideal=True).evaluation
    assert found.run_s == pytest.approx(found.num_steps * found.steps.step_s)


@pytest.mark.parametrize("name", MODELS)
def test_a_job_takes_longer_than_its_steps_and_more_so_on_more_devices(name):
    search, ideal = (search_of(name, is_ideal=x) for x in (False, True))
    factor = search.evaluation.run_s / ideal.evaluation.run_s
    evaluated = 1.0 + usual_overheads(search.workload).evaluation_frac
    assert (factor > evaluated).all()
    assert factor.max() < 1.1
    by_count = [
        factor[search.candidates.num_devices == n].mean()
        for n in np.unique(search.candidates.num_devices)
    ]
    assert by_count == sorted(by_count)


@pytest.mark.parametrize("name", MODELS)
def test_steps_rates_and_memory_know_nothing_of_it(name):
    search, ideal = (search_of(name, is_ideal=x) for x in (False, True))
    assert np.array_equal(search.evaluation.steps.step_s, ideal.evaluation.steps.step_s)
    assert np.array_equal(search.evaluation.samples_per_s, ideal.evaluation.samples_per_s)


def test_the_largest_published_run_works_most_of_the_time():
    """Llama 3 405B: 16,384 devices, and more than 90 % of the time effective (section 3.3.4)."""
    mtbf_s = usual_overheads(load_workload("llama-3-8b")).device_mtbf_s
    saving = Checkpointing(save_s=5.7e12 / 2048 / 1e9, restart_s=600.0)
    run = interrupted_run(54 * DAY_S, saving, 16_384 / mtbf_s)
    assert 0.85 < run.useful_s / run.paid_s < 1.0
    assert run.num_interruptions == pytest.approx(419 * run.paid_s / (54 * DAY_S), rel=1e-6)


def test_inference_evaluates_nothing_and_fails_for_nobody():
    assert usual_overheads(load_workload("gpt2", task="infer")) == NO_OVERHEADS
    with pytest.raises(InvalidInputError, match="--ideal"):
        search_of("gpt2", is_ideal=True, task="infer")
