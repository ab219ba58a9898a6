"""Two machines of one's own on one job: laws, and what is not joined."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from tests.tolerance import ASKED_TOGETHER

from paceline.catalog.entities import Catalog, Machine, Offer, Source
from paceline.catalog.load import load_catalog
from paceline.model.graph.workload import Task
from paceline.model.reading.load import load_workload
from paceline.planfile import PlanFile, PlannedChoice
from paceline.planning.goal.files import dump_plan, load_plan
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.planner import make_plan

TODAY = date(2026, 11, 20)
FAST, SLOW, UNSURE = "GeForce RTX 4090", "GeForce RTX 3090", "RTX 6000D"
TEN_GBIT = 1.25e9
BATCH = 768


def machine(name: str, device: str, **more: Any) -> Machine:
    facts: dict[str, Any] = {"num_devices": 1, "network_bytes_per_s": TEN_GBIT, **more}
    return Machine(name=name, device_name=device, **facts)


def catalog(*machines: Machine, offers: tuple[Offer, ...] = ()) -> Catalog:
    return replace(load_catalog(), machines=machines, offers=offers)


def planned(facts: Catalog, *, task: Task = "train", **goal: Any) -> PlanFile:
    stated: dict[str, Any] = {"global_batch": BATCH, "objective": "time", "data": "ready", **goal}
    return make_plan(
        load_workload("resnet50", task=task),
        Goal(**stated),
        Work(num_samples=1e6, num_epochs=1), facts, today=TODAY,
    )  # fmt: skip


def together(*machines: Machine) -> PlannedChoice:
    plan = planned(catalog(*machines), pins={"offer": "one + other"})
    assert load_plan(dump_plan(plan)) == plan
    return plan.choices[0]


def test_equal_machines_together_are_the_plain_plan_on_two_nodes() -> None:
    """The same device twice over the same network, once owned and once for rent."""
    pair = together(machine("one", FAST), machine("other", FAST))
    rented = Offer(
        name="campus/x1", cloud="campus", instance_type="x1", device_name=FAST, accelerator=FAST,
        num_devices=1, num_vcpus=16, host_memory_bytes=64e9, interconnect="",
        network_bytes_per_s=TEN_GBIT, has_rdma=False, usd_per_hour=1.0, spot_usd_per_hour=None,
        region="", priced_on=TODAY, spot_on=None, interruption_frac_per_month=None,
        is_retired=False, source=Source(text="test"),
    )  # fmt: skip
    plain = planned(
        catalog(offers=(rented,)), pins={"strategy": "dp2", "batch": str(BATCH // 2)}
    ).choices[0]
    assert (plain.num_devices, plain.global_batch) == (2, BATCH)
    assert pair.strategy == plain.strategy == "dp2"
    assert pair.step_s.mid == pytest.approx(plain.step_s.mid, rel=ASKED_TOGETHER)
    assert pair.memory_bytes.high == pytest.approx(plain.memory_bytes.high, rel=1e-6)


def test_a_slower_second_device_never_makes_it_faster_than_two_fast_ones() -> None:
    fast, mixed, slow = (
        together(machine("one", first), machine("other", second))
        for first, second in ((FAST, FAST), (FAST, SLOW), (SLOW, SLOW))
    )
    assert fast.samples_per_s.mid > mixed.samples_per_s.mid > slow.samples_per_s.mid


def test_shares_follow_speed_and_the_order_of_the_machines_does_not_matter() -> None:
    mixed = together(machine("one", FAST), machine("other", SLOW))
    turned = together(machine("one", SLOW), machine("other", FAST))
    assert mixed.step_s.mid == pytest.approx(turned.step_s.mid)
    assert mixed.step_s.low == pytest.approx(turned.step_s.low)
    assert mixed.step_s.high == pytest.approx(turned.step_s.high)
    fast, slow = mixed.shares
    assert (fast.device, slow.device) == (FAST, SLOW)
    assert fast.items_per_device + slow.items_per_device == BATCH
    assert fast.items_per_device > 1.2 * slow.items_per_device
    assert mixed.shares == turned.shares[::-1]
    assert any(f"{fast.items_per_device} on each {FAST}" in note for note in mixed.notes)
    assert mixed.place.device == f"1×{FAST} + 1×{SLOW}"


def test_two_kinds_are_no_surer_than_the_one_known_less_well() -> None:
    alone = {
        name: planned(catalog(machine("one", name)), pins={"offer": "one"}).choices[0].step_s
        for name in (SLOW, UNSURE)
    }
    widths = {name: step.high / step.low for name, step in alone.items()}
    assert widths[UNSURE] > 1.1 * widths[SLOW]
    for names in ((SLOW, UNSURE), (UNSURE, SLOW)):
        pair = together(*map(machine, ("one", "other"), names))
        assert pair.step_s.high / pair.step_s.low > 0.999 * widths[UNSURE]


def test_machines_compete_alone_and_together_and_the_fastest_wins() -> None:
    pair = (machine("one", FAST, num_devices=2), machine("other", SLOW, num_devices=2))
    plan = planned(catalog(*pair))
    assert plan.choices[0].place.offer == "one + other"
    assert plan.choices[0].num_devices == 4
    assert {choice.place.offer for choice in plan.choices} >= {"one", "one + other"}
    assert planned(catalog(*pair), max_devices=3).choices[0].place.offer == "one"


@pytest.mark.parametrize(
    ("facts", "goal"),
    [
        ({"network_bytes_per_s": None}, {}),
        ({}, {"task": "infer", "global_batch": None}),
        ({}, {"devices": ("RTX 4090",)}),
    ],
    ids=["no network", "inference", "other devices wanted"],
)
def test_what_is_not_joined(facts: dict[str, object], goal: dict[str, object]) -> None:
    plan = planned(catalog(machine("one", FAST), machine("other", SLOW, **facts)), **goal)
    assert all("+" not in choice.place.offer for choice in plan.choices)


def test_two_kinds_in_one_box_need_no_network_and_one_computer() -> None:
    box = {"network_bytes_per_s": None, "box": "desk"}
    inside = together(machine("one", FAST, **box), machine("other", SLOW, **box))
    apart = together(machine("one", FAST), machine("other", SLOW))
    assert inside.place.usd_per_hour < apart.place.usd_per_hour
    assert inside.step_s.mid < apart.step_s.mid


def test_how_full_the_fuller_machine_is_does_not_depend_on_which_stands_first() -> None:
    """Software gets less of one device than is marketed: what is counted is what it gets."""
    both = catalog(machine("one", FAST), machine("other", SLOW))
    devices = tuple(
        replace(device, usable_memory_bytes=20e9) if device.name == SLOW else device
        for device in both.devices
    )
    machines = both.machines
    plans = [
        planned(replace(both, devices=devices, machines=order), pins={"offer": name})
        for order, name in ((machines, "one + other"), (machines[::-1], "other + one"))
    ]
    mixed_frac, turned_frac = (
        plan.choices[0].memory_bytes.high / plan.choices[0].memory_capacity_bytes for plan in plans
    )
    assert mixed_frac == pytest.approx(turned_frac)


def test_a_machine_whose_memory_nobody_knows_is_not_joined() -> None:
    pair = catalog(machine("one", FAST), machine("other", SLOW))
    devices = tuple(
        replace(device, memory_bytes=None, usable_memory_bytes=None)
        if device.name == SLOW
        else device
        for device in pair.devices
    )
    plan = planned(replace(pair, devices=devices))
    assert {choice.place.offer for choice in plan.choices} == {"one"}
