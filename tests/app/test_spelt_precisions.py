"""Precisions as people spell them mean what we call them, in every verb."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from refusals import Outcome

Run = Callable[..., Outcome]


@pytest.mark.parametrize(
    ("verb", "others"),
    [
        (("predict", "resnet50", "--device", "t4", "--batch", "8"), ("fp16", "float16", "HALF")),
        (("predict", "llama-3-8b", "--task", "infer", "--device", "t4"), ("int4", "awq", "GPTQ")),
        (("predict", "llama-3-8b", "--task", "infer", "--device", "t4"), ("Q4_K_M", "q4_0")),
        (("scale", "gpt2", "--device", "a100", "--counts", "2"), ("bf16", "bfloat16")),
        (("plan", "mnist-cnn", "--device", "t4"), ("fp32", "float32")),
    ],
)
def test_another_spelling_gets_the_same_answer(
    run: Run, verb: tuple[str, ...], others: tuple[str, ...]
) -> None:
    answers = [run(*verb, "--precision", name, "--json") for name in others]
    assert all(one.status == answers[0].status != 2 for one in answers)
    first, *rest = (json.loads(one.out) for one in answers)
    assert all(one == first for one in rest)


def test_a_name_that_is_none_is_refused(run: Run) -> None:
    run("plan", "mnist-cnn", "--precision", "float12").assert_helpful()


@pytest.mark.parametrize(("model", "board"), [
    ("resnet50", "jetson agx orin"), ("mobilenet_v2", "jetson xavier nx"),
])  # fmt: skip
def test_convolutions_in_8_bits_run_on_boards_by_what_multiplies_them(
    run: Run, model: str, board: str
) -> None:
    """Where PyTorch compiles nothing, and its eager kernels have no products in 8 bits."""
    call = ("predict", model, "--task", "infer", "--device", board, "--batch", "1", "--json")
    plain = json.loads(run(*call, "--precision", "int8").out)["cells"][0]
    named = run(*call, "--precision", "int8", "--framework", "tensorrt")
    assert plain == json.loads(named.out)["cells"][0]
    half = json.loads(run(*call, "--precision", "fp16").out)["cells"][0]
    assert plain["step_s"]["mid"] < half["step_s"]["mid"]
