"""Goals and work from strings."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidInputError, PacelineError, UnknownNameError
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.goal.options import (
    format_goal,
    parse_goal,
    parse_work,
)
from paceline.planning.goal.typed import read_flag, typed_fields


def _names(kind: type) -> list[str]:
    return [one.name for _, one in typed_fields(kind)]


def test_every_field_is_declared_with_all_that_a_user_needs():
    for kind in (Goal, Work):
        declared = dict(typed_fields(kind))
        assert list(declared) == [one.name for one in dataclasses.fields(kind)]
        for one in declared.values():
            assert one.help.endswith(".")
            assert bool(one.example) == (one.read is not read_flag or one.name == "guidance")


def test_every_kind_of_option_is_read_in_si_units():
    goal = parse_goal(
        {
            "deadline": "24h", "budget": "50usd", "latency": "50ms", "power-limit": "1.2kW",
            "cooling-limit": "3kW",
            "vendor": "NVIDIA,AMD", "spot": "yes", "max-devices": "4k", "confidence": "90%",
            "pin": "offer=aws/p5.48xlarge,nodes=2",
        }
    )  # fmt: skip
    assert (goal.deadline_s, goal.budget_usd, goal.latency_s) == (86_400.0, 50.0, 0.05)
    assert goal.cooling_limit_w == 3000.0
    assert (goal.power_limit_w, goal.vendors) == (1200.0, ("NVIDIA", "AMD"))
    assert (goal.allow_spot, goal.max_devices, goal.confidence) == (True, 4000, 0.9)
    assert goal.pins == {"offer": "aws/p5.48xlarge", "nodes": "2"}


def test_nothing_given_is_the_default():
    assert parse_goal({}) == Goal()
    assert parse_work({}) == Work()


def test_only_what_was_given_is_shown():
    assert format_goal(parse_goal({"deadline": "24h", "vendor": "AMD"})) == {
        "deadline": "24.0 h",
        "vendor": "AMD",
    }


@pytest.mark.parametrize(
    "options",
    [
        {"deadline": "soon"}, {"deadline": "0h"}, {"deadline": "-3h"}, {"budget": "-5usd"},
        {"confidence": "1.5"}, {"confidence": "maybe"}, {"vendor": ","}, {"spot": "perhaps"},
        {"max-devices": "0.5"}, {"pin": "offer"}, {"pin": "colour=red"}, {"objective": "beauty"},
        {"precision": "fp17"}, {"dead-line": "24h"},
    ],
)  # fmt: skip
def test_a_mistake_says_what_and_how(options):
    with pytest.raises(PacelineError) as caught:
        parse_goal(options)
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_a_misspelt_option_is_named_with_its_neighbour():
    with pytest.raises(UnknownNameError) as caught:
        parse_goal({"deadlin": "3h"})
    assert "`deadline`" in caught.value.hint


def test_work_in_tokens_and_samples_at_once_is_refused():
    with pytest.raises(InvalidInputError):
        parse_work({"tokens": "1B", "samples": "1M"})


def refusal(read, options):
    try:
        read(options)
    except PacelineError as error:
        return error
    return None


@given(st.sampled_from(_names(Goal)), st.text(max_size=30))
def test_any_text_is_read_or_refused_politely(name, text):
    error = refusal(parse_goal, {name: text})
    assert error is None or error.hint


@given(st.sampled_from(_names(Work)), st.text(max_size=30))
def test_any_work_is_read_or_refused_politely(name, text):
    error = refusal(parse_work, {name: text})
    assert error is None or error.hint
