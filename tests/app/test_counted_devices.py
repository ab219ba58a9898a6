"""A device is typed with how many of it, ``4x a100``, and says what options beside it say."""

from __future__ import annotations

import inspect

import pytest

import paceline
from paceline.app.requests.scaling import USUAL_COUNTS
from paceline.errors import InvalidInputError
from paceline.planning.goal.options import parse_goal


def test_counts_of_a_curve_are_usual_where_nobody_names_them() -> None:
    assert inspect.signature(paceline.scale).parameters["counts"].default == USUAL_COUNTS


def test_a_counted_device_is_that_count_alone() -> None:
    typed = paceline.scale("gpt2", device="4x a100", batch=8)
    stated = paceline.scale("gpt2", device="a100", counts=(4,), batch=8)
    assert typed.curve == stated.curve
    with pytest.raises(InvalidInputError, match="both say how many"):
        paceline.scale("gpt2", device="4x a100", counts=(2, 8), batch=8)


def test_a_counted_device_is_the_most_of_a_plan() -> None:
    goal = parse_goal({"device": "4x a100"})
    assert (goal.devices, goal.max_devices) == (("a100",), 4)
    assert parse_goal({"device": "4x a100", "max-devices": "4"}) == goal
    with pytest.raises(InvalidInputError, match="at most 2"):
        parse_goal({"device": "4x a100", "max-devices": "2"})


def test_counts_that_one_machine_holds_are_answered_and_the_others_told() -> None:
    few = paceline.predict("vgg16", device="l40s", batch=(16,), devices=(1, 4))
    more = paceline.predict("vgg16", device="l40s", batch=(16,), devices=(1, 4, 128))
    assert more.cells == few.cells
    assert any("128 devices" in one and "`paceline scale" in one for one in more.assumptions)
    with pytest.raises(InvalidInputError, match="128"):
        paceline.predict("vgg16", device="l40s", batch=(16,), devices=(128,))
