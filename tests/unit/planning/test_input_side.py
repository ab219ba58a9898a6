"""How samples lie on disk, where nobody said it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.model.reading.load import load_workload
from paceline.planning.goal.goal import Goal, Work
from paceline.planning.places.input_side import input_format


@pytest.mark.parametrize("pixels", [1, 28, 32, 224, 10_001, 1_000_000])
def test_images_of_every_size_are_stored_somehow(pixels: int) -> None:
    workload = replace(
        load_workload("resnet50"), input_description=f"{pixels}×{pixels} images, 3 channels"
    )
    stored = input_format(workload, Goal(), Work())
    assert stored is not None
    assert min(stored.width, stored.height) >= min(pixels, 224)


@pytest.mark.parametrize("work", [Work(num_epochs=2), Work(num_samples=5)])
def test_samples_of_the_users_own_are_not_guessed(work: Work) -> None:
    assert input_format(load_workload("resnet50"), Goal(), work) is None
