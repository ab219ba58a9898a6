"""An option of the workload that would change nothing is refused, with what can be given."""

import pytest

from paceline.app.api.planning import plan, predict
from paceline.errors import InvalidInputError
from paceline.scoring.readings import read_job
from paceline.scoring.rows import parse_row


@pytest.mark.parametrize(
    ("model", "options", "hint"),
    [
        ("gpt2", {"task": "infer", "seq": 256}, "--prompt-tokens 256"),
        ("gpt2", {"task": "infer", "optimizer": "sgd"}, "leave --optimizer out"),
        ("gpt2", {"task": "train", "prompt_tokens": 99}, "leave it out"),
        ("gpt2", {"image_size": 64}, "leave --image-size out"),
        ("resnet50", {"task": "infer", "output_tokens": 99}, "leave it out"),
        ("resnet50", {"seq": 64}, "leave --seq out"),
        ("ncf", {"image_size": 64}, "leave --image-size out"),
    ],
)
def test_an_option_without_effect_is_refused(model, options, hint) -> None:
    with pytest.raises(InvalidInputError) as refused:
        predict(model, device="a100", batch=(8,), **options)
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("model", "task"),
    [("Mask R-CNN", "train"), ("MaskRCNN", "infer"), ("unet_3d_medical", "infer")],
)
def test_a_row_states_no_square_for_pictures_that_are_none(model: str, task: str) -> None:
    cells = {"gpu": "A100", "framework": "PyTorch", "precision": "fp32", "batch_per_gpu": "4"}
    row = parse_row({**cells, "model": model, "task": task, "img_size": "224", "unit": "img/s"})
    assert read_job(row).image_size is None


@pytest.mark.parametrize(
    ("model", "options", "task"),
    [
        ("llama-3-8b", {"framework": "vllm"}, "infer"),
        ("resnet50", {"framework": "tensorrt"}, "infer"),
        ("llama-3-8b", {"precision": "int4"}, "infer"),
        ("llama-3-8b", {"precision": "Q4_K_M"}, "infer"),
        ("llama-3-8b", {"prompt_tokens": 99}, "infer"),
        ("resnet50", {"framework": "torch:2.4", "precision": "fp8"}, "train"),
        ("gpt2", {"framework": "deepspeed"}, "train"),
        ("resnet50", {}, "train"),
        ("llama-3-8b", {"precision": "fp8", "checkpointing": "block"}, "train"),
        ("llama-3-8b", {"precision": "fp8", "rewrite": "lora_rank=8"}, "train"),
    ],
)
def test_a_question_that_only_one_task_has_is_of_that_task(model, options, task) -> None:
    grid = predict(model, device="h100", batch=[1], devices=[1], **options)
    assert grid.task == task


def test_a_precision_that_nothing_is_trained_in_is_refused_of_a_training() -> None:
    with pytest.raises(InvalidInputError, match="nothing is trained in `int4`"):
        plan("llama-3-8b", precision="int4", epochs=3)


def test_adapters_in_four_bits_lead_to_a_base_in_four_bits() -> None:
    with pytest.raises(InvalidInputError, match="nothing is trained in `int4`") as refused:
        predict("llama-3-8b", device="rtx3060", precision="nf4", rewrite="lora_rank=8")
    assert "frozen_weights=nf4" in refused.value.hint


def test_a_training_is_told_that_an_engine_only_answers() -> None:
    with pytest.raises(InvalidInputError, match="vLLM answers requests") as refused:
        predict("llama-3-8b", device="a100", framework="vllm", rewrite="lora_rank=8")
    assert "--adapters" in refused.value.hint
