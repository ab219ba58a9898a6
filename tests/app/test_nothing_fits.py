"""What does not fit is said with a status of its own, and with the number that decided it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from refusals import Outcome

from paceline import predict
from paceline.planning.goal.chance import Z_80, Z_95

NOTHING = ("predict", "llama-3-70b", "--device", "h100", "--task", "infer", "--batch", "1")


@pytest.mark.parametrize("form", ["text", "md", "json"])
def test_where_every_cell_is_out_of_memory_the_answer_is_given_and_the_status_is_3(
    form: str, run: Callable[..., Outcome]
) -> None:
    outcome = run(*NOTHING, "--format", form)
    assert outcome.status == 3
    assert outcome.err.splitlines()[-2].startswith("error: nothing fits: Llama 3 70B at batch 1")
    assert outcome.err.splitlines()[-1].startswith("hint: ")
    if form == "json":
        cells = json.loads(outcome.out)["cells"]
        assert {cell["status"] for cell in cells} == {"out of memory"}
    else:
        assert "OOM" in outcome.out


def test_where_one_cell_fits_the_status_is_0(run: Callable[..., Outcome]) -> None:
    asked = [*NOTHING[:3], "h100,b200", *NOTHING[4:]]
    outcome = run(*asked)
    assert (outcome.status, "error" in outcome.err) == (0, False)
    assert "OOM" in outcome.out


def test_the_need_that_is_told_is_the_one_that_decides() -> None:
    """Just above the room where it does not fit, and within it where it does."""
    grid = predict(
        "llama-3-8b", device="h100,l40s,4090,v100", batch=(1, 2, 4, 8, 16, 32), task="infer"
    )
    said = re.compile(r"needs ([\d.]+) ([GT])B \(([\d.]+) ([GT])B at a chance of 90 %\)")
    for cell in grid.cells:
        memory = cell.memory_bytes
        quantile_bytes = memory.mid * (memory.high / memory.mid) ** (Z_80 / Z_95)
        assert (quantile_bytes <= cell.memory_capacity_bytes) == (cell.status != "out of memory")
        told = said.search(cell.reason)
        assert (told is not None) == (cell.status == "out of memory")
        if told is not None:
            scale = {"G": 1e9, "T": 1e12}[told[4]]
            assert float(told[3]) * scale == pytest.approx(quantile_bytes, rel=0.01)


def test_a_ranking_counts_what_does_not_fit(run: Callable[..., Outcome]) -> None:
    grid = predict("llama-3-70b")
    silent = [cell for cell in grid.cells if cell.status == "out of memory"]
    written = run("predict", "llama-3-70b").out
    assert len(silent) > 100
    assert f"OOM: {len(silent)} devices; " in written


def test_unlimited_memory_is_no_reason_for_the_largest_batch() -> None:
    """Of batches as fast as each other the smallest is ranked, where no memory ends the list."""
    ranked = {cell.device: cell for cell in predict("llama-3-70b").cells}
    cpu = "AMD EPYC 9654 (Genoa)"
    every = predict("llama-3-70b", device=cpu, batch=(1, 2, 4, 8, 16, 32, 1024)).cells
    rates = {cell.batch_per_device: cell.samples_per_s for cell in every}
    chosen = ranked[cpu]
    assert chosen.samples_per_s is not None
    best = max(rate.mid for rate in rates.values() if rate)
    assert chosen.samples_per_s.mid >= 0.98 * best
    smaller = [rate for size, rate in rates.items() if size < chosen.batch_per_device and rate]
    assert all(rate.mid < 0.98 * best for rate in smaller)


@pytest.mark.parametrize(
    "words",
    [
        ("h100", "--compiler", "tensorrt"),
        ("inferentia1",),
        ("k80", "--precision", "bf16"),
    ],
    ids=" ".join,
)
def test_devices_without_any_answer_are_no_success(
    words: tuple[str, ...], run: Callable[..., Outcome]
) -> None:
    outcome = run("predict", "resnet50", "--batch", "8", "--device", *words, "--json")
    assert outcome.status == 2
    answer = json.loads(outcome.out)
    assert answer["cells"] == []
    assert answer["unanswered"][0]["reason"] in outcome.err


@pytest.mark.parametrize("model", ["mnist-cnn", "llama-3-8b"])
def test_where_no_machine_is_left_that_is_said_whatever_the_size(
    model: str, run: Callable[..., Outcome]
) -> None:
    outcome = run("plan", model, "--cloud", "own", "--max-devices", "64")
    unlimited = run("plan", model, "--cloud", "own")
    assert (outcome.status, unlimited.status) == (4, 4)
    assert "\nhint: " in unlimited.err


@pytest.mark.parametrize(
    ("words", "has", "lacks"),
    [
        (("qwen-image", "--task", "infer", "--rps", "0.1"), "--image-size", "--max-devices"),
        (("t5-11b", "--samples", "1M", "--max-devices", "1"), "--seq", "--image-size"),
    ],
)
def test_a_plan_that_fits_nowhere_names_what_makes_an_item_of_the_model_smaller(
    words: tuple[str, ...], has: str, lacks: str, run: Callable[..., Outcome]
) -> None:
    outcome = run("plan", *words, "--device", "t4", "--as-of", "2026-11-20")
    assert outcome.status == 3
    hint = outcome.err.splitlines()[-1]
    assert has in hint
    assert lacks not in hint
