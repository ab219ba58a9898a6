"""Silence of a row is said in its note and widens its interval."""

from __future__ import annotations

import math

import pytest

from paceline.catalog.load import load_catalog
from paceline.scoring.answers import Answer
from paceline.scoring.readings import UnresolvedRowError, read_job
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows

ROW = {
    "model": "resnet50", "task": "train", "framework": "PyTorch 2.4", "precision": "bf16",
    "gpu": "A100-SXM4-80GB", "n_gpus": "1", "batch_per_gpu": "128", "unit": "img/s",
}  # fmt: skip


def answers(*changes: dict[str, str]) -> list[Answer]:
    return predict_rows([parse_row(ROW | change) for change in changes], catalog=load_catalog())


def width(answer: Answer) -> float:
    assert answer.step_high_s
    assert answer.step_low_s
    return math.log(answer.step_high_s / answer.step_low_s)


def test_what_is_assumed_is_said_and_costs_width() -> None:
    told, silent = answers({}, {"batch_per_gpu": ""})
    assert "batch" not in told.note
    assert "batch" in silent.note
    assert width(silent) > width(told)


def test_an_unknown_framework_is_taken_as_pytorch_and_says_so() -> None:
    told, unknown = answers({}, {"framework": "the code of a friend"})
    assert unknown.step_mid_s == pytest.approx(told.step_mid_s)
    assert "PyTorch" in unknown.note
    assert width(unknown) > width(told)


def test_an_assumed_batch_fits_and_twice_as_much_would_not() -> None:
    (silent,) = answers({"batch_per_gpu": ""})
    assert silent.fits == ""
    assert silent.memory_high_bytes
    assert silent.memory_high_bytes < 80 * 2**30
    assert silent.throughput_mid
    assert silent.step_mid_s
    batch = round(silent.throughput_mid * silent.step_mid_s)
    twice, same = answers({"batch_per_gpu": str(2 * batch)}, {"batch_per_gpu": str(batch)})
    assert (same.fits, twice.fits == "yes") == ("yes", False)


def test_what_is_served_in_which_batch_nobody_can_tell() -> None:
    with pytest.raises(UnresolvedRowError, match="batch"):
        read_job(parse_row(ROW | {"task": "infer", "batch_per_gpu": ""}))


def test_rows_with_assumptions_are_marked_for_fits() -> None:
    assert read_job(parse_row(ROW)).assumed == ()
    assert read_job(parse_row(ROW | {"batch_per_gpu": ""})).assumed == ("batch",)
    assert read_job(parse_row(ROW | {"framework": "mine"})).assumed == ("framework",)


def test_a_precision_is_never_taken() -> None:
    with pytest.raises(UnresolvedRowError, match="no precision"):
        read_job(parse_row(ROW | {"precision": ""}))
