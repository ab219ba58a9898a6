"""What LitGPT's scripts and bitsandbytes do without a column saying so."""

from __future__ import annotations

import pytest

from paceline.catalog.load import load_catalog
from paceline.scoring.readings import read_job
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows

ROW = {
    "model": "Llama 2 7B", "task": "train", "framework": "LitGPT (PyTorch 2.1)",
    "precision": "bf16-true", "compiler_flags": "LoRA; quant None", "gpu": "A100-SXM4-40GB",
    "n_gpus": "1", "batch_per_gpu": "1",
}  # fmt: skip


def configuration(**changes: str):
    return read_job(parse_row(ROW | changes)).configuration


def test_blocks_are_recomputed_on_several_devices_only() -> None:
    assert configuration().checkpointing == "none"
    assert configuration(n_gpus="2", parallelism="FSDP").checkpointing == "block"
    assert configuration(n_gpus="2", parallelism="DDP").checkpointing == "none"


def test_one_token_is_multiplied_with_4_bit_weights_without_a_copy_of_them() -> None:
    served = {"task": "infer", "compiler_flags": "generate; quant bnb.nf4"}
    assert configuration(**served).widens_in_kernels
    assert not configuration(**served, batch_per_gpu="2").widens_in_kernels
    assert not configuration(task="infer", compiler_flags="generate").widens_in_kernels
    assert not configuration(compiler_flags="LoRA; quant bnb.nf4").widens_in_kernels


def test_adapters_are_those_of_its_own_code() -> None:
    for flags, method in (("LoRA", "lora"), ("Adapter", "adapter"), ("Adapter v2", "adapter-v2")):
        job = read_job(parse_row(ROW | {"compiler_flags": f"{flags}; quant bnb.nf4"}))
        assert job.entry == f"published_litgpt:llama-2-7b-{method}"
        assert job.configuration.lora_rank == 0
        assert job.configuration.frozen_weights == "int4"


def test_a_model_that_is_not_written_down_takes_adapters_as_rewrites() -> None:
    job = read_job(parse_row(ROW | {"model": "CodeLlama 34B"}))
    assert job.entry.startswith("transformer:")
    assert job.configuration.lora_rank == 8


def step_s(**changes: str) -> float:
    shared = {"n_gpus": "2", "parallelism": "FSDP", "interconnect": "NVLink/NVSwitch"}
    (answer,) = predict_rows([parse_row(ROW | shared | changes)], catalog=load_catalog())
    assert answer.step_mid_s is not None
    return answer.step_mid_s


def test_hooks_of_each_sharded_block_keep_the_host_busy() -> None:
    """4.7 ms for each of 32 and of 40 blocks, and for each microbatch."""
    whole_s = step_s(parallelism="DDP")
    assert step_s() - whole_s > 32 * 4.7e-3
    assert step_s(grad_accum="4") == pytest.approx(4 * step_s(), rel=0.02)
    assert step_s(model="Llama 2 13B") / step_s() == pytest.approx(40 / 32, rel=0.1)
    assert step_s(framework="PyTorch 2.1") < step_s()


def test_adapters_that_are_wrapped_one_by_one_keep_it_busy_too() -> None:
    """PEFT wraps each tensor of an adapter: two of 32 query and 32 value layers, 4.7 ms each."""
    tuned = {
        "framework": "transformers 4.52, peft 0.15", "precision": "bf16", "compiler_flags": "",
        "rewrite": "training_format=pure,checkpointing=block,lora_rank=8,"
        "lora_modules=*.q|*.v,adapter_inputs=dropped", "seq_len": "128",
    }  # fmt: skip
    fused = tuned | {"rewrite": tuned["rewrite"].replace("dropped", "shared")}
    assert step_s(**tuned) - step_s(**fused) == pytest.approx(2 * 2 * 32 * 4.7e-3, rel=0.1)
