"""Every verb asked about one device runs the job there in the same way."""

from __future__ import annotations

import pytest
from tests.sampled import sampled

import paceline
from paceline.app.main import main
from paceline.app.requests.scaling import Scaling


@pytest.mark.parametrize("device", ["k80", "v100", "h100"])
def test_trace_runs_a_model_as_predict_does(device: str) -> None:
    (cell,) = paceline.predict("resnet50", device=device, batch=(8,)).cells
    traced = paceline.trace("resnet50", device=device, batch=8)
    assert (traced.precision, traced.compiler) == (cell.precision, cell.compiler)


def test_scale_runs_a_model_as_predict_does() -> None:
    (cell,) = paceline.predict("resnet50", device="v100", batch=(8,)).cells
    found = paceline.scale("resnet50", device="v100", counts=(1,), batch=8, as_of="2026-11-20")
    assert isinstance(found, Scaling)
    assert f"{cell.precision} {cell.compiler}" in found.assumptions


@pytest.mark.parametrize("device", ["gtx 680", "quadro p400", "rx 5700 xt"])
def test_devices_that_no_release_runs_on_are_answered_by_every_verb(device: str) -> None:
    (cell,) = paceline.predict("mnist-cnn", device=device, batch=(8,), precision="fp32").cells
    traced = paceline.trace("mnist-cnn", device=device, batch=8, precision="fp32")
    found = paceline.scale(
        "mnist-cnn", device=device, counts=(1,), batch=8, precision="fp32", as_of="2026-11-20"
    )
    assert isinstance(found, Scaling)
    assert (traced.precision, traced.compiler) == (cell.precision, cell.compiler)
    is_built = "built from source" in traced.assumption
    assert any("built from source" in line for line in found.assumptions) == is_built
    assert is_built == (device != "quadro p400")


def test_a_transposed_convolution_is_called_so_where_it_is_no_gradient(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["trace", "unet", "--task", "infer", "--top", "50"]) == 0
    answer = capsys.readouterr().out
    assert "transposed conv" in answer
    assert "grad" not in answer
    assert main(["trace", "dcgan", "--top", "50"]) == 0
    answer = capsys.readouterr().out
    assert "transposed conv" in answer
    assert "conv input grad" in answer


def test_devices_that_share_a_batch_both_run_its_precision() -> None:
    with pytest.raises(paceline.InvalidInputError, match=r"V100 .* does not run bf16"):
        paceline.scale("gpt2", device="h100", counts=(8,), beside="v100:8", as_of="2026-11-20")


@pytest.mark.parametrize("setting", ["rewrite", "compare"])
def test_settings_of_a_trace_are_held_to_what_the_device_runs(setting: str) -> None:
    with pytest.raises(paceline.InvalidInputError, match="does not run bf16"):
        paceline.trace("mnist-cnn", device="k80", **{setting: "precision=bf16"})


def test_training_that_fits_nowhere_names_the_way_to_run_the_model() -> None:
    def remedies(task: str) -> str:
        grid = paceline.predict("llama-3-70b", device="h100", batch=(1,), task=task)
        return " ".join(grid.remedies)

    assert remedies("train").count("--task infer") == 1
    assert "--task" not in remedies("infer")


@pytest.mark.parametrize(
    ("model", "device"),
    sampled([("gpt2-xl", "RTX 3090"), ("bert-large", "GTX 1650")], "bert-large"),
)
def test_an_update_in_backward_is_a_remedy_where_gradients_are_what_is_too_much(
    model: str, device: str
) -> None:
    found = paceline.predict(model, device=device, batch=(1,), seq=128, checkpointing="block")
    assert "update=in-backward" in " ".join(found.remedies)


@pytest.mark.parametrize(
    ("model", "device"), [("mistral-7b", "RX 580"), ("qwen2.5-3b", "rx 5700 xt")]
)
def test_an_engine_of_its_own_kernels_needs_no_release_of_a_framework(
    model: str, device: str
) -> None:
    asked = {"task": "infer", "device": device, "batch": (1,), "precision": "int4"}
    found = paceline.predict(model, framework="llamacpp", **asked)
    assert not any("built from source" in line for line in found.assumptions)
