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
