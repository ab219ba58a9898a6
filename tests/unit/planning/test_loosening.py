"""What brings offers back where the filters of a goal leave none."""

from __future__ import annotations

from datetime import date

import pytest

from paceline.catalog.load import load_catalog
from paceline.errors import NoOfferError, UnknownNameError
from paceline.model.reading.load import load_workload
from paceline.planning.explain.constraint_relaxation import loosening
from paceline.planning.goal.options import parse_goal, parse_work
from paceline.planning.places.places import find_places
from paceline.planning.planner import make_plan

CATALOG = load_catalog()
TODAY = date(2026, 11, 20)


def told(**options: str) -> str:
    goal = parse_goal(options)
    assert not find_places(CATALOG, goal, today=TODAY).places
    return loosening(CATALOG, goal, today=TODAY)


def test_the_framework_is_named_where_it_alone_excludes_all() -> None:
    assert told(framework="jax", device="mi300x") == told(device="mi300x", framework="jax")
    found = told(framework="jax", device="mi300x")
    assert "without `--framework jax`" in found
    left = find_places(CATALOG, parse_goal({"device": "mi300x"}), today=TODAY).places
    assert f"`--framework jax` {len(left)} " in found


@pytest.mark.parametrize(
    "options",
    [
        {"vendor": "AMD", "device": "a100"},
        {"cloud": "lambda", "region": "eu", "device_class": "edge"},
        {"framework": "tensorflow", "device": "b200"},
        {"framework": "jax", "device": "mi300x", "cloud": "own", "max_devices": "1"},
        {"datacenter": "yes", "device": "4090"},
        {"pin": "device=b200", "framework": "tensorflow"},
    ],
)
def test_doing_what_is_said_leaves_as_many_as_said(options: dict[str, str]) -> None:
    found = told(**options)
    sizes = {clause.count("--") for clause in found.split("; ")}
    assert len(sizes) == 1
    for clause in found.split("; "):
        kept = {
            name: value
            for name, value in options.items()
            if f"--{name.replace('_', '-')}" not in clause
        }
        left = find_places(CATALOG, parse_goal(kept), today=TODAY).places
        assert f" {len(left):,} " in f" {clause} "
        assert left


def test_a_plan_hands_the_hint_on() -> None:
    goal = parse_goal({"framework": "jax", "device": "mi300x"})
    with pytest.raises(NoOfferError) as raised:
        make_plan(load_workload("mnist-cnn"), goal, parse_work({}), CATALOG, today=TODAY)
    assert "--framework jax" in raised.value.hint


def test_own_machines_that_nobody_described_are_asked_for() -> None:
    goal = parse_goal({"cloud": "own"})
    with pytest.raises(NoOfferError) as raised:
        make_plan(load_workload("mnist-cnn"), goal, parse_work({}), CATALOG, today=TODAY)
    assert "--facts" in raised.value.hint


def test_a_word_that_nothing_has_stays_an_error_of_its_own() -> None:
    with pytest.raises(UnknownNameError):
        find_places(CATALOG, parse_goal({"vendor": "Acme"}), today=TODAY)
