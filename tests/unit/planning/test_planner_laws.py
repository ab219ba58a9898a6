"""Laws that every plan keeps, over the models of the zoo and a slice of the real catalogue."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from tests.sampled import sampled, zoo_names
from tests.tolerance import ASKED_TOGETHER, MATTERS_S, MATTERS_USD, is_told_less

from paceline.catalog.freshness import unranked_reason
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_offer
from paceline.errors import DoesNotFitError, NoOfferError, UnknownNameError
from paceline.model.graph.costs import Configuration
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.planfile import Interval
from paceline.planning.explain.exclusions import fates, priced
from paceline.planning.explain.reasons import break_even_usd_per_hour, looser_limit
from paceline.planning.explain.repriced import Winning
from paceline.planning.forecast.question import SearchOptions, resolve_question
from paceline.planning.goal.files import dump_plan, load_plan
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.own_machines import offered_device
from paceline.planning.planner import make_plan, why_not
from paceline.planning.search.all_candidates import run_search
from paceline.planning.search.selection import select
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.simulation.held_memory import held_interval
from paceline.simulation.job import Job
from paceline.units import parse_duration_s

TODAY = date(2026, 11, 20)
OPTIONS = SearchOptions(num_largest_batches=2)
WORK = Work()
LISTED = {"priced_on": TODAY, "status": "listed"}
#: Device limit of the plans; the large models need more than a machine.
MAX_DEVICES = {
    "llama-3-8b": 16, "mixtral-8x7b": 64, "llama-3-70b": 64, "llama-3.1-405b": 512,
}  # fmt: skip
#: One of each kind; the rest of the zoo runs in the slow tests.
CORE = ("bert-base", "gpt2", "dcgan", "dlrm", "ppo", "lstm", "mnist-cnn")


def models(number):
    """Of a law by its number: every third kind in every run, all of them in the slow one."""
    return sampled(zoo_names(), *CORE[number % 3 :: 3])


ONE_DEVICE = sampled(
    [name for name in zoo_names() if name not in MAX_DEVICES],
    "bert-base", "dcgan", "dlrm", "lstm", "mnist-cnn",
)  # fmt: skip
SMALL = ["mnist-cnn", "lstm", "resnet50"]


@cache
def catalog():
    """Every ninth offer that may be ranked, and a few old ones."""
    whole = load_catalog()
    ranked = [o for o in whole.offers if unranked_reason(o, TODAY) is None]
    sold = [o for o in whole.offers if o.status == "listed" and o.device_name]
    old = [o for o in sold if o.usd_per_hour and unranked_reason(o, TODAY)]
    unknown = [o for o in whole.offers if o.status == "unknown" and o.usd_per_hour]
    return replace(whole, offers=(*ranked[::9], *old[::5], *unknown[::29]))


@cache
def workload(name, task="train"):
    return load_workload(name, task=task)


def planned(name, *, task="train", offers=None, today=TODAY, work=WORK, **goal):
    """A plan; one that several laws look at is made once."""
    if offers is None and work == WORK and "pins" not in goal:
        return shared_plan(name, task, today, tuple(sorted(goal.items())))
    facts = catalog() if offers is None else replace(catalog(), offers=tuple(offers))
    return made(name, task, facts, today, work, goal)


@cache
def shared_plan(name, task, today, goal):
    return made(name, task, catalog(), today, WORK, dict(goal))


def made(name, task, facts, today, work, goal):
    wanted = Goal(**{"max_devices": MAX_DEVICES.get(name, 8), **goal})
    return make_plan(workload(name, task), wanted, work, facts, today=today, options=OPTIONS)


def searched(name, **goal):
    wanted = Goal(**{"max_devices": 8, **goal})
    question = resolve_question(workload(name), wanted, WORK, today=TODAY, options=OPTIONS)
    return run_search(question, catalog())


def best_or_none(name, **goal):
    try:
        return planned(name, **goal).choices[0]
    except NoOfferError:
        return None


@pytest.mark.parametrize("name", sampled(zoo_names(), "mnist-cnn", "unet"))
def test_cost_does_not_rise_as_the_deadline_loosens(name):
    """Beyond what tells nothing apart: the one that a tighter deadline takes is no better."""
    fastest = planned(name, objective="time").choices[0].time_s.high
    costs = [
        choice.cost_usd if (choice := best_or_none(name, deadline_s=d)) else None
        for d in np.geomspace(fastest, 100 * fastest, 5)
    ]
    pairs = pairwise(costs)
    assert not any(is_told_less(tight, loose, matters=MATTERS_USD) for tight, loose in pairs)
    assert costs[-1] is not None


@pytest.mark.parametrize("name", models(1))
def test_time_does_not_rise_with_the_budget(name):
    cheapest = planned(name).choices[0].cost_usd.high
    times = [
        choice.time_s if (choice := best_or_none(name, budget_usd=b)) else None
        for b in np.geomspace(cheapest, 100 * cheapest, 5)
    ]
    pairs = pairwise(times)
    assert not any(is_told_less(tight, loose, matters=MATTERS_S) for tight, loose in pairs)
    assert times[-1] is not None


@pytest.mark.parametrize("name", models(2))
def test_nothing_on_the_list_is_dominated(name):
    """By what is as fast or faster, as cheap or cheaper, and one of both by what matters."""
    for goal in ({}, {"deadline_s": 86_400.0 * 7}, {"budget_usd": 3000.0}):
        if best_or_none(name, **goal) is None:
            continue
        points = [
            (c.time_s.mid, c.cost_usd.mid, not c.meets_goal) for c in planned(name, **goal).choices
        ]
        for a in points:
            assert not any(
                all(x <= y for x, y in zip(b, a, strict=True))
                and (b[0] < a[0] / 1.25 - 900.0 or b[1] < a[1] / 1.1 - MATTERS_USD)
                for b in points
            )


@pytest.mark.parametrize("name", models(2))
def test_adding_an_offer_never_worsens_the_best(name):
    """Within one limit of time: where none is stated, it depends on what can be in time."""
    offers = catalog().offers
    best = []
    for count in (5, 10, 15, 20):
        try:
            plan = planned(name, offers=offers[:count], deadline_s=1e10)
        except (DoesNotFitError, NoOfferError):
            best.append(None)
        else:
            best.append(plan.choices[0].cost_usd)
    pairs = pairwise(best)
    assert not any(is_told_less(few, many, matters=MATTERS_USD) for few, many in pairs)
    assert best[-1] is not None


def test_the_slowest_step_makes_the_lowest_rate():
    choices = planned("resnet50", deadline_s=86_400.0).choices
    for choice in choices:
        rate, step = choice.samples_per_s, choice.step_s
        per_step = pytest.approx(choice.global_batch)
        assert rate.low * step.high == per_step
        assert rate.mid * step.mid == per_step
        assert rate.high * step.low == per_step


def test_no_device_computes_beyond_its_peak_however_many_share_a_step():
    choices = planned("resnet50", deadline_s=86_400.0).choices
    shares = [choice.mfu_frac for choice in choices if choice.num_devices > 1 and choice.mfu_frac]
    assert shares
    assert 0 < min(shares) <= max(shares) < 1


@pytest.mark.kernels
@pytest.mark.parametrize("name", ONE_DEVICE)
def test_plan_and_predict_agree(name):
    devices = {device.name: device for device in catalog().devices}
    for choice in planned(name, max_devices=1, data="ready").choices:
        configuration = Configuration(
            precision=choice.precision,
            compiler=choice.compiler,
            checkpointing=choice.checkpointing,
            channels_last=choice.channels_last,
            platform={"tpu": "xla"}.get(choice.stack.platform, choice.stack.platform),
        )
        model = workload(name)
        points = Points(
            batch=np.array([float(choice.batch_per_device)]),
            seq=np.array([float(model.default_seq)]),
        )
        offer = find_offer(catalog(), choice.place.offer)
        device = devices[choice.place.device]
        table = DeviceTable.from_devices([offered_device(device, offer)])
        steps = [
            (p.repeats, predict_pass(lower(p.graph, configuration), table, points))
            for p in model.passes
            if p.runs_on == "device"
        ]
        predicted = [
            sum(repeats * getattr(step, name)[0, 0] for repeats, step in steps)
            for name in ("low_s", "mid_s", "high_s")
        ]
        planned_s = [choice.step_s.low, choice.step_s.mid, choice.step_s.high]
        memory = max((step for _, step in steps), key=lambda step: step.memory_mid_bytes[0, 0])
        low, mid, high = (
            float(getattr(memory, f"memory_{end}_bytes")[0, 0]) for end in ("low", "mid", "high")
        )
        held = held_interval(
            Job(workload=model, configuration=configuration, batch=choice.batch_per_device),
            Interval(low=low, mid=mid, high=high),
            capacity_bytes=choice.memory_capacity_bytes, joined_bytes=0.0,
        )  # fmt: skip
        assert predicted == pytest.approx(planned_s, rel=ASKED_TOGETHER)
        assert held.mid == choice.memory_bytes.mid


@pytest.mark.parametrize("name", models(1))
def test_a_plan_read_back_is_the_same(name):
    plan = planned(name, deadline_s=1e10)
    assert load_plan(dump_plan(plan)) == plan


@pytest.mark.parametrize("name", models(1))
def test_no_first_place_rests_on_an_old_price_while_a_fresh_one_exists(name):
    plan = planned(name)
    offers = {offer.name: offer for offer in catalog().offers}
    assert all(unranked_reason(offers[c.place.offer], TODAY) is None for c in plan.choices)


def test_once_every_price_is_old_they_are_ranked_and_it_says_so_first():
    plan = planned("mnist-cnn", today=date(2029, 1, 1))
    assert plan.choices
    assert "old prices" in plan.assumptions[0]


def first_of_the_job(plan):
    """The first assumption; the age of the catalogue, which is no part of the job, goes before."""
    age, *others = plan.assumptions
    return others[0] if age.startswith("no price is younger") else age


def test_a_catalogue_of_another_season_says_so_first():
    newest = max(o.priced_on for o in catalog().offers if o.priced_on)
    soon, late = (planned("mnist-cnn", today=newest + timedelta(days=n)) for n in (92, 93))
    assert "younger" not in soon.assumptions[0]
    assert late.assumptions[0].startswith("no price is younger than three months")


def test_without_work_the_reference_job_is_the_first_assumption():
    plan = planned("resnet50")
    assert first_of_the_job(plan).startswith("reference job")
    assert plan.workload.num_samples == 1_281_167
    assert plan.workload.num_epochs == 90


def test_without_a_reference_job_there_are_rates_and_cost_per_million():
    anonymous = replace(workload("resnet50"), reference_job=None)
    plan = make_plan(anonymous, Goal(max_devices=8), WORK, catalog(), today=TODAY, options=OPTIONS)
    assert "per million" in first_of_the_job(plan)
    assert plan.choices[0].time_s is None
    assert plan.choices[0].usd_per_million_samples.mid > 0


def with_price(name, usd_per_hour, **seen):
    return tuple(
        replace(o, usd_per_hour=usd_per_hour, **seen) if o.name == name else o
        for o in catalog().offers
    )


#: Files on the provider's disks and traffic out, which no price of machines changes.
BESIDE = {"storage_bytes": 5e12, "egress_bytes": 1e11}
#: Machines alone, and files too.
PRICED = sampled(
    [(name, goal) for name in SMALL for goal in ({}, BESIDE)],
    ("mnist-cnn", BESIDE), ("lstm", {}),
)  # fmt: skip


@pytest.mark.parametrize(("name", "goal"), PRICED)
def test_the_break_even_price_is_where_the_first_place_changes(name, goal):
    search = searched(name, **goal)
    selection = select(search)
    price = break_even_usd_per_hour(search, selection)
    first = search.found.places[search.candidates.place[selection.best]].offer.name
    assert price is not None
    below = planned(name, offers=with_price(first, price * 0.999), **goal).choices[0]
    above = planned(name, offers=with_price(first, price * 1.001), **goal).choices[0]
    assert below.place.offer == first
    assert above.place.offer != first


@pytest.mark.parametrize(("name", "goal"), PRICED)
def test_an_old_price_wins_just_below_the_stated_one_and_not_above(name, goal):
    search = searched(name, **goal)
    best = select(search).best
    able = [f for f in fates(search, best) if f.wins_below_usd_per_hour]
    assert able or search.objective[best] < MATTERS_USD  # Of cents nothing is worth a change.
    for fate in able[:3]:
        price = priced(search, fate, Winning.of(search)).wins_below_usd_per_hour
        if price is None:
            tried = [fate.wins_below_usd_per_hour * factor for factor in (0.1, 0.5, 1.0)]
            assert all(first_at(name, fate, one, goal) != fate.name for one in tried)
        else:
            assert first_at(name, fate, price * 0.999, goal) == fate.name
            assert first_at(name, fate, price * 1.001, goal) != fate.name


def first_at(name, fate, usd_per_hour, goal):
    offers = with_price(fate.name, usd_per_hour, **LISTED)
    return planned(name, offers=offers, **goal).choices[0].place.offer


@pytest.mark.parametrize("name", ["resnet50", "bert-base"])
def test_the_stated_deadline_is_where_the_answer_turns(name):
    fastest = planned(name, objective="time").choices[0].time_s.high
    search = searched(name, deadline_s=1.1 * fastest)
    best = select(search).best
    limit, winner = looser_limit(search, search.constraints[0], best)
    stated = search.found.places[search.candidates.place[winner]].offer.name
    before = planned(name, deadline_s=limit * 0.9999).choices[0]
    after = planned(name, deadline_s=limit * 1.0001).choices[0]
    assert after.place.offer == stated
    assert after.cost_usd.mid < before.cost_usd.mid


def test_a_served_stream_costs_the_least_machine_that_keeps_up():
    slow = planned("resnet50", task="infer", work=Work(requests_per_s=10)).choices[0]
    fast = planned("resnet50", task="infer", work=Work(requests_per_s=20_000)).choices[0]
    assert slow.place.usd_per_hour <= fast.place.usd_per_hour
    assert fast.samples_per_s.mid >= 20_000


def test_generation_keeps_time_per_token_and_time_to_first_token():
    choice = planned("gpt2", task="infer", latency_s=0.05, ttft_s=0.5).choices[0]
    assert choice.latency_s.mid < 0.05
    assert choice.ttft_s.mid < 0.5
    assert choice.batch_per_device == 1


def test_an_impossible_deadline_says_what_it_excludes_and_what_would_do():
    with pytest.raises(NoOfferError, match=r"--deadline excludes [\d,]+ of [\d,]+") as caught:
        planned("resnet50", deadline_s=1.0)
    assert "nearest is" in caught.value.hint
    assert caught.value.exit_code == 4


def test_a_deadline_below_the_set_up_says_so_and_names_no_dear_machine():
    with pytest.raises(NoOfferError) as caught:
        planned("mnist-cnn", deadline_s=60.0)
    assert "setting up a machine alone takes 10.0 min" in caught.value.hint
    cost_usd = float(re.search(r"at ([\d.,]+) USD", caught.value.hint)[1].replace(",", ""))
    assert cost_usd < 100.0 * planned("mnist-cnn", deadline_s=3600.0).choices[0].cost_usd.mid
    with pytest.raises(NoOfferError) as short:
        planned("resnet50", deadline_s=605.0)
    assert "setting up" not in short.value.hint


def test_what_the_hint_of_an_impossible_goal_proposes_is_possible():
    with pytest.raises(NoOfferError) as caught:
        planned("resnet50", deadline_s=1.0)
    deadline = caught.value.hint.split("--deadline ")[1]
    assert planned("resnet50", deadline_s=parse_duration_s(deadline)).choices


def test_a_model_that_fits_nowhere_says_so():
    with pytest.raises(DoesNotFitError, match="needs") as caught:
        planned("llama-3-70b", max_devices=1)
    assert caught.value.exit_code == 3


def test_filters_that_leave_nothing_are_named():
    with pytest.raises(NoOfferError) as caught:
        planned("resnet50", vendors=("AMD",), clouds=("lambda",))
    assert "--vendor" in caught.value.hint


@pytest.mark.parametrize(
    "filters",
    [
        {"clouds": ("aws", "amazone")},
        {"regions": ("eu", "mars")},
        {"vendors": ("nvidea",)},
        {"device_classes": ("gaming",)},
        {"compilers": ("gcc",)},
        {"pins": {"compiler": "gcc"}},
        {"pins": {"precision": "fp7"}},
    ],
    ids=str,
)
def test_a_misspelt_filter_is_refused_even_beside_a_right_one(filters):
    with pytest.raises(UnknownNameError):
        planned("resnet50", **filters)


def test_a_pinned_offer_is_priced_even_if_its_price_is_old():
    listed = [o for o in catalog().offers if o.status == "listed" and o.usd_per_hour]
    old = next(o for o in listed if unranked_reason(o, TODAY))
    plan = planned("mnist-cnn", pins={"offer": old.name})
    assert {c.place.offer for c in plan.choices} == {old.name}


def test_every_pin_holds():
    plan = planned("resnet50", pins={"batch": "64", "precision": "fp32", "strategy": "dp8"})
    assert {(c.batch_per_device, c.precision, c.strategy) for c in plan.choices} <= {
        (64 * c.microbatches, "fp32", str(c.strategy)) for c in plan.choices
    }
    assert {c.num_devices for c in plan.choices} == {8}


def test_every_number_of_the_constraints_is_kept_by_the_choices_that_meet_the_goal():
    plan = planned("bert-base", deadline_s=86_400.0 * 3, power_limit_w=2000.0)
    devices = {device.name: device for device in catalog().devices}
    for choice in plan.choices:
        if choice.meets_goal:
            assert choice.chance_time >= 0.8
            assert choice.num_devices * devices[choice.place.device].tdp_w <= 2000.0
        assert choice.chance_memory >= 0.9
        assert choice.memory_bytes.mid < choice.memory_capacity_bytes


def test_a_machine_never_trains_faster_than_its_input_side_delivers():
    for choice in planned("alexnet").choices:
        ready = planned("alexnet", data="ready", pins={"offer": choice.place.offer}).choices
        assert choice.samples_per_s.mid <= 1.0001 * max(c.samples_per_s.mid for c in ready)


def test_a_machine_that_starves_its_devices_says_so_and_what_helps():
    search = searched("alexnet")
    place, figures = search.candidates.place, search.evaluation
    delivered = search.candidates.num_nodes * search.places.input_samples_per_s[place]
    assert (figures.samples_per_s <= delivered * (1 + 1e-9)).all()
    always = [p for p in set(place.tolist()) if (figures.starved_s[place == p] > 0).all()]
    offers = [search.found.places[p].offer.name for p in always]
    known = (best_or_none("alexnet", pins={"offer": name}) for name in offers)
    choice = next(filter(None, known))
    assert choice.bound == "input"
    # What is known roughly says so before.
    said = [note for note in choice.notes if "known only within" not in note]
    assert "feeds" in said[0]
    assert " gives " in said[0]


def test_why_not_answers_for_devices_families_and_offers():
    goal = Goal(max_devices=8, deadline_s=86_400.0)
    for name in ("H100", find_offer(catalog(), catalog().offers[0].name).name):
        sentences = why_not(
            workload("resnet50"), goal, WORK, catalog(), name, today=TODAY, options=OPTIONS
        )
        assert sentences
        assert all(sentences)
    with pytest.raises(UnknownNameError):
        why_not(workload("resnet50"), goal, WORK, catalog(), "RTX4900", today=TODAY)


@pytest.mark.parametrize("num_samples", [60_000, 60_000_000])
def test_a_stated_batch_is_told_with_the_few_steps_it_leaves(num_samples) -> None:
    model = replace(load_workload("mnist-cnn"), max_global_batch=None)
    job = Work(num_samples=num_samples, num_epochs=1.0)
    goal = Goal(global_batch=512)
    plan = make_plan(model, goal, job, catalog(), today=TODAY, options=OPTIONS)
    (told,) = (one for one in plan.assumptions if "global batch of exactly" in one)
    num_steps = math.ceil(num_samples / 512)
    assert (f"{num_steps:,} optimizer steps in all" in told) == (num_steps < 3519)
