"""The command that a row is explained by gives the row's number, times the factor that is told."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import pytest
from scoreboard_compare import rows_of_sets, sample

from paceline.app.main import main
from paceline.catalog.load import load_catalog
from paceline.errors import PacelineError
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.scoring.answers import Answer
from paceline.scoring.completion import completed
from paceline.scoring.explain import RowExplanation, explain_row
from paceline.scoring.naming.source_levels import as_published
from paceline.scoring.rows import Row, parse_row
from paceline.scoring.score import predict_rows

TRUTH = Path(__file__).parents[4] / "shared" / "truth" / "e2e"
CATALOG = load_catalog()
ROWS = {
    "amp over NVLink": {
        "model": "resnet50", "task": "train", "framework": "PyTorch NGC 22.10", "n_gpus": "8",
        "precision": "AMP fp16", "gpu": "A100-SXM4-40GB", "interconnect": "NVLink",
        "parallelism": "DP", "batch_per_gpu": "128", "unit": "img/s",
    },
    "inference, and what a harness adds": {
        "model": "resnet50", "task": "infer", "framework": "PyTorch 2.4", "precision": "fp32",
        "gpu": "V100", "batch_per_gpu": "32", "added_item_s": "0.001", "time_factor": "1.1",
    },
    "sharded over a network": {
        "model": "llama3_8b", "task": "train", "framework": "PyTorch 2.4 (llm-foundry)",
        "precision": "bf16-true", "gpu": "H100-SXM5-80GB", "n_gpus": "16", "n_nodes": "2",
        "interconnect": "NVLink + 8x CX-7 IB 400Gb/s", "parallelism": "FSDP FULL_SHARD",
        "batch_per_gpu": "1", "grad_accum": "2", "seq_len": "2048", "unit": "tok/s",
    },
    "stages and tensor ranks by a recipe": {
        "model": "llama3_8b", "task": "train", "framework": "NeMo Megatron-Bridge 26.06",
        "precision": "BF16", "gpu": "H100-SXM5-80GB", "n_gpus": "16", "n_nodes": "2",
        "parallelism": "TP=2 PP=2", "batch_per_gpu": "1", "global_batch": "16", "seq_len": "2048",
    },
    "a strategy stated exactly": {
        "model": "gpt2", "task": "train", "framework": "PyTorch", "precision": "bf16",
        "gpu": "H100-SXM5-80GB", "strategy": "dp2.tp4/mb2+zero1", "batch_per_gpu": "4",
    },
    "a pass of a denoiser, whose items are pictures elsewhere": {
        "model": "stabilityai/stable-diffusion-3.5-medium", "task": "infer", "precision": "bf16",
        "framework": "xDiT/diffusers", "gpu": "H100", "batch_per_gpu": "8", "n_gpus": "1",
    },
    "two devices that do not talk": {
        "model": "resnet18", "task": "infer", "framework": "TensorFlow", "precision": "fp16",
        "gpu": "T4", "batch_per_gpu": "8", "n_gpus": "2",
    },
}  # fmt: skip


def told(found: RowExplanation, folder: Path) -> float:
    """The figure that the printed command answers."""
    out = folder / "step.json"
    assert main([*shlex.split(found.command)[1:], "--json", "--output", str(out)]) == 0
    answer = json.loads(out.read_text(encoding="utf-8"))[found.figure]
    return float(answer["mid"] if isinstance(answer, dict) else answer)


def check_row(row: Row, folder: Path) -> None:
    """The printed command, run, times the parts is the row's number, which `score` says apart."""
    (answer,) = predict_rows([row], catalog=CATALOG)
    found = explain_row([row], 0, catalog=CATALOG)
    check_found(found, answer, folder)


def check_found(found: RowExplanation, answer: Answer, folder: Path) -> None:
    assert answer.step_mid_s is not None
    product = math.prod(part.factor for part in found.parts)
    assert math.isclose(told(found, folder) * product, answer.step_mid_s, rel_tol=1e-6), found
    assert math.isclose(found.row_s, answer.step_mid_s, rel_tol=1e-6)


def test_ranks_that_hold_parts_of_a_model_have_no_power_told() -> None:
    row = parse_row(ROWS["stages and tensor ranks by a recipe"])
    (answer,) = predict_rows([row], catalog=CATALOG)
    assert answer.step_mid_s is not None
    assert answer.power_w is None
    assert answer.roofline_s is None


@pytest.mark.parametrize("cells", ROWS.values(), ids=list(ROWS))
def test_the_command_gives_the_rows_number(cells: dict[str, str], tmp_path: Path) -> None:
    check_row(parse_row(cells), tmp_path)


def test_what_a_harness_adds_is_told_apart() -> None:
    found = explain_row([parse_row(ROWS["inference, and what a harness adds"])], 0, catalog=CATALOG)
    parts = {part.name: part for part in found.parts}
    assert math.isclose(parts["time_factor of the row"].factor, 1.1)
    assert math.isclose(
        (parts["seconds that the row adds"].factor - 1.0) * (found.row_s - 0.032), 0.032
    )
    assert parts["seconds that the row adds"].value == "0.032 s a step"


def test_tables_of_a_device_and_a_limit_of_power_are_told_by_their_own_values() -> None:
    cells = ROWS["amp over NVLink"] | {"n_gpus": "1", "compiler_flags": "power_limit=250"}
    found = explain_row([parse_row(cells)], 0, catalog=CATALOG)
    parts = {part.name: part for part in found.parts}
    levels = as_published(builtin_calibration()).source_levels
    assert levels is not None
    level = math.exp(levels.device["A100 SXM4 40GB"]["torch/train"])
    assert parts["level of published tables"].value.endswith(f"{level:.6g} times as long there")
    assert 1.0 < parts["power limit"].factor < 1.6
    assert "250 W" in parts["power limit"].value
    mine = explain_row([parse_row(cells)], 0, catalog=CATALOG, calibration=builtin_calibration())
    assert "level of published tables" not in {part.name for part in mine.parts}


@pytest.mark.truth
@pytest.mark.skipif(not TRUTH.exists(), reason="no published measurements here")
def test_rows_of_all_sources_are_given_by_commands(tmp_path: Path) -> None:
    drawn = sample(rows_of_sets(TRUTH))
    text = drawn.astype(object).where(drawn.notna(), "")
    rows = [parse_row(completed(cells)) for cells in text.to_dict(orient="records")]
    answers, checked = predict_rows(rows, catalog=CATALOG), 0
    for row, answer in zip(rows, answers, strict=True):
        if answer.step_mid_s is not None and not row.scenario:
            check_found(explain_row([row], 0, catalog=CATALOG), answer, tmp_path)
            checked += 1
    assert checked > 200


def test_a_row_without_an_answer_says_why() -> None:
    row = parse_row({"model": "no such model", "task": "train", "gpu": "A100"})
    with pytest.raises(PacelineError, match="no known model"):
        explain_row([row], 0, catalog=CATALOG)


def test_a_row_takes_any_model_that_predict_takes() -> None:
    sizes = "transformer:layers=2,hidden=256,heads=4,vocab=1000"
    row = parse_row(
        {"model": sizes, "task": "train", "framework": "PyTorch", "precision": "bf16",
         "gpu": "A100", "batch_per_gpu": "2", "seq_len": "128"}
    )  # fmt: skip
    (answer,) = predict_rows([row], catalog=CATALOG)
    assert answer.entry == sizes
    assert answer.step_mid_s is not None


def test_ranks_of_a_stated_strategy_are_the_devices_of_its_row() -> None:
    stated = ROWS["a strategy stated exactly"]
    found = explain_row([parse_row(stated)], 0, catalog=CATALOG)
    assert "8xH100 SXM5 80GB@" in found.command
    (wrong,) = predict_rows([parse_row(stated | {"n_gpus": "4"})], catalog=CATALOG)
    assert "8 ranks" in wrong.reason
