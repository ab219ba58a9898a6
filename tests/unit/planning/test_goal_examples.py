"""The goal files in examples/goals are read and give plans that keep their goals."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from paceline.catalog.load import load_catalog
from paceline.documents import schema_of
from paceline.errors import InvalidInputError, PacelineError, UnknownNameError
from paceline.model.reading.load import load_workload
from paceline.planning.goal.scenarios import ScenarioFile, load_scenario, read_scenario
from paceline.planning.planner import make_plan

FOLDER = Path(__file__).parents[3] / "examples" / "goals"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if "machines" not in path.name)


def some_offers(facts):
    """Some of what is for rent, and every machine of one's own."""
    whole = load_catalog(facts)
    rented = [one for one in whole.offers if one.cloud != "own"]
    owned = [one for one in whole.offers if one.cloud == "own"]
    return replace(whole, offers=(*rented[::18], *owned))


@cache
def planned(path):
    scenario = read_scenario(path)
    facts = [Path(scenario.facts_file)] if scenario.facts_file else []
    workload = load_workload(scenario.model, task=scenario.task, seq=scenario.seq)
    return scenario, make_plan(
        workload, scenario.goal, scenario.work, some_offers(facts), today=date(2026, 11, 20)
    )


def test_there_is_one_for_each_of_six_kinds_of_user():
    assert len(FILES) == 6


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_gives_a_plan_that_keeps_its_goal(path):
    scenario, plan = planned(path)
    goal, best = scenario.goal, plan.choices[0]
    assert best.meets_goal
    assert best.num_devices <= goal.most_devices
    assert not goal.global_batch or best.global_batch == goal.global_batch
    assert not goal.latency_s or best.latency_s.mid <= goal.latency_s
    assert not goal.budget_usd or best.cost_usd.mid <= goal.budget_usd
    assert not goal.clouds or best.place.cloud in goal.clouds
    assert scenario.title
    assert plan.goal_text


def test_the_lab_s_own_machine_is_enough():
    _, plan = planned(FOLDER / "lab.yaml")
    assert plan.choices[0].place.cloud == "own"


@pytest.mark.parametrize(
    "text",
    [
        "", "- 1", "model: [a]", "task: train", "model: resnet50\ntask: sing",
        "model: resnet50\nseq: long", "model: resnet50\ngoal: {deadline: yesterday}",
        "model: resnet50\ngoal: {colour: red}", "model: resnet50\nwork: {samples: -4}",
        "model: resnet50\nextra: 1", "model: resnet50\ngoal: {pin: {colour: red}}",
        "model: &a resnet50\ntitle: *a",
    ],
)  # fmt: skip
def test_a_broken_goal_file_says_what_is_wrong(text):
    with pytest.raises(PacelineError) as caught:
        load_scenario(text)
    assert isinstance(caught.value, InvalidInputError | UnknownNameError)
    assert caught.value.hint


def test_numbers_flags_and_lists_may_be_written_as_yaml_writes_them():
    scenario = load_scenario(
        "model: resnet50\nwork: {samples: 1281167, epochs: 0.5}\n"
        "goal: {spot: true, device: [a100, l4], max-devices: 8, pin: {batch: 64}}"
    )
    assert scenario.work.num_samples == 1_281_167
    assert scenario.work.num_epochs == 0.5
    assert scenario.goal.allow_spot
    assert scenario.goal.devices == ("a100", "l4")
    assert scenario.goal.pins == {"batch": "64"}


def test_the_schema_of_goal_files_names_their_keys():
    keys = {"model", "title", "task", "seq", "work", "goal", "facts"}
    assert set(schema_of(ScenarioFile)["properties"]) == keys


@pytest.mark.parametrize(
    ("option", "section"), [("samples: 50k", "work"), ("budget: 5usd", "goal")]
)
def test_an_option_at_the_top_of_a_goal_file_is_sent_to_its_section(option, section):
    with pytest.raises(InvalidInputError) as caught:
        load_scenario(f"model: resnet18\n{option}\n")
    assert f"`{section}:`" in caught.value.hint
