from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import InvalidInputError, StackConflictError, UnknownNameError
from paceline.stack.queries import (
    Constraints,
    check,
    combination_rows,
    explain,
    images_side_by_side,
    resolve,
)

SIDE_BY_SIDE = ("11.8", "12.6", "13")


def test_a_host_with_driver_580_starts_three_cuda_images_side_by_side() -> None:
    images = images_side_by_side(SIDE_BY_SIDE, Constraints(gpu="A100", driver="580"))
    tags = [image.image for image in images]
    assert [tag.split(":")[1].rsplit(".", 1)[0][:4] for tag in tags if tag] == [
        "11.8",
        "12.6",
        "13.0",
    ]
    assert all(image.source for image in images)


def test_a_k80_is_told_why_it_gets_none_of_them() -> None:
    images = images_side_by_side(SIDE_BY_SIDE, Constraints(gpu="K80", driver="580"))
    assert all(image.image is None for image in images)
    rules = [{reason.rule for reason in image.reasons} for image in images]
    assert all("driver-last-kepler" in named for named in rules)
    assert "cuda12-drop" in rules[1]
    assert "cuda13-drop" in rules[2]


def test_a_k80_with_its_own_last_driver_still_gets_cuda_11() -> None:
    images = images_side_by_side(("11.4", "12.6"), Constraints(gpu="K80", driver="470"))
    assert images[0].image is not None
    assert images[1].image is None


def test_what_would_start_an_image_does_start_it() -> None:
    asked = Constraints(gpu="H100", driver="525")
    (choice,) = images_side_by_side(("12.4",), asked)
    assert choice.image is None
    ways = {way.dropped: way.combination for way in choice.ways_out}
    assert set(ways) == {"driver", "cuda"}
    newer = replace(asked, driver=ways["driver"].min_driver)
    older = ways["cuda"].platform_version or ""
    assert images_side_by_side(("12.4",), newer)[0].image is not None
    assert images_side_by_side((older,), asked)[0].image is not None


def test_a_branch_means_its_newest_driver() -> None:
    exact = Constraints(gpu="H100", driver="580.65.06", framework="torch")
    branch = Constraints(gpu="H100", driver="580", framework="torch")
    assert resolve(exact) == resolve(branch)


def test_the_driver_floor_is_that_of_the_cuda_major_and_not_of_the_toolkit() -> None:
    found = check(Constraints(gpu="A100", framework="torch", release="2.8", cuda="12.8"))
    assert found.min_driver == "525.60.13"


def test_an_explanation_carries_rules_with_sources() -> None:
    answer = explain(Constraints(gpu="RTX 5090", framework="torch"))
    assert answer.combination is not None
    assert {"gpu-driver-blackwell", "driver-floor-cuda13"} <= {rule.rule for rule in answer.rules}
    assert all(rule.source for rule in answer.rules)
    assert answer.conflicts == ()


def test_a_conflict_is_printed_with_constraints_rule_and_source() -> None:
    with pytest.raises(StackConflictError) as caught:
        check(Constraints(gpu="V100", cuda="13", framework="torch"))
    message = str(caught.value)
    assert "gpu V100 with cuda 13" in message
    assert "CUDA 13 supports compute capability 7.5" in message
    assert "astral-sh/uv#14742" in message


@pytest.mark.parametrize(
    "name", ["rtx 4090", "RTX4090", "4090", "NVIDIA GeForce RTX 4090", "8.9", "sm_89"]
)
def test_a_gpu_is_found_by_any_of_its_names(name: str) -> None:
    by_name = resolve(Constraints(gpu=name, framework="torch"), max_combinations=1)
    by_capability = resolve(Constraints(gpu="8.9", framework="torch"), max_combinations=1)
    assert by_name == by_capability


@pytest.mark.parametrize(
    ("name", "framework", "platform"),
    [
        ("M1 Ultra", "torch", "mps"),
        ("Arc B580", "torch", "xpu"),
        ("EPYC 7763", "torch", "cpu"),
        ("Raspberry Pi 4", "tensorflow", "cpu"),
        ("Gaudi 3", "torch", "gaudi"),
        ("TPU v6e", "jax", "tpu"),
    ],
)
def test_software_is_found_for_every_device_of_the_catalogue(name, framework, platform):
    assert check(Constraints(gpu=name, framework=framework)).platform == platform


def test_releases_before_a_platform_was_known_to_them_are_refused_by_the_builds_on_record():
    for name, first, before in (("M3", "2.1", "1.11"), ("Arc B580", "2.5", "2.2")):
        assert check(Constraints(gpu=name, framework="torch", release=first)).release >= first
        with pytest.raises(StackConflictError, match="builds on record"):
            check(Constraints(gpu=name, framework="torch", release=before))


def test_an_unknown_gpu_is_an_error_with_near_names() -> None:
    with pytest.raises(UnknownNameError, match="no GPU named `RTX 4900`") as caught:
        resolve(Constraints(gpu="RTX 4900"))
    assert "RTX 4090" in caught.value.hint or "RTX 4000" in caught.value.hint


@pytest.mark.parametrize("driver", ["0", "300", "390"])
def test_an_old_driver_is_not_answered_with_what_needs_none(driver: str) -> None:
    answer = resolve(Constraints(driver=driver))
    assert {one.platform for one in answer.combinations} <= {"cuda"}
    assert answer.combinations or answer.conflicts
    for conflict in answer.conflicts:
        assert dict(conflict.constraints) == {"driver": driver}


def test_a_name_of_several_architectures_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="several GPUs"):
        resolve(Constraints(gpu="RTX"))


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(driver="new"),
        Constraints(cuda="12.x"),
        Constraints(cuda="12.6", rocm="6.4"),
        Constraints(python="py310"),
        Constraints(gpu="MI300X", driver="550"),
        Constraints(rocm="6.4", driver="550"),
        Constraints(gpu="cpu", driver="550"),
    ],
)
def test_what_cannot_be_read_is_refused(constraints: Constraints) -> None:
    with pytest.raises(InvalidInputError):
        resolve(constraints)


@pytest.mark.parametrize(
    "constraints", [Constraints(framework="pytorch"), Constraints(system="dos")]
)
def test_unknown_words_are_refused(constraints: Constraints) -> None:
    with pytest.raises(UnknownNameError):
        resolve(constraints)


def test_rows_are_cells_of_one_table() -> None:
    rows = combination_rows(resolve(Constraints(gpu="A100", framework="torch")))
    assert {len(row) for row in rows} == {7}


def test_a_conflict_is_told_in_the_words_that_were_typed() -> None:
    answer = resolve(Constraints(gpu="K80", driver="580"))
    assert answer.conflicts[0].constraints == (("gpu", "K80"), ("driver", "580"))


def test_a_release_belongs_to_the_framework_it_was_stated_with() -> None:
    answer = resolve(Constraints(gpu="RTX 5090", framework="torch", release="2.6"))
    rules = {reason.rule for conflict in answer.conflicts for reason in conflict.reasons}
    assert rules == {"needs-machine-code"}


def test_a_refusal_names_the_easiest_way_out() -> None:
    with pytest.raises(StackConflictError) as caught:
        check(Constraints(gpu="V100", framework="torch", cuda="13"))
    assert caught.value.hint.startswith("with another cuda: torch")
    ways = resolve(Constraints(gpu="V100", framework="torch", cuda="13")).conflicts[0].ways_out
    assert [way.dropped for way in ways] == ["cuda", "gpu"]
