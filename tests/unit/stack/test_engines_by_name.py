"""Engines and runtimes by name: a profile, the nearest one, or a refusal."""

from __future__ import annotations

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.model.reading.load import load_workload
from paceline.planning.forecast.grid import predict_grid
from paceline.planning.forecast.grid_jobs import GridAxes
from paceline.planning.goal.goal import Goal, Work
from paceline.shipped import shipped_rows
from paceline.stack.engines import engines, find_engine

CATALOG = load_catalog()


def grid(model, device, **goal):
    workload = load_workload(model, task="infer")
    axes = GridAxes(devices=(find_device(CATALOG, device),))
    return predict_grid(workload, Goal(**goal), Work(), CATALOG, axes)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("TensorRT", "tensorrt"), ("TensorRT-LLM", "trtllm"), ("TensorRT 10.3", "tensorrt"),
        ("onnx runtime", "onnxruntime"), ("faster-whisper", "ctranslate2"), ("TGI", "tgi"),
        ("llama.cpp", "llamacpp"), ("Apache TVM", "tvm"), ("LMDeploy", "lmdeploy"),
        ("OpenVINO", "openvino"), ("Core ML", "coreml"), ("ncnn", "ncnn"), ("ExLlamaV2", "exllama"),
    ],
)  # fmt: skip
def test_a_name_is_read_however_it_is_spelled(written, name):
    assert find_engine(written).name == name


@pytest.mark.parametrize(
    ("written", "nearest", "model", "device"),
    [
        ("aphrodite", "vllm", "qwen2.5-7b", "RTX 3090"),
        ("Ollama", "llamacpp", "llama-3.2-3b", "M2 Ultra"),
        ("MNN", "onnxruntime", "vgg16", "Core i7-8700"),
        ("automatic1111", "torch", "sd15-unet", "a100"),
    ],
)
def test_the_nearest_answers_for_a_name_without_a_profile_and_says_so(
    written, nearest, model, device
):
    typed, known = grid(model, device, framework=written), grid(model, device, framework=nearest)
    assert typed.cells == known.cells
    words = "is predicted on" if find_engine(written).runs_on else "has no profile of its own"
    assert any(f"{written} {words}" in one for one in typed.assumptions)
    assert not any("no profile" in one for one in known.assumptions)


def test_what_runs_on_a_framework_is_said_with_it():
    runs = [find_engine(name) for name in ("keras", "Ollama", "diffusers", "mxnet")]
    assert [(one.stands_for, one.title, one.runs_on) for one in runs] == [
        ("keras", "TensorFlow", True), ("Ollama", "llama.cpp", True),
        ("diffusers", "PyTorch", True), ("mxnet", "TensorFlow", False),
    ]  # fmt: skip


def test_a_name_like_no_software_is_refused():
    with pytest.raises(UnknownNameError, match="turbollm"):
        find_engine("turbollm")


def test_every_family_names_a_profile_and_no_profile_is_hidden_by_one():
    for row in shipped_rows("stack", "engine_families.csv"):
        assert row["nearest"] in engines()
    for name, profile in engines().items():
        assert find_engine(name).title == profile.title


@pytest.mark.parametrize("model", ["vgg16", "bert-large"])
@pytest.mark.parametrize(
    ("framework", "compiler"), [("tensorrt", "tensorrt"), ("onnxruntime", "compiled")]
)
def test_own_kernels_are_said_to_stand_for_pytorchs(model, framework, compiler):
    found = grid(model, "a100", framework=framework)
    assert {cell.compiler for cell in found.cells} == {compiler}
    assert any(f"{find_engine(framework).title} has kernels of its own" in one
               for one in found.assumptions)  # fmt: skip


def test_a_runtime_that_runs_exported_graphs_writes_tokens_no_faster_than_their_ops():
    """Each op of the export is launched, as eager PyTorch does; encoders are fused."""
    exported = grid("gpt2", "a100", framework="onnxruntime")
    eager = grid("gpt2", "a100", framework="torch", compilers=("eager",))
    assert [one.compiler for one in exported.cells] == ["eager"]
    assert exported.cells[0].latency_s == eager.cells[0].latency_s
    assert any("op by op" in one for one in exported.assumptions)


@pytest.mark.parametrize(("framework", "device"), [("tensorrt", "mi250x"), ("openvino", "t4")])
def test_a_runtime_without_kernels_for_a_device_gives_no_figure(framework, device):
    found = grid("vgg16", device, framework=framework)
    assert not found.cells
    assert "no kernels" in found.unanswered[0].reason


def test_a_runtime_trains_nothing():
    workload = load_workload("vgg16", task="train")
    axes = GridAxes(devices=(find_device(CATALOG, "a100"),))
    with pytest.raises(InvalidInputError, match="runs trained models"):
        predict_grid(workload, Goal(framework="onnxruntime"), Work(), CATALOG, axes)


def test_how_a_runtime_launches_is_its_own():
    with pytest.raises(InvalidInputError, match="launches its own graphs"):
        grid("vgg16", "a100", framework="tensorrt", compilers=("eager",))


@pytest.mark.parametrize("framework", ["tgi", "lmdeploy", "llamacpp"])
def test_engines_of_other_makers_serve_language_models(framework):
    found = grid("gpt2-xl", "a100", framework=framework)
    assert found.cells[0].status == "fits"
    assert any("served by" in one for one in found.assumptions)


@pytest.mark.parametrize("engine", ["sglang", "trtllm"])
def test_an_engine_serves_on_no_generation_that_its_kernels_left(engine):
    known = find_engine(engine)
    served = [
        known.serves_on(find_device(CATALOG, name), "cuda")
        for name in ("Tesla V100 SXM2 16GB", "Tesla T4", "A100 SXM4 80GB", "L40S")
    ]
    assert served == [False, False, True, True]
