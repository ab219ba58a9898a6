"""Figures of candidates, worked out on paper."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import made_forecast, made_places, made_steps

from paceline.model.reading.load import load_workload
from paceline.planning.forecast.question import resolve_question
from paceline.planning.goal.amounts import Amount
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.interruption import Checkpointing
from paceline.planning.places.price import JobDemand, RentalTerms, price_job
from paceline.planning.search.candidates import BatchRule, enumerate_candidates
from paceline.planning.search.evaluation import (
    constraints,
    count_steps,
    evaluate,
    objective_name,
)
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.kernels.power import idle_power_w

RULE = BatchRule(
    shards_freely=True,
    max_global_batch=64,
    exact_global_batch=None,
    num_largest=99,
    accumulates=True,
    memory_confidence=0.9,
)
NONE = Checkpointing(save_s=0.0, restart_s=0.0)
JOB = Amount(items_per_epoch=1000, num_epochs=3.0, samples_per_item=1.0)


def evaluated(amount=JOB, *, places=None, node_counts=(1, 2, 4), checkpointing=NONE, **forecast):
    places = places or made_places()
    made = made_forecast(**forecast)
    candidates = enumerate_candidates(
        places, made, RULE, node_counts=node_counts, max_devices=64, is_training=True
    )
    steps = made_steps(candidates, made)
    figures = evaluate(candidates, places, made, steps, amount, checkpointing)
    return candidates, made, figures


def test_one_device_takes_its_forecast_to_the_bit():
    candidates, made, figures = evaluated(node_counts=(1,))
    for row in range(len(candidates)):
        step = made.steps.step_s[0, 0, candidates.batch[row]]
        assert figures.steps.step_s[row] == step
        assert figures.steps.lost_s[row] == 0.0
        batch = int(made.batch[candidates.batch[row]])
        assert figures.num_steps[row] == 3 * math.ceil(1000 / batch)
        assert figures.time_s[row] == figures.num_steps[row] * step
        assert figures.cost_usd[row] == math.ceil(round(figures.time_s[row], 9)) / 3600.0


def test_energy_is_that_of_the_batches_and_of_waiting_for_the_rest_of_the_step():
    """One device waits for nothing; of several, what their step takes longer is drawn idle."""
    candidates, made, figures = evaluated()
    cell = (candidates.configuration, np.zeros(len(candidates), int), candidates.batch)
    num_batches = candidates.global_batch / made.batch[candidates.batch]
    busy_j = num_batches * made.steps.energy_j[cell] / candidates.global_batch
    whole_s = candidates.num_devices * figures.steps.step_s
    waiting_s = whole_s - num_batches * made.steps.step_s[cell]
    idle_w = idle_power_w(made_places().tdp_w[candidates.place], builtin_calibration())
    added_j = waiting_s * idle_w / candidates.global_batch
    assert figures.energy_j_per_sample == pytest.approx(busy_j + added_j)
    assert (added_j[candidates.num_devices > 1] >= 0).all()
    assert added_j[candidates.num_devices == 1] == pytest.approx(0.0, abs=1e-9)


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
    alone = made.steps.step_s[0, 0, candidates.batch] * candidates.microbatches
    assert (figures.steps.step_s >= alone).all()
    assert (figures.efficiency_frac <= 1.0).all()
    assert (figures.steps.lost_s[candidates.num_devices > 1] > 0).all()


def test_accumulation_spreads_communication_over_more_samples():
    candidates, _, figures = evaluated(node_counts=(4,))
    plain = (candidates.batch == 0) & (candidates.sharding == 0)
    rates = figures.samples_per_s[plain]
    assert rates[candidates.microbatches[plain] > 1] > rates[candidates.microbatches[plain] == 1]


def test_cost_is_price_times_time_for_all_machines():
    places = made_places(devices_per_node=(8,), usd_per_hour=(24.0,))
    candidates, _, figures = evaluated(places=places)
    whole_s = np.ceil(np.round(figures.time_s, 9))
    assert np.allclose(figures.cost_usd, whole_s * candidates.num_nodes * 24 / 3600, rtol=1e-15)


def test_the_cost_of_a_million_is_the_rate_s_share_of_the_price():
    _, _, figures = evaluated()
    hours = 1e6 / figures.samples_per_s / 3600
    assert np.allclose(figures.usd_per_million, hours * figures.usd_per_hour, rtol=1e-12)


def test_set_up_is_paid_and_counted_once():
    _, _, without = evaluated()
    places = made_places(setup_s=np.array([300.0]))
    _, _, with_setup = evaluated(places=places)
    assert np.allclose(with_setup.time_s, without.time_s + 300.0, rtol=1e-12)
    assert np.allclose(with_setup.run_s, without.run_s, rtol=1e-12)
    assert np.allclose(with_setup.cost_usd - without.cost_usd, 300 * without.usd_per_hour / 3600)


def test_a_minimum_rental_is_paid_in_full():
    _, _, figures = evaluated(places=made_places(minimum_s=np.array([86_400.0])))
    assert np.allclose(figures.cost_usd, 24 * figures.usd_per_hour, rtol=1e-12)


def test_a_spot_job_costs_what_the_price_of_a_job_says():
    frac = 0.3
    places = made_places(
        interruption_frac_per_month=np.array([frac]), wait_s=np.array([500_000.0]),
        setup_s=np.array([600.0]),
    )  # fmt: skip
    saving = Checkpointing(save_s=200.0, restart_s=600.0)
    amount = Amount(items_per_epoch=10_000_000, num_epochs=3.0, samples_per_item=1.0)
    candidates, _, figures = evaluated(amount, places=places, checkpointing=saving)
    for row in range(len(candidates)):
        nodes = int(candidates.num_nodes[row])
        work_s = float(figures.num_steps[row] * figures.steps.step_s[row])
        price = price_job(
            JobDemand(
                run_s=work_s, num_nodes=nodes, setup_s=600.0,
                checkpointing=replace(saving, save_s=200.0 / nodes),
            ),
            RentalTerms(
                term="spot", usd_per_hour=1.0, wait_s=500_000.0,
                interruption_frac_per_month=(frac, frac, frac),
            ),
        )  # fmt: skip
        assert math.isclose(figures.cost_usd[row], price.total_usd.mid, rel_tol=0.005)
        assert math.isclose(figures.time_s[row], price.wall_s, rel_tol=0.005)


def test_a_million_at_spot_costs_its_share_of_a_job_without_set_up() -> None:
    places = made_places(interruption_frac_per_month=np.array([0.3]), wait_s=np.array([600.0]))
    saving = Checkpointing(save_s=2000.0, restart_s=600.0)
    amount = Amount(items_per_epoch=10_000_000, num_epochs=3.0, samples_per_item=1.0)
    _, _, figures = evaluated(amount, places=places, checkpointing=saving)
    samples = figures.samples_per_s * figures.num_steps * figures.steps.step_s
    assert np.allclose(figures.usd_per_million, 1e6 * figures.cost_usd / samples, rtol=1e-5)
    _, _, certain = evaluated(amount)
    assert (figures.usd_per_million > 1.01 * certain.usd_per_million).all()


def test_a_step_that_waits_for_its_input_takes_what_that_takes_and_is_less_sure() -> None:
    rate = 2.0
    places = made_places(input_samples_per_s=np.array([rate]))
    candidates, _, starved = evaluated(places=places, log_sigma=0.01)
    _, _, fed = evaluated(log_sigma=0.01)
    waits = starved.starved_s > 0
    assert waits.any()
    machines = candidates.num_nodes[waits]
    assert np.allclose(starved.samples_per_s[waits], rate * machines, rtol=1e-12)
    assert (starved.steps.log_sigma[waits] > 2 * fed.steps.log_sigma[waits]).all()
    assert np.array_equal(starved.steps.log_sigma[~waits], fed.steps.log_sigma[~waits])


def test_the_price_of_a_stream_is_as_sure_however_unsure_its_steps_are() -> None:
    stream = Amount(items_per_epoch=None, num_epochs=1.0, samples_per_item=1.0, samples_per_s=2.0)
    spent = []
    for log_sigma in (0.01, 0.5):
        _, _, figures = evaluated(stream, log_sigma=log_sigma)
        stated = constraints(figures, Goal(budget_usd=1.0), stream)
        spent += [one.value for one in stated if one.option == "--budget"]
    assert np.allclose(*spent, rtol=1e-6)


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


def test_a_room_that_takes_away_less_heat_leaves_out_what_is_hotter_and_what_is_unknown():
    _, _, figures = evaluated()
    figures.heat_w[:] = 2000.0
    figures.heat_w[:2] = 0.0, np.nan
    (constraint,) = constraints(figures, Goal(cooling_limit_w=1999.0), JOB)
    assert constraint.is_met.tolist() == [True] + [False] * (len(figures.heat_w) - 1)
    (constraint,) = constraints(figures, Goal(cooling_limit_w=2000.0), JOB)
    assert constraint.is_met.sum() == len(figures.heat_w) - 1


def test_an_unknown_power_does_not_keep_a_power_limit():
    _, _, figures = evaluated()
    figures.power_w[:] = np.nan
    (constraint,) = constraints(figures, Goal(power_limit_w=1e9), JOB)
    assert not constraint.is_met.any()


@pytest.mark.parametrize(
    ("work", "objective"),
    [(Work(requests_per_s=1.0), "cost"), (Work(num_samples=1e6), "time"), (Work(), "time")],
)
def test_a_budget_alone_buys_speed_for_what_ends_and_no_speed_for_a_service(
    work: Work, objective: str
) -> None:
    workload = load_workload("gpt2", task="infer")
    asked = resolve_question(workload, Goal(budget_usd=5.0), work, today=date(2026, 11, 20))
    assert objective_name(asked.goal) == objective
    stated = Goal(budget_usd=5.0, objective="energy")
    asked = resolve_question(workload, stated, work, today=date(2026, 11, 20))
    assert objective_name(asked.goal) == "energy"
