"""What a plan prints as its strategy, stated again, costs what the plan says."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache

import numpy as np
import pytest
from tests.sampled import sampled

from paceline.catalog.entities import Catalog
from paceline.catalog.load import load_catalog
from paceline.model.reading.load import load_workload
from paceline.parallelism.memory.memory_fit import quantile_bytes
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planning.decisions.device_counts import BatchRule, scaling_curve
from paceline.planning.forecast.question import SearchOptions, resolve_question
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.place_table import num_devices
from paceline.planning.search.all_candidates import Search, run_search
from paceline.planning.search.choices import strategy_of
from paceline.planning.search.whole_strategies import cluster_of
from paceline.simulation.job import Job

TODAY = date(2026, 11, 20)
#: Machines on which large models are tight, and roomy ones.
OFFERS = ("aws/g4dn.12xlarge", "aws/g5.12xlarge", "aws/p4d.24xlarge", "aws/p5.48xlarge")
#: A dense language model that accumulates, one that recomputes, experts, adapters, convolutions.
JOBS = {
    "dense": ("gpt2", Goal()),
    "recomputing": ("gpt2-xl", Goal(global_batch=64)),
    "experts": ("mixtral-8x7b", Goal()),
    "adapters": ("llama-3-8b", Goal(rewrite="lora_rank=16")),
    "in 16 bits": ("llama-3-8b", Goal()),
    "convolutions": ("resnet50", Goal(global_batch=1024)),
}


@cache
def catalog() -> Catalog:
    whole = load_catalog()
    return replace(whole, offers=tuple(one for one in whole.offers if one.name in OFFERS))


@cache
def searched(job: str, pinned: str = "", microbatch: int = 0) -> Search:
    model, goal = JOBS[job]
    pins = {"strategy": pinned, "batch": str(microbatch)} if pinned else {}
    question = resolve_question(
        load_workload(model), replace(goal, pins=pins), Work(), today=TODAY,
        options=SearchOptions(),
    )  # fmt: skip
    return run_search(question, catalog())


def one_of_each_kind(found: Search) -> list[int]:
    """A ranked row of every set of axes and options, with accumulation and without."""
    rows: dict[tuple[object, ...], int] = {}
    for row in np.flatnonzero(found.is_ranked).tolist():
        one = strategy_of(found, row)
        kind = (
            *(axis.name for axis in one.mesh), one.schedule.kind, one.sharding, one.recompute,
            one.sequence_parallel, one.offloads_optimizer, one.schedule.num_microbatches > 1,
        )  # fmt: skip
        rows.setdefault(kind, row)
    return list(rows.values())


@pytest.mark.parametrize("job", sampled(JOBS, "dense", "recomputing"))
def test_a_strategy_as_it_is_printed_costs_as_much_when_it_is_scaled(job: str) -> None:
    found = searched(job)
    rows = one_of_each_kind(found)
    assert rows
    for row in rows:
        text, place = str(strategy_of(found, row)), found.found.places[found.candidates.place[row]]
        how = found.forecast.configurations[found.candidates.configuration[row]]
        point = scaling_curve(
            Job(
                workload=found.workload,
                configuration=replace(how, checkpointing="none"),
                seq=found.question.seq,
            ),
            cluster_of(place, num_devices(place)),
            counts=(int(found.candidates.num_devices[row]),),
            batch=BatchRule(global_batch=int(found.candidates.global_batch[row])),
            strategy=Strategy.parse(text),
        ).points[0]
        planned_s = found.evaluation.steps.step_s[row] - found.evaluation.starved_s[row]
        mid, high = found.candidates.memory_mid_bytes[row], found.candidates.memory_high_bytes[row]
        assert point.step_s == pytest.approx(planned_s, rel=1e-6), text
        assert point.memory_bytes == pytest.approx(float(quantile_bytes(mid, high)), rel=1e-6), text


def test_a_plan_that_recomputes_says_so() -> None:
    found = searched("recomputing")
    recomputes = np.array(
        [how.checkpointing != "none" for how in found.forecast.configurations]
    )[found.candidates.configuration]  # fmt: skip
    assert recomputes.any()
    for row in np.flatnonzero(recomputes).tolist():
        assert "+recompute-block" in str(strategy_of(found, row))


@pytest.mark.parametrize("job", sampled(["dense", "recomputing", "convolutions"], "dense"))
def test_a_strategy_as_it_is_printed_costs_as_much_when_it_is_pinned(job: str) -> None:
    found = searched(job)
    for row in one_of_each_kind(found):
        text = str(strategy_of(found, row))
        microbatch = int(found.forecast.batch[found.candidates.batch[row]])
        pinned = searched(job, text, microbatch)
        alike = [
            other
            for other in range(len(pinned.candidates))
            if str(strategy_of(pinned, other)) == text
            and _setting(pinned, other) == _setting(found, row)
        ]
        assert alike, text
        step_s, memory_bytes = (
            getattr(of, name)
            for of, name in (
                (pinned.evaluation.steps, "step_s"),
                (pinned.candidates, "memory_mid_bytes"),
            )
        )
        assert step_s[alike[0]] == pytest.approx(found.evaluation.steps.step_s[row], rel=1e-6), text
        assert memory_bytes[alike[0]] == pytest.approx(
            found.candidates.memory_mid_bytes[row], rel=1e-6
        ), text


def _setting(found: Search, row: int) -> tuple[object, ...]:
    """Where a candidate runs, how, and with how many items."""
    how = found.forecast.configurations[found.candidates.configuration[row]]
    offer = found.found.places[found.candidates.place[row]].offer.name
    return offer, how.precision, how.compiler, int(found.candidates.global_batch[row])
