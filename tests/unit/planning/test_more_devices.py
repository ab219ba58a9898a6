"""Where the usual number of devices is too slow, more are tried, unless the user limits them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from paceline.catalog.load import load_catalog
from paceline.errors import NoOfferError
from paceline.model.reading.load import load_workload
from paceline.planning.goal.goal import USUAL_DEVICES, Goal, Work
from paceline.planning.planner import make_plan
from paceline.planning.search.more_devices import usual_deadline_s

TODAY = date(2026, 11, 20)
CATALOG = load_catalog()
AWS = replace(CATALOG, offers=tuple(o for o in CATALOG.offers if o.cloud in ("aws", "lambda")))
CASES = [
    ("gpt2", Work(), 18 * 3600.0, "a100"),
    ("resnet50", Work(num_epochs=2000), 4 * 3600.0, "a100"),
]


def planned(name, work, deadline_s, device, **goal):
    wanted = Goal(deadline_s=deadline_s, devices=(device,), **goal)
    return make_plan(load_workload(name), wanted, work, AWS, today=TODAY)


@pytest.mark.parametrize(("name", "work", "deadline_s", "device"), CASES)
def test_a_deadline_takes_as_many_devices_as_it_needs(name, work, deadline_s, device):
    plan = planned(name, work, deadline_s, device)
    assert plan.choices[0].num_devices > USUAL_DEVICES
    assert plan.choices[0].meets_goal
    assert any(f"as {USUAL_DEVICES} are too slow" in one for one in plan.assumptions)


@pytest.mark.parametrize(("name", "work", "deadline_s", "device"), CASES)
def test_a_stated_number_is_kept_and_a_loose_deadline_needs_no_more(name, work, deadline_s, device):
    with pytest.raises(NoOfferError, match="--deadline"):
        planned(name, work, deadline_s, device, max_devices=USUAL_DEVICES)
    loose = planned(name, work, 100 * deadline_s, device)
    assert all(choice.num_devices <= USUAL_DEVICES for choice in loose.choices)
    assert not any("are too slow" in one for one in loose.assumptions)


def test_a_batch_too_small_for_more_devices_is_no_lack_of_memory():
    with pytest.raises(NoOfferError, match="--deadline"):
        planned("bert-large", Work(num_epochs=3000), 36_000.0, "v100")


def test_nobody_trains_for_years_who_does_not_ask_for_it():
    """What is cheapest takes 200 days; within a quarter it is dearer, and the plan says so."""
    work = Work(num_epochs=20_000)
    plan = make_plan(load_workload("resnet50"), Goal(devices=("t4",)), work, AWS, today=TODAY)
    assert plan.choices[0].time_s.mid < usual_deadline_s()
    assert any("as long as people train" in one for one in plan.assumptions)


@pytest.mark.parametrize(("device", "most"), [("t4", 1), ("v100", 4)])
def test_where_nothing_is_in_time_the_plan_is_near_the_fastest(device, most):
    work, goal = Work(num_epochs=200_000), Goal(devices=(device,), max_devices=most)
    plan = make_plan(load_workload("resnet50"), goal, work, AWS, today=TODAY)
    fastest = make_plan(
        load_workload("resnet50"), replace(goal, objective="time"), work, AWS, today=TODAY
    )
    assert usual_deadline_s() < plan.choices[0].time_s.mid
    assert plan.choices[0].time_s.mid <= 1.25 * fastest.choices[0].time_s.mid
    assert any("near the fastest" in one for one in plan.assumptions)
    assert not any("as long as people train" in one for one in fastest.assumptions)
