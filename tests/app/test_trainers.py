"""`--framework` with the name of a trainer: its defaults, said among the assumptions."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from refusals import Outcome

Run = Callable[..., Outcome]
WORDS = ("predict", "gpt2", "--device", "h100", "--batch", "8", "--framework")


def answer(run: Run, *words: str) -> str:
    done = run(*WORDS, *words)
    assert done.status == 0, done.err
    return done.out


def test_a_trainer_brings_its_defaults_and_says_so(run: Run) -> None:
    text = answer(run, "torchtune")
    said = "as torchtune does unless --rewrite says otherwise: training_format=pure, loss=chunked"
    assert said in " ".join(text.split())


def test_what_is_stated_wins_over_a_trainers_defaults(run: Run) -> None:
    assert answer(run, "trl") != answer(run, "trl", "--rewrite", "loss=fused")


def test_adapters_of_a_trainer_read_a_copy(run: Run) -> None:
    assert "adapter_inputs=dropped" in answer(run, "trl", "--rewrite", "lora_rank=8")
    assert "adapter_inputs" not in answer(run, "trl")


@pytest.mark.parametrize("words", [("nonsense",), ("trl", "--task", "infer")])
def test_a_name_that_is_none_or_does_not_serve_is_refused(run: Run, words: tuple[str, ...]) -> None:
    run(*WORDS, *words).assert_helpful()


def test_remedies_count_from_what_the_trainer_does(run: Run) -> None:
    """Live bytes that a remedy is told against are those of the prediction beside it."""
    words = ("predict", "gpt2", "--device", "h100", "--batch", "512", "--framework", "trl")
    text = " ".join(run(*words, "--rewrite", "lora_rank=8").out.split())
    needed, live = (
        float(re.search(pattern, text)[1])  # type: ignore[index]
        for pattern in (r"needs (\d+) GB", r"of (\d+) GB live")
    )
    assert 0.8 * needed < live < needed
