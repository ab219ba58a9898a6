"""How samples lie on disk, where nobody said it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import InvalidInputError
from paceline.model.reading.load import load_workload
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.input_side import input_format
from paceline.prediction.input_side import sample_format


@pytest.mark.parametrize("pixels", [1, 28, 32, 224, 10_001, 1_000_000])
def test_images_of_every_size_are_stored_somehow(pixels: int) -> None:
    workload = replace(
        load_workload("resnet50"), input_description=f"{pixels}×{pixels} images, 3 channels"
    )
    stored = input_format(workload, Goal(), Work())
    assert stored is not None
    assert min(stored.width, stored.height) >= min(pixels, 224)


@pytest.mark.parametrize("work", [Work(num_samples=5), Work(num_samples=5, num_epochs=2)])
def test_samples_of_the_users_own_are_not_guessed(work: Work) -> None:
    assert input_format(load_workload("resnet50"), Goal(), work) is None


@pytest.mark.parametrize("name", ["resnet50", "alexnet", "mnist-cnn"])
def test_other_passes_over_the_reference_data_read_it_alike(name: str) -> None:
    workload = load_workload(name)
    assert workload.reference_job is not None
    as_given = Work(num_epochs=workload.reference_job.num_epochs)
    assert input_format(workload, Goal(), as_given) == input_format(workload, Goal(), Work())
    assert input_format(workload, Goal(), Work(num_epochs=1)) is not None


@pytest.mark.parametrize("name", ["gpt2", "bert-base", "dlrm"])
@pytest.mark.parametrize("data", ["imagenet", "coco", "mnist"])
def test_a_model_that_reads_no_images_is_not_fed_with_them(name: str, data: str) -> None:
    with pytest.raises(InvalidInputError, match="are images"):
        input_format(load_workload(name), Goal(data=data), Work())
    assert input_format(load_workload(name), Goal(data="ready"), Work()) is None


@pytest.mark.parametrize("described", ["224×224", "pictures of 640×640", "640×480 in, 4 levels"])
def test_a_model_that_reads_images_is_fed_with_them(described: str) -> None:
    workload = replace(load_workload("resnet50"), input_description=described)
    assert input_format(workload, Goal(data="coco"), Work()) == sample_format("coco")
