"""What does not fit: what is told to save memory, and how much would fit."""

from __future__ import annotations

import re

import pytest
from tests.sampled import sampled

from paceline import predict
from paceline.planning.forecast.grid import PredictionGrid
from paceline.reporting.figures import memory_bound_bytes


def answered(**more: object) -> PredictionGrid:
    return predict("mistral-7b", task="infer", device="a100", prompt_tokens=50_000, **more)


def test_the_batch_that_is_told_to_fit_fits_and_the_next_does_not() -> None:
    told = " ".join(answered(batch=12).remedies)
    most = int(re.search(r"batch (\d+) fits: ", told)[1])
    assert answered(batch=most).cells[0].status == "fits"
    assert answered(batch=most + 1).cells[0].status == "out of memory"


def test_what_a_change_is_told_to_save_is_what_the_prediction_with_it_needs_less() -> None:
    stuck = answered(batch=12)
    saved = re.search(r"cache_format=fp8 saves ([\d.]+) GB", stuck.remedies[0])
    narrow = answered(batch=12, rewrite="cache_format=fp8")
    less = memory_bound_bytes(stuck.cells[0].memory_bytes) - memory_bound_bytes(
        narrow.cells[0].memory_bytes
    )
    assert float(saved[1]) == pytest.approx(less / 1e9, rel=0.05)


def test_one_picture_too_many_is_no_reason_for_a_setting_that_cannot_be() -> None:
    told = " ".join(predict("resnet18", task="infer", device="t4", batch=30_000).remedies)
    assert re.search(r"batch \d+ fits", told)


@pytest.mark.parametrize("concurrency", [4, 9, 10, 24])
def test_no_more_is_completed_than_can_be(concurrency: int) -> None:
    grid = predict(
        "qwen3-30b-a3b", device="a100-80gb", prompt_tokens=8000, output_tokens=500,
        concurrency=concurrency,
    )  # fmt: skip
    (cell,) = grid.services
    assert cell.requests_per_s <= cell.capacity_requests_per_s.mid


@pytest.mark.parametrize(
    ("model", "seq", "batch"), sampled([("qwen2.5-3b", 8192, 8), ("gpt2", 1024, 256)], "gpt2")
)
def test_what_a_change_saves_in_training_is_told_of_the_whole_job(
    model: str, seq: int, batch: int
) -> None:
    asked = {"device": "a100-80gb", "devices": (4,), "batch": (batch,), "sharding": "zero3"}
    stuck = predict(model, seq=seq, **asked)
    saved = re.search(r" checkpointing=full saves (\d+) GB", stuck.remedies[0])
    changed = predict(model, seq=seq, checkpointing="full", **asked)
    needed = [memory_bound_bytes(one.cells[0].memory_bytes) for one in (stuck, changed)]
    assert saved is not None
    assert float(saved[1]) == pytest.approx((needed[0] - needed[1]) / 1e9, abs=0.51)
