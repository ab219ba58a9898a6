"""Several machines alike of one's own: as many as there are work together, over their network."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from paceline.catalog.entities import Machine
from paceline.catalog.load import load_catalog
from paceline.model.graph.workload import Task
from paceline.model.reading.load import load_workload
from paceline.planfile import PlanFile
from paceline.planning.goal.files import dump_plan, load_plan
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.own_machines import owned_offers
from paceline.planning.planner import make_plan

TODAY = date(2026, 11, 20)


def planned(
    model: str,
    *,
    task: Task = "train",
    work: Work | None = None,
    global_batch: int | None = 768,
    **facts: Any,
) -> PlanFile:
    machine = Machine(**{"name": "hall", "device_name": "L40S", "num_devices": 4, **facts})
    return make_plan(
        load_workload(model, task=task),
        Goal(objective="time", data="ready", clouds=("own",), global_batch=global_batch),
        work or Work(num_samples=1e7, num_epochs=1),
        replace(load_catalog(), machines=(machine,), offers=()),
        today=TODAY,
    )


@pytest.mark.parametrize("model", ["resnet101", "vit-base"])
def test_no_more_machines_work_than_there_are(model: str) -> None:
    three = planned(
        model, global_batch=6144, num_machines=3, network_bytes_per_s=5e10, scheduler="slurm"
    )
    assert load_plan(dump_plan(three)) == three
    assert (three.choices[0].place.num_nodes, three.choices[0].num_devices) == (3, 12)
    assert all(choice.place.num_nodes <= 3 for choice in three.choices)
    assert "--to slurm" in three.next_commands[0]


def test_without_a_network_each_works_alone() -> None:
    plan = planned("resnet101", num_machines=3)
    assert {choice.place.num_nodes for choice in plan.choices} == {1}
    assert any("network_bytes_per_s" in words for words in plan.assumptions)


def test_one_machine_of_a_cluster_is_that_machine() -> None:
    alone, of_three = planned("resnet101"), planned("resnet101", num_machines=3)
    assert of_three.choices[0].time_s == alone.choices[0].time_s
    assert of_three.choices[0].memory_bytes == alone.choices[0].memory_bytes


def test_a_small_batch_is_not_spread_over_cards_that_wait_for_one_another() -> None:
    small, large = planned("bert-large", global_batch=16), planned("bert-large", global_batch=4096)
    assert (small.choices[0].num_devices, large.choices[0].num_devices) == (1, 4)
    assert sum("hall" in one.name for one in small.rejected) <= 1


def test_all_devices_of_a_machine_are_told_apart_from_some() -> None:
    hall = Machine(name="hall", device_name="L40S", num_devices=6, num_machines=3)
    offered = owned_offers(replace(load_catalog(), machines=(hall,)), today=TODAY)
    assert [(one.offer.num_devices, one.num_machines, one.num_idle) for one in offered] == [
        (6, 3, 0), (1, 1, 5), (2, 1, 4), (4, 1, 2),
    ]  # fmt: skip


def test_machines_that_serve_need_no_network() -> None:
    work = Work(requests_per_s=3000)
    plan = planned("resnet50", task="infer", work=work, global_batch=None, num_machines=5)
    assert all(choice.place.num_nodes <= 5 for choice in plan.choices)


def test_devices_that_are_known_roughly_are_planned_where_the_place_is_named() -> None:
    plan = planned("bert-base", device_name="TPU v5p (per chip)")
    assert "known only within" in plan.assumptions[0]
