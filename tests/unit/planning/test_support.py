"""How a job runs on one device: the same rule for every verb."""

from __future__ import annotations

import pytest

from paceline.catalog.entities import Device
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.graph.costs import Configuration
from paceline.planning.goal.goal import Goal
from paceline.planning.places.configurations import (
    choose_configurations,
    usual_precisions,
    why_unusable,
)
from paceline.planning.places.support import (
    checked_on,
    configuration_on,
    newest_support,
    unreleased_support,
    why_unmodelled,
)

LARGE = 10**9


def device(name: str) -> Device:
    return find_device(load_catalog(), name)


def test_a_device_runs_what_the_search_would_run_on_it() -> None:
    supports = [support for d in load_catalog().devices if (support := newest_support(d))]
    assert len(supports) > 100
    for support in supports:
        (found,) = choose_configurations([support], Goal(), num_parameters=LARGE)
        searched = found.configuration
        asked = configuration_on(support.device, precision=None, compiler=searched.compiler)
        assert asked == searched, support.device.name


@pytest.mark.parametrize(
    ("name", "usual"),
    [("k80", "fp32"), ("v100", "fp16"), ("a100", "bf16"), ("h100", "bf16")],
)
def test_the_usual_precision_has_units_on_the_device(name: str, usual: str) -> None:
    support = newest_support(device(name))
    assert support is not None
    assert usual_precisions(support)[0] == usual
    assert configuration_on(device(name), precision=None, compiler="eager").precision == usual


def test_what_a_device_does_not_run_is_refused_with_what_it_runs() -> None:
    with pytest.raises(InvalidInputError, match=r"Tesla K80.* does not run bf16") as caught:
        configuration_on(device("k80"), precision="bf16", compiler="eager")
    assert caught.value.hint == "write --precision fp32"
    with pytest.raises(InvalidInputError, match="does not run compiled"):
        configuration_on(device("k80"), precision=None, compiler="compiled")
    with pytest.raises(InvalidInputError, match="does not run bf16"):
        checked_on(device("k80"), Configuration(precision="bf16"))


def test_a_compiler_of_another_framework_is_refused_with_that_framework() -> None:
    with pytest.raises(InvalidInputError, match="does not run xla") as caught:
        configuration_on(device("a100"), precision=None, compiler="xla")
    assert "--compiler compiled or --compiler eager; " in caught.value.hint
    assert "`paceline plan --framework jax`" in caught.value.hint


def test_a_rewrite_is_held_to_what_the_device_runs_too() -> None:
    with pytest.raises(InvalidInputError, match="does not run bf16"):
        configuration_on(device("k80"), precision=None, compiler="eager", rewrite="precision=bf16")


def test_a_precision_that_does_not_exist_is_an_unknown_name() -> None:
    with pytest.raises(UnknownNameError, match="fp7"):
        configuration_on(device("h100"), precision="fp7", compiler="eager")


def test_a_device_without_kernels_says_through_what_software_runs() -> None:
    unknown = device("Inferentia1 (per chip)")
    assert newest_support(unknown) is None
    assert unreleased_support(unknown) is None
    assert "do not know how" in why_unmodelled(unknown)
    with pytest.raises(InvalidInputError, match="do not know how"):
        configuration_on(unknown, precision=None, compiler="eager")


@pytest.mark.parametrize("name", ["gtx 780", "rx 6700 xt", "radeon instinct mi8"])
def test_a_device_that_no_release_runs_on_is_answered_as_if_one_was_built(name: str) -> None:
    assert newest_support(device(name)) is None
    support = unreleased_support(device(name))
    assert support is not None
    assert support.compilers == {"eager"}
    assert "built from source" in support.assumption
    assert unreleased_support(device("a100")) is None


def test_one_of_several_wanted_is_enough() -> None:
    support = newest_support(device("v100"))
    assert support is not None
    assert why_unusable(support, precisions=("bf16", "fp16")) is None
    assert why_unusable(support) is None
    unusable = why_unusable(support, precisions=("bf16", "fp8"))
    assert unusable is not None
    assert unusable.wanted == "bf16, fp8"
    names = ("fp16", "fp32", "int4", "mxfp4")
    assert unusable.choices == " or ".join(f"--precision {name}" for name in names)


@pytest.mark.parametrize(
    ("name", "has", "lacks"), [("rtx 3080", "tf32", "nvfp4"), ("gtx 1070", "fp16", "nvfp4")]
)
def test_formats_that_only_weights_are_kept_in_are_no_choice_of_training(name, has, lacks) -> None:
    support = newest_support(device(name))
    assert support is not None
    trained = why_unusable(support, precisions=("fp8",), task="train")
    assert trained is not None
    assert f"--precision {has}" in trained.choices
    assert lacks not in trained.choices
