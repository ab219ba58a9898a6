"""A framework that must run is kept by every choice, and named where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

import paceline
from paceline.errors import NoOfferError, PacelineError, UnknownNameError
from paceline.planfile import PlanFile

DAY = "2026-11-20"


def planned(**options: str) -> PlanFile:
    return paceline.plan(
        "resnet50", deadline="7d", max_devices=2, cloud="lambda", as_of=DAY, **options
    )


@pytest.mark.parametrize("framework", ["jax", "tensorflow"])
def test_every_choice_runs_the_framework_that_was_asked_for(framework: str) -> None:
    plan = planned(framework=framework)
    assert {choice.stack.framework for choice in plan.choices} == {framework}
    differs = any("those of JAX may differ" in said for said in plan.assumptions)
    assert differs == (framework == "jax")


def test_pytorch_is_what_is_taken_without_a_word() -> None:
    stated, usual = planned(framework="torch"), planned()
    assert stated.choices == usual.choices
    assert stated.assumptions == usual.assumptions
    assert usual.choices[0].stack.framework == "torch"


def test_a_jitted_function_is_compiled_by_xla() -> None:
    assert {choice.compiler for choice in planned(framework="JAX").choices} == {"xla"}


def test_a_compiler_that_the_framework_lacks_leaves_nothing() -> None:
    with pytest.raises(PacelineError):
        planned(framework="jax", compiler="eager")


def test_a_device_that_the_framework_left_behind_is_no_choice(tmp_path: Path) -> None:
    facts = tmp_path / "own.yaml"
    facts.write_text("machines: [{name: old, device: tesla k80, num_devices: 1}]")
    own = {"cloud": "own", "device": "tesla k80", "facts": (facts,), "as_of": DAY}
    assert paceline.plan("resnet50", framework="torch", **own).choices
    with pytest.raises(NoOfferError):
        paceline.plan("resnet50", framework="jax", **own)


def test_an_unknown_framework_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="`caffe`") as caught:
        planned(framework="caffe")
    known = caught.value.hint.removeprefix("known are: ").split(", ")
    assert {"jax", "tensorflow", "torch", "vllm"} <= set(known)
    assert known == sorted(known)
