"""A job and a machine print to one line each, and are read back from it."""

from __future__ import annotations

from itertools import product

import pytest

from paceline.catalog.load import load_catalog
from paceline.errors import InvalidInputError, PacelineError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.workload import Workload
from paceline.model.reading.load import load_workload
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job, usual_habits
from paceline.simulation.machine import Machine

CONFIGURATIONS = (
    Configuration(),
    Configuration(precision="fp32", compiler="compiled"),
    Configuration(checkpointing="full", channels_last=False, platform="rocm"),
    Configuration(lora_rank=8, lora_modules=("*.q", "*.v"), frozen=("except:norm",)),
    Configuration(training_format="half-weights", is_served=True, accumulates=True),
)
STRATEGIES = (
    "dp1", "dp8/mb4+zero2", "pp2.dp2.tp2@interleaved2/mb8+zero1+sp", "dp2.fsdp8",
    "dp2.tp4/mb2+recompute-block;transformer.*=tp:replicate",
)  # fmt: skip
REST = (
    {},
    {"batch": 12, "seq": 512, "habits": ("tokens-once", "gathers-ahead")},
    {"batch": 2.5, "prompt_tokens": 7, "output_tokens": 3, "profile": "vllm"},
)


def load(name: str, task: str) -> Workload:
    return WORKLOADS[name, task]


WORKLOADS = {
    (name, task): load_workload(name, task=task)
    for name in ("mnist-cnn", "gpt2")
    for task in ("train", "infer")
}


@pytest.mark.parametrize("key", WORKLOADS)
def test_a_job_is_read_back_from_its_line(key: tuple[str, str]) -> None:
    lines = set()
    for how, strategy, rest in product(CONFIGURATIONS, STRATEGIES, REST):
        job = Job(
            workload=WORKLOADS[key], configuration=how, strategy=Strategy.parse(strategy), **rest
        )
        assert Job.parse(str(job), load) == job
        lines.add(str(job))
    assert len(lines) == len(CONFIGURATIONS) * len(STRATEGIES) * len(REST)


@pytest.mark.parametrize(
    "text",
    [
        "gpt2", "gpt2 dream bf16 eager dp1", "gpt2 train bf16 eager dp1 batch=0",
        "gpt2 train bf16 eager dp1 seq=many", "gpt2 train bf16 eager dp1 colour=red",
        "gpt2 train bf16 slow dp1", "gpt2 train bf16 eager d8", "gpt2 train bf16 eager 'dp1",
        "gpt2 train bf16 eager dp1 habits=bad", "gpt2 train bf16 eager dp1 batch=some",
    ],
)  # fmt: skip
def test_what_is_no_job_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(PacelineError) as error:
        Job.parse(text, load)
    assert error.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "1xTesla T4", "8xA100 SXM4 80GB@dgx-a100,-",
        "16xH100 SXM5 80GB/8@dgx-h100-nvls,dgx-h100-ib",
        "2xGeForce RTX 4090+2xGeForce RTX 3090@-,eth-10",
        "8xH100 SXM5 80GB@dgx-h100-nvls,-;host_link=pcie5-x16;host_memory_bytes=2000000000000B",
    ],
)  # fmt: skip
def test_a_machine_is_read_back_from_its_line(text: str) -> None:
    catalog = load_catalog()
    machine = Machine.parse(text, catalog)
    assert str(machine) == text
    assert Machine.parse(str(machine), catalog) == machine


@pytest.mark.parametrize("text", ["T4", "0xT4", "2xT4@no-such-link", "2xT4;colour=red"])
def test_what_is_no_machine_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        Machine.parse(text, load_catalog())
    assert error.value.hint


@pytest.mark.parametrize("device", ["H100 SXM5 80GB", "A100 SXM4 40GB"])
def test_software_whose_replicas_keep_experts_whole(device: str) -> None:
    """Experts are among the modules that FSDP ignores."""
    asked = {"model": "mixtral-8x7b", "device": device, "configuration": Configuration()}
    assert "kept-experts" in usual_habits("HF Trainer (fms-hf-tuning + fms-acceleration)", **asked)
    assert "kept-experts" not in usual_habits("transformers", **asked)


def test_scripts_on_deepspeed_make_the_model_whole_and_trainers_do_not() -> None:
    """Trainers of Hugging Face load under `zero.Init`."""
    asked = {"model": "llama-3-8b", "device": "A100 SXM4 80GB", "configuration": Configuration()}
    for framework, expected in (
        ("deepspeed", True), ("HF Trainer + DeepSpeed", False), ("trl, deepspeed", False),
        ("Lightning + DeepSpeed", True), ("transformers", False), ("megatron", False),
    ):  # fmt: skip
        found = usual_habits(framework, **asked)
        assert ("made-whole" in found) == expected, framework
        assert ("stage-3" in found) == ("deepspeed" in framework.lower()), framework
        assert "stage-3" not in found or "hooks" not in found


def test_megatron_launches_each_kernel_unless_a_recipe_replays_graphs() -> None:
    """Qwen3's recipes for GB200 of 26.06 record whole iterations; nothing else was asked before."""
    asked = {"model": "qwen3-30b-a3b", "configuration": Configuration(precision="MXFP8")}
    launched = {"launched", "looped-experts"}
    for framework, device, expected in (
        ("megatron", "H100 SXM5 80GB", launched),
        ("megatron-bridge 26.04", "GB200 (per GPU)", {"looped-experts"}),
        ("megatron-bridge 26.06", "GB200 (per GPU)", set()),
        ("transformers", "H100 SXM5 80GB", set()),
    ):
        found = usual_habits(framework, device=device, **asked)
        assert launched.intersection(found) == expected, (framework, device)
