"""What a row does not say: when it ran, how its devices share a model, and for whom."""

import pytest

from paceline.catalog.load import load_catalog
from paceline.scoring.answers import Answer
from paceline.scoring.rows import parse_row
from paceline.scoring.score import predict_rows, read_cell

LLAMA = {
    "model": "Llama 3.1 8B", "task": "train", "framework": "PyTorch", "precision": "BF16",
    "gpu": "H100 SXM", "n_gpus": "1", "batch_per_gpu": "1", "seq_len": "2048",
}  # fmt: skip


def reading(**cells):
    found = read_cell(0, parse_row(LLAMA | cells), load_catalog())
    assert not isinstance(found, Answer), found.reason
    return found.reading


def attention(**cells):
    return reading(**cells).configuration.attention


def answer(**cells):
    (found,) = predict_rows([parse_row(LLAMA | cells)], catalog=load_catalog())
    return found


def test_a_run_is_no_older_than_its_model():
    """PyTorch without a release may be of any year; fused attention came in 2023."""
    assert attention() == "flash-2"
    assert attention(model="BERT-large") == "math"
    assert attention(framework="PyTorch 1.13") == "math"
    assert attention(framework="PyTorch 2.4") == "flash"


@pytest.mark.parametrize("gpu", ["L4", "MI325X", "RTX 5090"])
def test_a_run_is_no_older_than_its_device(gpu):
    assert attention(model="BERT-large", gpu=gpu) == "flash-2"
    assert attention(model="BERT-large", gpu=gpu, framework="PyTorch 1.13") == "math"


@pytest.mark.parametrize("gpu", ["Gaudi2", "TPU v5e", "Trainium1"])
def test_what_is_no_gpu_runs_whole_graphs(gpu):
    assert reading(gpu=gpu).configuration.compiler == "xla"


def test_training_of_a_denoiser_takes_one_step_of_it():
    steps = {
        task: reading(model="FLUX.1-dev", task=task, framework="diffusers").num_passes
        for task in ("train", "infer")
    }
    assert steps == {"train": 1.0, "infer": 28.0}


def test_devices_share_what_one_cannot_hold():
    """A published run had room; eight copies of 8 billion parameters in training have none."""
    silent, sharded, copies = (
        answer(n_gpus="8", batch_per_gpu="1", parallelism=said) for said in ("", "FSDP", "DDP")
    )
    assert silent.step_mid_s == pytest.approx(sharded.step_mid_s, rel=1e-6)
    assert silent.memory_mid_bytes == pytest.approx(sharded.memory_mid_bytes, rel=1e-6)
    assert copies.memory_mid_bytes > 2 * silent.memory_mid_bytes
    assert "one device has no room: taken as fsdp" in silent.note
    assert sharded.note == copies.note == ""


def test_devices_that_hold_a_model_each_share_nothing():
    silent, copies = (
        answer(model="BERT-base", n_gpus="8", parallelism=said, seq_len="128")
        for said in ("", "DDP")
    )
    assert silent.step_mid_s == pytest.approx(copies.step_mid_s, rel=1e-6)


def test_an_engine_shares_what_one_device_cannot_hold():
    served = {"task": "infer", "framework": "vLLM", "compiler_flags": "ISL=512; OSL=128"}
    silent, stated = (
        answer(model="Llama 3 70B", n_gpus="2", parallelism=said, **served) for said in ("", "tp=2")
    )
    assert silent.step_mid_s == pytest.approx(stated.step_mid_s, rel=1e-6)


def test_an_engine_whose_weights_have_room_is_not_shared():
    served = {"task": "infer", "framework": "vLLM", "precision": "fp8", "n_gpus": "4"}
    found = answer(model="Llama 3 70B", gpu="H200", batch_per_gpu="32", seq_len="", **served)
    assert found.fits == "yes"
    assert "no room" not in found.note


@pytest.mark.parametrize("unit", ["total tokens/sec", "tokens per second", "tok/s"])
def test_words_around_a_unit_do_not_count(unit):
    assert answer(unit=unit).throughput_mid == pytest.approx(answer().step_mid_s ** -1 * 2048)


@pytest.mark.parametrize(
    ("unit", "seconds"), [("sequences/min", 60), ("samples per hour", 3600), ("items/day", 86400)]
)
def test_a_rate_may_be_of_a_longer_time(unit, seconds):
    found = answer(unit=unit)
    assert found.throughput_mid == pytest.approx(seconds / found.step_mid_s)


@pytest.mark.parametrize(("name", "says"), [("ViT", "vit_l_16"), ("CenterNet", "choose")])
def test_a_name_of_several_says_which(name, says):
    reason = answer(model=name).reason
    assert "names no single model" in reason
    assert says in reason or "does not ship" in reason


@pytest.mark.parametrize("column", ["isl", "osl"])
def test_no_tokens_are_one(column):
    """Tables of local engines write 0 tokens read for what writes alone."""
    served = {
        "task": "infer", "framework": "llama.cpp", "scenario": "single stream", "isl": "512",
        "osl": "128", "concurrency": "1",
    }  # fmt: skip
    none, one = (answer(**(served | {column: said})) for said in ("0", "1"))
    assert none.throughput_mid is not None
    assert none == one


@pytest.mark.parametrize(
    ("gpu", "stated", "count"),
    [("TPU v3-8", "8", 4), ("TPU v3-8", "", 4), ("TPU v3", "8", 8), ("p4d.24xlarge", "", 8),
     ("DGX H100", "", 8), ("DGX H100", "2", 2), ("A100", "", 1)],
)  # fmt: skip
def test_a_name_may_count_its_devices(gpu, stated, count):
    found = read_cell(0, parse_row(LLAMA | {"gpu": gpu, "n_gpus": stated}), load_catalog())
    assert found.row.num_devices == count


@pytest.mark.parametrize(
    "cells",
    [{"model": "Llama-2-13B QLoRA", "precision": "nf4"},
     {"model": "Llama-2-13B", "precision": "4bit", "compiler_flags": "LoRA"}],
)  # fmt: skip
def test_adapters_stand_on_a_narrow_base(cells):
    """Nothing is trained in 4 bits; what a row of LoRA states is how its base is kept."""
    how = reading(**cells).configuration
    assert how.precision == "bf16"
    assert how.frozen_weights == "int4"
    assert how.lora_rank > 0


def test_full_training_in_4_bits_has_no_answer():
    assert "nothing is trained in `int4`" in answer(precision="nf4").reason
