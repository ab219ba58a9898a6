"""Answers that an expert would sign, on models and devices that the panel does not name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import Outcome
from tests.sampled import sampled

from paceline.app.main import main

_CELL = dict[str, object]


def _cells(capsys: pytest.CaptureFixture[str], *words: str) -> list[_CELL]:
    assert main(["predict", *words, "--json"]) == 0
    found: list[_CELL] = json.loads(capsys.readouterr().out)["cells"]
    return found


@pytest.mark.parametrize("device", ["Apple M3 Max", "Tesla P100 PCIe 16GB", "EPYC 9654"])
def test_weights_in_4_bits_need_no_units_for_them(
    device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ("gpt2-xl", "--task", "infer", "--device", device, "--batch", "1", "--precision")
    wide, narrow = (_cells(capsys, *how, name)[0] for name in ("fp32", "int4"))
    assert narrow["latency_s"]["mid"] < wide["latency_s"]["mid"]
    assert narrow["memory_bytes"]["mid"] < wide["memory_bytes"]["mid"]


def test_ranks_share_layers_where_one_would_have_no_room_left_for_a_cache(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """72.7 GB of weights in 8 bits fill an 80 GB device beyond what engines take of it."""
    how = ("llama-3-70b", "--task", "infer", "--precision", "fp8", "--batch", "4", "--device")
    one, two = _cells(capsys, *how, "H100 SXM5 80GB", "--devices", "1,2")
    (roomy,) = _cells(capsys, *how, "H200 SXM", "--devices", "2")
    assert [one["tensor_degree"], two["tensor_degree"], roomy["tensor_degree"]] == [1, 2, 1]
    assert two["latency_s"]["mid"] < 0.7 * one["latency_s"]["mid"]


@pytest.mark.parametrize(("model", "device"), [("qwen3-14b", "A100 SXM4 80GB"), ("gpt2", "L4")])
def test_all_devices_write_one_request_where_that_is_sooner(
    model: str, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fabric halves the time of a token of 28 GB; small kernels over PCIe do not gain."""
    how = (model, "--task", "infer", "--device", device, "--batch", "1,16", "--devices", "1,2")
    one, many, both, of_many = _cells(capsys, *how)
    assert one["tensor_degree"] == many["tensor_degree"] == of_many["tensor_degree"] == 1
    assert both["latency_s"]["mid"] <= one["latency_s"]["mid"] * 1.001
    assert (both["latency_s"]["mid"] < 0.65 * one["latency_s"]["mid"]) == (model == "qwen3-14b")


@pytest.mark.parametrize("model", sampled(["gemma-3n-e2b", "gemma-3-1b"], "gemma-3-1b"))
def test_devices_that_cannot_share_every_pass_hold_copies(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    how = (model, "--task", "infer", "--device", "H100 NVL", "--devices", "1,8", "--batch", "1")
    one, many = _cells(capsys, *how)
    assert many["tensor_degree"] < 8
    assert many["latency_s"]["mid"] <= one["latency_s"]["mid"] * 1.001


@pytest.mark.parametrize("device", ["Gaudi 3", "Trainium1", "TPU v6e"])
@pytest.mark.parametrize("model", ["qwen3-4b", "mistral-7b"])
def test_the_loop_that_stands_for_an_engine_shares_layers_as_engines_do(
    model: str, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two Gaudi 2 take 0.81 to 0.84 of one at 7 and 8 B parameters (LLM-Inference-Bench 4211f5d).

    Three ports join them; a faster device gains less, and so does a smaller model.
    """
    how = (model, "--task", "infer", "--device", device, "--devices", "1,2", "--batch", "1")
    one, both = _cells(capsys, *how)
    plain = _cells(capsys, *how, "--framework", "torch")
    most = 1.0 if device == "Gaudi 3" else 0.75
    assert both["latency_s"]["mid"] < most * one["latency_s"]["mid"]
    assert [cell["tensor_degree"] for cell in (one, both, *plain)] == [1, 2, 1, 1]


@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("mobilenet_v3", ("--compiler", "compiled")),
        ("retinanet", ("--compiler", "compiled")),
        ("bert-base", ("--framework", "onnxruntime")),
        ("efficientnet_b0", ()),
    ],
)
def test_8_bits_are_of_products_where_people_mean_them(
    model: str, how: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    ask = (model, "--task", "infer", "--device", "L40S", "--batch", "16", *how, "--precision")
    meant, whole, half = (_cells(capsys, *ask, p)[0] for p in ("int8", "int8-full", "fp16"))
    assert meant["precision"] == "int8-full"
    assert meant["samples_per_s"] == whole["samples_per_s"]
    assert meant["samples_per_s"]["mid"] > half["samples_per_s"]["mid"]


@pytest.mark.parametrize(("model", "file_bytes"), [("llama-3.2-3b", 2.02e9), ("qwen3-8b", 5.03e9)])
def test_files_of_llamacpp_hold_the_head_in_few_bits(
    model: str, file_bytes: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sizes of Q4_K_M as Hugging Face lists them (recalled); a cache and a process beside."""
    how = (model, "--task", "infer", "--device", "M3 Max", "--batch", "1", "--precision", "int4")
    files, others = (
        _cells(capsys, *how, "--framework", name)[0]["memory_bytes"]["mid"]
        for name in ("llamacpp", "torch")
    )
    assert files < others
    assert 1.0 * file_bytes < files < 1.5 * file_bytes


def test_small_models_lie_in_16_bits_below_adapters(capsys: pytest.CaptureFixture[str]) -> None:
    """3.2 G frozen parameters are 6.4 GB, not 12.8 GB."""
    how = ("gpt2-xl", "--device", "L40S", "--batch", "1", "--seq", "256", "--rewrite")
    narrow, wide = (
        _cells(capsys, *how, f"lora_rank=8{more}")[0]["memory_bytes"]["mid"]
        for more in ("", ",training_format=autocast")
    )
    assert wide - narrow > 1.5e9 * 2 * 0.9


@pytest.mark.parametrize("framework", ["sglang", "ollama", "whisper.cpp", "mlx"])
@pytest.mark.parametrize("model", ["whisper-small", "t5-base"])
def test_engines_run_encoder_decoders_as_whole_batches(
    model: str, framework: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", model, "--task", "infer", "--device", "rtx 3090", "--batch", "1"]
    answers = []
    for more in (["--framework", framework], ["--compiler", "compiled"]):
        assert main([*words, *more, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    engine, loop = (answer["cells"][0]["step_s"]["mid"] for answer in answers)
    assert engine == pytest.approx(loop, rel=1e-6)
    assert any("as whole batches here" in line for line in answers[0]["assumptions"])


def test_a_load_says_itself_how_requests_come(capsys: pytest.CaptureFixture[str]) -> None:
    how = ["predict", "gpt2", "--task", "infer", "--device", "a10"]
    assert main([*how, "--rps", "2"]) == 0
    assert "at once" not in (told := capsys.readouterr().out)
    assert "Poisson" in told
    assert main(how) == 0
    assert "requests in flight come at once" in capsys.readouterr().out


def test_a_generation_that_nobody_makes_is_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stack", "check", "--gpu", "sm_890"]) == 2
    assert "no compute capability named `89.0`" in capsys.readouterr().err
    assert main(["stack", "check", "--gpu", "sm_75"]) == 0


def test_a_model_may_come_with_an_example_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pairs.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Pairs(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.rows = nn.Embedding(1000, 8)\n        self.head = nn.Linear(24, 3)\n"
        "    def forward(self, ids, extra):\n"
        "        return self.head(torch.cat([self.rows(ids).flatten(1), extra], 1))\n"
        "def make():\n"
        "    return Pairs(), (torch.zeros(4, 2, dtype=torch.long), torch.zeros(4, 8))\n"
    )
    monkeypatch.chdir(tmp_path)
    small, large = _cells(capsys, "pairs:make", "--device", "a10", "--batch", "8,800000")
    assert small["memory_bytes"]["mid"] < large["memory_bytes"]["mid"] < 2e9


@pytest.mark.parametrize(
    ("model", "device", "is_told"),
    [("qwen2.5-3b", "Apple M1", True), ("phi-2", "H100 SXM5 80GB", False)],
)
def test_a_rate_that_counts_reading_prompts_says_so(
    model: str, device: str, is_told: bool, run: Callable[..., Outcome]
) -> None:
    out = run("predict", model, "--task", "infer", "--device", device, "--batch", "1").out
    assert ("prompts included" in out) == is_told


@pytest.mark.parametrize("model", ["whisper-base", "distil-whisper-large-v3"])
def test_what_listens_hears_seconds_of_sound(model: str, run: Callable[..., Outcome]) -> None:
    head = run("predict", model, "--task", "infer", "--device", "l4", "--batch", "1").out
    assert "hears" in head.splitlines()[0]


@pytest.mark.parametrize(
    ("framework", "device", "title"),
    [("openvino", "i7-12700K", "OpenVINO"), ("ncnn", "Raspberry Pi 5", "ncnn")],
)
def test_software_with_kernels_of_its_own_is_named_beside_its_figures(
    framework: str, device: str, title: str, run: Callable[..., Outcome]
) -> None:
    asked = ("predict", "resnet18", "--task", "infer", "--device", device, "--batch", "1")
    printed = run(*asked, "--framework", framework).out
    assert f" {title}\n" in printed
    assert "tensorrt" not in printed
