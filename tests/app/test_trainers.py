"""`--framework` with the name of a trainer: its defaults, said among the assumptions."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from refusals import Outcome

Run = Callable[..., Outcome]
WORDS = ("predict", "gpt2", "--device", "h100", "--framework")


def answer(run: Run, *words: str) -> str:
    batch = () if "--batch" in words else ("--batch", "8")
    done = run(*WORDS, *words, *batch)
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


def test_a_trainer_whose_checkpoints_wait_on_the_host_needs_less(run: Run) -> None:
    """What enters each of twelve blocks of 768 channels, in 16 bits, and nothing else is saved."""

    def needed_gb(*words: str) -> float:
        text = " ".join(answer(run, "unsloth", "--batch", "256", *words).split())
        return float(re.search(r"memory: ([\d.]+) GB in the median", text)[1])  # type: ignore[index]

    saved_gb = needed_gb("--rewrite", "checkpointing=block") - needed_gb()
    assert saved_gb == pytest.approx(12 * 256 * 1024 * 768 * 2 / 1e9, rel=0.15)


@pytest.mark.parametrize("words", [("nonsense",), ("trl", "--task", "infer")])
def test_a_name_that_is_none_or_does_not_serve_is_refused(run: Run, words: tuple[str, ...]) -> None:
    run(*WORDS, *words, "--batch", "8").assert_helpful()


SHARDED = (
    "predict", "llama-3-8b", "--device", "a100", "--devices", "4", "--batch", "1", "--seq", "512",
    "--rewrite", "lora_rank=8", "--sharding", "zero3", "--framework",
)  # fmt: skip
HOOKS = "hooks of each sharded block take the host's time"


@pytest.mark.parametrize(
    ("framework", "has_hooks"), [("trl", True), ("litgpt", True), ("torchtune", False)]
)
def test_software_that_shards_by_hooks_says_what_they_take(
    run: Run, framework: str, has_hooks: bool
) -> None:
    """As the rows of these frameworks are scored."""
    done = run(*SHARDED, framework)
    assert (HOOKS in " ".join(done.out.split())) == has_hooks, done.out


def test_ranks_that_split_nothing_have_no_such_hooks(run: Run) -> None:
    assert HOOKS not in " ".join(answer(run, "trl", "--devices", "4").split())


def test_a_cluster_runs_as_its_software_does(run: Run) -> None:
    words = ("scale", "llama-3-8b", "--device", "h100", "--counts", "16", "--framework")
    said = " ".join(run(*words, "megatron").out.split())
    assert "updated weights are gathered behind the next forward pass" in said
    assert "gathered behind" not in " ".join(run(*words, "torch").out.split())


def test_remedies_count_from_what_the_trainer_does(run: Run) -> None:
    """What a remedy is told against is what the prediction beside it needs."""
    words = ("predict", "gpt2", "--device", "h100", "--batch", "512", "--framework", "trl")
    text = " ".join(run(*words, "--rewrite", "lora_rank=8").out.split())
    needed, told = (
        re.search(pattern, text)[1]  # type: ignore[index]
        for pattern in (r"\((\d+ GB) at a chance of 90 %\)", r"of (\d+ GB) at batch 512, ")
    )
    assert told == needed


def test_a_plan_says_what_its_software_does(run: Run) -> None:
    words = ("plan", "llama-3-8b", "--tokens", "1B", "--device", "h100", "--cloud", "lambda")
    words = (*words, "--framework")
    said = " ".join(run(*words, "megatron").out.split())
    assert "as megatron does: " in said
    assert "gathered behind the next forward pass" in said
    assert "as jax does: " not in " ".join(run(*words, "jax").out.split())
