"""What does not work together ends with status 6 whatever the question, and says what would."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from refusals import Outcome

_OLD_DRIVER = ("--cuda", "12.4", "--driver", "450")


@pytest.mark.parametrize("verb", ["resolve", "explain", "check"])
def test_every_question_without_a_combination_ends_with_one_status(
    verb: str, run: Callable[..., Outcome]
) -> None:
    outcome = run("stack", verb, *_OLD_DRIVER)
    assert outcome.status == 6
    assert "nothing works for driver 450 with cuda 12.4" in outcome.err
    assert "hint: with another cuda: " in outcome.err


@pytest.mark.parametrize("verb", ["resolve", "explain"])
def test_contradictions_are_told_with_what_works_instead(
    verb: str, run: Callable[..., Outcome]
) -> None:
    outcome = run("stack", verb, *_OLD_DRIVER)
    assert "because: " in outcome.out
    assert "works: with another cuda" in outcome.out
    assert "with another driver" in outcome.out


@pytest.mark.parametrize("form", ["text", "md", "json"])
def test_an_image_that_the_host_cannot_start_is_status_6_with_what_would_start_one(
    form: str, run: Callable[..., Outcome]
) -> None:
    outcome = run("stack", "images", "11.8", "12.4", "--driver", "525", "--format", form)
    assert outcome.status == 6
    assert "no image of CUDA 12.4 starts there" in outcome.err
    assert "a driver from 550" in outcome.err
    assert "NVIDIA_REQUIRE_CUDA" in outcome.out
    if form == "json":
        assert [row["image"] is None for row in json.loads(outcome.out)["rows"]] == [False, True]


def test_images_that_all_start_are_status_0(run: Callable[..., Outcome]) -> None:
    outcome = run("stack", "images", "11.8", "12.4", "--driver", "580")
    assert (outcome.status, outcome.err) == (0, "")


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("h100", "paceline stack resolve --gpu h100"),
        ("rtx 4090", "paceline stack resolve --gpu 'rtx 4090'"),
        ("llama-3-8b", "paceline plan llama-3-8b"),
        ("resolv", "`resolve`"),
    ],
)
def test_a_device_or_a_model_in_the_place_of_a_question_is_shown_its_command(
    run: Callable[..., Outcome], word: str, command: str
) -> None:
    outcome = run("stack", word)
    assert outcome.status == 2
    assert command in outcome.err
