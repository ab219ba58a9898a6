"""Figures of candidates, worked out on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import made_forecast, made_links, made_places

from paceline.plan.candidates import BatchRule, enumerate_candidates
from paceline.plan.evaluation import Amount, constraints, count_steps, evaluate
from paceline.plan.goal import Goal

RULE = BatchRule(
    max_global_batch=64, exact_global_batch=None, num_largest=99, accumulates=True, memory_z=1.28
)
JOB = Amount(items_per_epoch=1000, num_epochs=3.0, samples_per_item=1.0)


def evaluated(amount=JOB, *, places=None, node_counts=(1, 2, 4), **forecast):
    places = places or made_places()
    made = made_forecast(**forecast)
    candidates = enumerate_candidates(
        places, made, RULE, node_counts=node_counts, max_devices=64, is_training=True
    )
    links = made_links(len(places.device))
    return candidates, made, evaluate(candidates, places, made, amount, links, links)


def test_one_device_takes_its_forecast_to_the_bit():
    candidates, made, figures = evaluated(node_counts=(1,))
    for row in range(len(candidates)):
        step = made.step_s[0, 0, candidates.batch[row]]
        assert figures.step_s[row] == step
        assert figures.exposed_s[row] == 0.0
        batch = int(made.batch[candidates.batch[row]])
        assert figures.num_steps[row] == 3 * math.ceil(1000 / batch)
        assert figures.time_s[row] == figures.num_steps[row] * step
        assert figures.cost_usd[row] == figures.time_s[row] * 1.0 / 3600.0


@given(st.integers(1, 10**9), st.integers(1, 100_000), st.integers(1, 300))
def test_steps_are_exact(items, global_batch, epochs):
    amount = Amount(items_per_epoch=items, num_epochs=float(epochs), samples_per_item=1.0)
    steps = count_steps(np.array([global_batch]), amount)
    assert int(steps[0]) == epochs * -(-items // global_batch)


@pytest.mark.parametrize(("epochs", "steps"), [(0.5, 5), (0.55, 6), (1.0, 10), (2.5, 25)])
def test_a_part_of_an_epoch_is_rounded_up_to_whole_steps(epochs, steps):
    amount = Amount(items_per_epoch=100, num_epochs=epochs, samples_per_item=1.0)
    assert int(count_steps(np.array([10]), amount)[0]) == steps


def test_more_devices_are_never_faster_than_ideal():
    candidates, made, figures = evaluated()
    alone = made.step_s[0, 0, candidates.batch] * candidates.microbatches
    assert (figures.step_s >= alone).all()
    assert (figures.efficiency_frac <= 1.0).all()
    assert (figures.exposed_s[candidates.num_devices > 1] > 0).all()


def test_accumulation_spreads_communication_over_more_samples():
    candidates, _, figures = evaluated(node_counts=(4,))
    plain = (candidates.batch == 0) & (candidates.sharding == 0)
    rates = figures.samples_per_s[plain]
    assert rates[candidates.microbatches[plain] > 1] > rates[candidates.microbatches[plain] == 1]


def test_cost_is_price_times_time_for_all_machines():
    places = made_places(devices_per_node=(8,), usd_per_hour=(24.0,))
    candidates, _, figures = evaluated(places=places)
    expected = figures.time_s * candidates.num_nodes * 24.0 / 3600.0
    assert np.allclose(figures.cost_usd, expected, rtol=1e-15)
    assert np.allclose(figures.usd_per_million * 3000 / 1e6 * figures.global_batch
                       * figures.num_steps / 3000, figures.cost_usd, rtol=1e-12)  # fmt: skip


def test_without_an_amount_there_are_rates_only():
    amount = Amount(items_per_epoch=None, num_epochs=1.0, samples_per_item=1.0)
    _, _, figures = evaluated(amount)
    assert np.isnan(figures.time_s).all()
    assert (figures.num_steps == 0).all()
    assert np.isfinite(figures.pareto_cost).all()


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
def test_a_deadline_holds_at_its_chance(confidence):
    _, _, figures = evaluated(log_sigma=0.2)
    deadline_s = float(np.median(figures.time_s))
    goal = Goal(deadline_s=deadline_s, confidence=confidence)
    (constraint,) = constraints(figures, goal, JOB)
    chance = [
        0.5 * math.erfc(-math.log(deadline_s / t) / 0.2 / math.sqrt(2)) for t in figures.time_s
    ]
    clear = np.abs(np.array(chance) - confidence) > 1e-9
    assert ((np.array(chance) >= confidence) == constraint.is_met)[clear].all()


def test_an_unknown_power_does_not_keep_a_power_limit():
    _, _, figures = evaluated()
    figures.power_w[:] = np.nan
    (constraint,) = constraints(figures, Goal(power_limit_w=1e9), JOB)
    assert not constraint.is_met.any()
