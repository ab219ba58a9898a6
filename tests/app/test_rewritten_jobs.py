"""A job that is run another way: the same figures from every verb, and hints that can be typed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline import calibrate, deploy, plan, predict, scale, trace
from paceline.app.api.pages import ModelOptions, page_of
from paceline.app.main import main
from paceline.app.requests.scaling import Scaling
from paceline.errors import InvalidInputError
from paceline.units import format_bytes

DAY = "2026-11-20"
ADAPTERS = "lora_rank=8,frozen_weights=int4"


def planned(rewrite: str = ""):
    return plan(
        "gpt2", tokens="1B", device="a100", max_devices=1, as_of=DAY, compiler="eager",
        precision="bf16", rewrite=rewrite, pin="batch=4", global_batch=4,
    )  # fmt: skip


def test_adapters_have_the_same_pace_and_memory_in_a_plan_and_a_prediction() -> None:
    [cell] = predict("gpt2", device="a100", batch=(4,), precision="bf16", rewrite=ADAPTERS).cells
    choice = planned(ADAPTERS).choices[0]
    assert choice.samples_per_s.mid == pytest.approx(cell.samples_per_s.mid, rel=1e-6)
    assert choice.memory_bytes.high == pytest.approx(cell.memory_bytes.high, rel=1e-6)


def test_adapters_have_the_same_pace_when_scaled() -> None:
    asked = {"precision": "bf16", "rewrite": ADAPTERS}
    [cell] = predict("gpt2", device="a100", batch=(4,), **asked).cells
    found = scale("gpt2", device="a100", counts=(1,), batch=4, as_of=DAY, **asked)
    assert isinstance(found, Scaling)
    tokens_per_s = found.curve.points[0].items_per_s * 1024
    assert tokens_per_s == pytest.approx(cell.samples_per_s.mid, rel=1e-3)
    assert f"run with {ADAPTERS}" in found.assumptions


def test_a_plan_of_adapters_says_so_and_needs_less() -> None:
    with_adapters, whole = planned(ADAPTERS), planned()
    assert f"run with {ADAPTERS}" in with_adapters.assumptions
    assert with_adapters.goal["rewrite"] == ADAPTERS
    assert with_adapters.choices[0].memory_bytes.mid < whole.choices[0].memory_bytes.mid


def test_a_launch_file_tells_the_script_how_it_was_planned() -> None:
    def launched(rewrite: str) -> str:
        return deploy(planned(rewrite), "slurm", command="python train.py").files[0].text

    assert f"export PACELINE_REWRITE={ADAPTERS}\n" in launched(ADAPTERS)
    assert "PACELINE_REWRITE" not in launched("")


@pytest.mark.parametrize("verb", [plan, scale])
@pytest.mark.parametrize(
    "rewrite",
    ["checkpointing=full", "precision=fp16", "compiler=compiled", "offload=optimizer", "lora_rank"],
)
def test_what_is_chosen_elsewhere_is_refused_with_the_way_to_it(verb, rewrite: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        verb("gpt2", device="a100", rewrite=rewrite)
    assert rewrite.partition("=")[0] in str(raised.value)
    assert raised.value.hint


def test_a_remedy_keeps_what_was_already_typed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "gpt2-xl", "--device", "GTX 1660", "--batch", "1"]
    assert main([*words, "--rewrite", "lora_rank=4"]) == 3
    out = " ".join(capsys.readouterr().out.split())
    remedy = re.search(r"batch 1 fits with (--rewrite lora_rank=4.*?): ", out)
    assert remedy is not None
    assert main([*words, *remedy[1].split()]) == 0
    assert "OOM" not in capsys.readouterr().out


def test_measurements_correct_a_curve_as_they_correct_a_prediction(tmp_path: Path) -> None:
    rows, kept = tmp_path / "rows.csv", tmp_path / "mine.json"
    head = "model,task,framework,precision,gpu,n_gpus,batch_per_gpu,step_time_ms"
    seen = ("resnet50,train,PyTorch 2.4.0,fp16,A100-SXM4-80GB,1,64,300",)
    rows.write_text("\n".join((head, *seen)), encoding="utf-8")
    calibrate(rows, kept)

    def items_per_s(**how: Path) -> tuple[float, float]:
        [cell] = predict(
            "resnet50", device="A100 SXM4 80GB", batch=(64,), precision="fp16", **how
        ).cells
        curve = scale(
            "resnet50", device="A100 SXM4 80GB", counts=(1,), batch=64, precision="fp16",
            as_of=DAY, strategy="dp1", **how,
        )  # fmt: skip
        assert isinstance(curve, Scaling)
        return cell.samples_per_s.mid, curve.curve.points[0].items_per_s

    predicted, scaled = items_per_s(calibration=kept)
    assert predicted < 0.9 * items_per_s()[0]
    assert scaled == pytest.approx(predicted, rel=0.01)


def test_a_page_shows_the_job_as_it_is_run(tmp_path: Path) -> None:
    asked = {"device": "a100", "precision": "bf16", "rewrite": ADAPTERS}
    traced = trace("gpt2", batch=4, **asked)
    page = page_of("gpt2", ModelOptions(batches=(4,), **asked))
    assert ADAPTERS in page.title
    assert (format_bytes(traced.passes[0].moved_bytes), "moved through device memory") in page.tiles
    grid = predict("gpt2", batch=(4, 8), **asked)
    both = page_of("gpt2", ModelOptions(batches=(4, 8), **asked))
    assert set(grid.assumptions) <= set(both.sources)
    missing = tmp_path / "none.json"
    for batches in ((4,), (4, 8)):
        with pytest.raises(InvalidInputError, match=r"none\.json"):
            page_of("gpt2", ModelOptions(batches=batches, calibration=missing, **asked))
