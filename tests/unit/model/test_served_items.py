"""Adapters and guesses as they are typed, and the graph of a step that checks several tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.engine_features import (
    Adapters,
    Speculation,
    read_adapters,
    read_speculation,
)
from paceline.model.graph.graph import Owner, monomials
from paceline.model.graph.rows import with_queries
from paceline.model.items import StatedItem, as_items
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload


def _guessing(draft: str, tokens: int = 3) -> StatedItem:
    return StatedItem(speculation=Speculation(draft=draft, tokens=tokens, acceptance=0.7))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("count=0,rank=16", "count=0 cannot be"),
        ("count=4,rank=0", "rank=0 cannot be"),
        ("count=4,rank=100000", "cannot be"),
        ("count=4", "cannot be read"),
        ("count=4,rank=8,loaded=5", "holds 5 of 4 at once"),
        ("32", "cannot be read"),
        ("count=4,count=5,rank=8", "given twice"),
    ],
)
def test_adapters_that_cannot_be_are_one_message(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_adapters(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("draft=ngram,tokens=0,acceptance=0.5", "tokens=0 cannot be"),
        ("draft=ngram,tokens=4,acceptance=1.0", "acceptance of 1 cannot be"),
        ("draft=ngram,tokens=4,acceptance=-0.1", "acceptance of -0.1 cannot be"),
        ("draft=ngram,tokens=4,acceptance=nan", "cannot be"),
        ("draft=ngram,tokens=4", "cannot be read"),
        ("ngram", "cannot be read"),
    ],
)
def test_guesses_that_cannot_be_are_one_message(text: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        read_speculation(text)


@pytest.mark.parametrize("share", [-0.1, 1.2, math.nan])
def test_a_share_of_a_prompt_is_between_nothing_and_all(share: float) -> None:
    with pytest.raises(InvalidInputError, match="cannot be found in a cache"):
        StatedItem(prefix_share=share)


def test_a_step_writes_the_guesses_up_to_the_first_wrong_one_and_a_token_of_its_own() -> None:
    """Simulated: k guesses, each right at a chance of a; then the sum of Leviathan et al."""
    speculation = Speculation(draft="ngram", tokens=4, acceptance=0.6)
    right = np.random.default_rng(0).random((200_000, 4)) < 0.6
    written = 1.0 + np.cumprod(right, axis=1).sum(axis=1)
    assert speculation.tokens_per_step == pytest.approx(written.mean(), rel=5e-3)
    assert Speculation(draft="ngram", tokens=9, acceptance=0.0).tokens_per_step == 1.0


@pytest.mark.parametrize(
    "stated",
    [
        StatedItem(prefix_share=0.75, adapters=Adapters(count=32, rank=16, loaded=8)),
        _guessing("hf:llama-3.2-1b"),
    ],
)
def test_what_is_stated_is_read_as_it_is_written(stated: StatedItem) -> None:
    words = dict(word.partition("=")[::2] for word in str(stated).split())
    assert StatedItem.taken_from(words) == stated
    assert not words


@pytest.mark.parametrize("entry", ["llama-3-8b", "gpt-oss-20b"])
def test_checking_reads_caches_once_and_multiplies_for_each_token(entry: str) -> None:
    decode = next(p for p in load_workload(entry, task="infer").passes if p.name == "decode")
    one, four = decode.graph, with_queries(decode.graph, 4)
    at = monomials([2.0], [1000.0])[0]
    assert (four.ops.flop @ at).sum() == pytest.approx(4.0 * (one.ops.flop @ at).sum(), rel=0.02)
    is_old = (one.storages.owner == Owner.KV_CACHE) & (one.storages.birth < 0)
    np.testing.assert_array_equal(four.storages.elements[is_old], one.storages.elements[is_old])
    is_weight = one.storages.owner == Owner.PARAMETER
    np.testing.assert_array_equal(
        four.storages.elements[is_weight], one.storages.elements[is_weight]
    )
    assert with_queries(one, 1) is one


def test_absorbed_latents_are_looked_at_by_each_token_that_is_checked() -> None:
    """DeepSeek: all heads of all guesses read one latent of each token, once."""
    graph = next(p for p in load_workload("deepseek-v3", task="infer").passes if p.name == "decode")
    how = Configuration(precision="bf16", is_served=True, compiler="compiled")
    one, four = (lower(with_queries(graph.graph, count), how) for count in (1, 4))
    at = monomials([8.0], [4000.0])
    ratio = (at @ four.costs.flop.T).sum() / (at @ one.costs.flop.T).sum()
    assert ratio == pytest.approx(4.0, rel=0.02)
    moved = [float((one.costs.moved_bytes(at) * one.costs.count).sum()) for one in (one, four)]
    assert moved[0] < moved[1] < 4.0 * moved[0]


def test_one_more_block_guesses_with_its_own_weights_alone() -> None:
    workload = load_workload("llama-3-8b", task="infer")
    guessing = as_items(workload, _guessing("mtp"))
    names = [one.name for one in guessing.passes]
    assert names == ["prefill", "decode", "draft prefill", "draft decode"]
    how = Configuration(precision="bf16", is_served=True, compiler="compiled")
    lowered = lower(guessing.passes[-1].graph, how)
    block = 2.0 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336)
    assert lowered.parameter_bytes == pytest.approx(block, rel=0.01)


def test_who_guesses_is_a_smaller_model_that_writes() -> None:
    workload = load_workload("llama-3-8b", task="infer")
    for draft, message in (
        (None, "is not read here"),
        (load_workload("resnet50", task="infer"), "writes no text"),
        (workload, "is no smaller"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            as_items(workload, _guessing("other"), draft=draft)
    copies = as_items(workload, _guessing("ngram"))
    assert [one.name for one in copies.passes] == ["prefill", "decode"]


def _with_adapters(rank: int, count: int, name: str = "decode") -> LoweredPass:
    workload = load_workload("llama-3-8b", task="infer")
    graph = next(one.graph for one in workload.passes if one.name == name)
    how = Configuration(
        precision="bf16", is_served=True, compiler="compiled", lora_rank=rank, num_adapters=count
    )
    return lower(graph, how)


def test_adapters_take_the_memory_of_their_matrices() -> None:
    base, two, four = (_with_adapters(16, count) for count in (0, 2, 4))
    one = (four.parameter_bytes - two.parameter_bytes) / 2.0
    assert two.parameter_bytes - base.parameter_bytes == pytest.approx(2.0 * one)
    sides = (4096 + 6144) + (4096 + 4096) + (4096 + 28672) + (14336 + 4096)
    assert one == pytest.approx(32 * 16 * sides * 2.0)


def test_a_step_reads_the_adapters_that_its_requests_have() -> None:
    """Of 32 any as likely, B requests have 32 (1 - (31/32)^B) in the mean."""
    base, many = _with_adapters(16, 0), _with_adapters(16, 32)
    one = (many.parameter_bytes - base.parameter_bytes) / 32.0
    batches = np.array([1.0, 8.0, 64.0])
    at = monomials(batches, 100.0)
    moved = [(p.costs.moved_bytes(at) * p.costs.count).sum(axis=1) for p in (base, many)]
    reached = 32.0 * (1.0 - (31.0 / 32.0) ** batches)
    passed_on = (moved[1] - moved[0] - one * reached) / batches
    np.testing.assert_allclose(passed_on, passed_on[0], rtol=1e-6)
    outputs = 6144 + 4096 + 28672 + 4096
    inputs = 4096 + 4096 + 4096 + 14336
    assert passed_on[0] == pytest.approx(32 * 2.0 * (inputs + 2 * outputs + 2 * 4 * 16))


def test_a_prompt_has_one_adapter_and_its_products() -> None:
    base, many = (_with_adapters(16, count, "prefill") for count in (0, 32))
    at = monomials([1.0], [1000.0])
    flop = [float((at @ (p.costs.flop * p.costs.count[:, None]).T).sum()) for p in (base, many)]
    one = (many.parameter_bytes - base.parameter_bytes) / 32.0 / 2.0
    assert flop[1] - flop[0] == pytest.approx(2.0 * 1000.0 * one, rel=1e-6)
