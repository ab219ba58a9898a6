"""Layers that look back on a window: what they keep and read, by hand and by laws."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph, OpKind, Owner, monomials
from paceline.model.graph.rows import at_length, holds_from, in_window
from paceline.model.graph.workload import Workload
from paceline.model.names.attention_windows import window_in, window_of
from paceline.model.reading.load import load_workload
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate
from paceline.stack.engines import find_engine

#: Model, layers with a window and without, the window, numbers of a token's keys and values each.
CACHES = [
    ("hf:gemma-3-27b", 52, 10, 1024, 16 * 128),
    ("hf:gpt-oss-20b", 12, 12, 128, 8 * 64),
    ("hf:llama-4-scout", 36, 12, 8192, 8 * 128),
]
SMALL, WINDOW, ROLLING, NUMBERS = "hf:gpt-oss-20b", 128, 12, 8 * 64
BATCH, BF16_BYTES = 256, 2


@cache
def workload_of(model: str) -> Workload:
    return load_workload(model, task="infer")


def graph_of(model: str, name: str) -> Graph:
    return next(one.graph for one in workload_of(model).passes if one.name == name)


def cache_elements(graph: Graph, length: float) -> float:
    """Numbers that one sequence more keeps."""
    of_one = np.diff(monomials([1, 2], length), axis=0)[0]
    held = graph.storages.elements[graph.storages.owner == Owner.KV_CACHE] @ of_one
    return float(held.sum())


def answered(
    workload: Workload, lengths: list[int], *, profile: str = "vllm", batch: int = BATCH
) -> Steps:
    machine = Machine.of(find_device(load_catalog(), "H200 SXM"), 1)
    jobs = [
        Job(
            workload=workload, configuration=Configuration(precision="bf16", is_served=True),
            strategy=Strategy.from_degrees(), batch=batch, prompt_tokens=length, output_tokens=2,
            profile=profile,
        )
        for length in lengths
    ]  # fmt: skip
    return simulate(jobs, [machine] * len(jobs))


def both(lengths: list[int], **how: Any) -> tuple[Steps, Steps]:
    """Steps of a model with its window, and as if it had none."""
    known = workload_of(SMALL)
    return answered(known, lengths, **how), answered(
        replace(known, window_tokens=0), lengths, **how
    )


@pytest.mark.parametrize(("model", "rolling", "full", "window", "numbers"), CACHES)
def test_some_layers_keep_a_window_and_the_others_everything(
    model: str, rolling: int, full: int, window: int, numbers: int
) -> None:
    known, decode, length = window_of(model), graph_of(model, "decode"), 5.0 * window
    assert known is not None
    assert known == workload_of(model).window
    assert known.tokens == window
    assert cache_elements(decode, length) == 2 * numbers * length * (rolling + full)
    kept = cache_elements(in_window(decode, known), length)
    assert kept == 2 * numbers * (window * rolling + length * full)


@pytest.mark.parametrize(("model", "rolling", "full", "window", "numbers"), CACHES)
def test_a_token_of_a_prompt_meets_a_window_of_others(
    model: str, rolling: int, full: int, window: int, numbers: int
) -> None:
    """Where a prompt is twice the window, that is as many pairs as the causal half of a square."""
    known, prompt = window_of(model), graph_of(model, "prefill")
    assert known is not None
    far, is_attention = in_window(prompt, known), prompt.ops.kind == OpKind.ATTENTION
    pairs = [
        (one.ops.dims[is_attention][:, 3] @ at[0]) * (one.ops.dims[is_attention][:, 4] @ at[0])
        / np.where(one.ops.dims[is_attention][:, 6, 0] == 1.0, 2.0, 1.0)
        for at in (monomials(1, holds_from(prompt, known)),)
        for one in (prompt, far)
    ]  # fmt: skip
    assert holds_from(prompt, known) == 2 * window
    assert pairs[1].tolist() == pytest.approx(pairs[0].tolist())
    changed = (far.ops.flop != prompt.ops.flop).any(axis=1)
    assert changed.sum() == rolling
    assert is_attention.sum() == rolling + full


def test_requests_up_to_the_window_are_what_they_were() -> None:
    windowed, whole = both([WINDOW // 2])
    for name in ("step_s", "first_token_s", "token_s", "memory_mid_bytes"):
        assert getattr(windowed, name).tolist() == getattr(whole, name).tolist()


def test_longer_requests_keep_less_by_what_left_the_window() -> None:
    """An allocator keeps up to a seventh more than what lives."""
    lengths = [1024, 4096]
    windowed, whole = both(lengths)
    spared = whole.memory_mid_bytes - windowed.memory_mid_bytes
    left = [length + 2 - WINDOW for length in lengths]
    by_hand = [BATCH * ROLLING * 2 * NUMBERS * BF16_BYTES * tokens for tokens in left]
    of_margin = spared / by_hand
    assert (of_margin >= 1.0).all()
    assert (of_margin <= 1.15).all()
    assert (windowed.token_s < whole.token_s).all()
    assert (windowed.first_token_s <= whole.first_token_s).all()


def test_memory_never_falls_with_the_length() -> None:
    known = workload_of(SMALL)
    lengths = [64, 120, 126, 127, 128, 192, 255, 256, 257, 512, 2048]
    memory = answered(known, lengths, batch=1).memory_mid_bytes
    assert (np.diff(memory) >= -1e-6 * memory[1:]).all()


def test_an_engine_that_keeps_everything_is_told_so() -> None:
    windowed, whole = both([4096], profile="sglang")
    assert windowed.memory_mid_bytes.tolist() == whole.memory_mid_bytes.tolist()
    rolls = {name: find_engine(name).rolls for name in ("vllm", "vllm 0.9", "sglang", "llamacpp")}
    assert rolls == {"vllm": True, "vllm 0.9": False, "sglang": False, "llamacpp": True}


def test_a_prompt_of_a_length_that_no_graph_knows_is_refused() -> None:
    """It was answered as one of the traced length."""
    known = workload_of(SMALL)
    passes = tuple(replace(one, graph=at_length(one.graph, 512)) for one in known.passes)
    fixed = replace(known, passes=passes, default_seq=512, window_tokens=0)
    assert np.isfinite(answered(fixed, [512]).step_s).all()
    with pytest.raises(InvalidInputError) as refusal:
        answered(fixed, [4096]).check_known()
    assert "--seq 4096" in refusal.value.hint


def test_settings_state_a_window_in_several_ways() -> None:
    """As releases of Gemma 3, EXAONE 4, Llama 4, Qwen2 and Mistral do."""
    local = ["sliding_attention"] * 5 + ["full_attention"]
    found = [
        window_in(settings)
        for settings in (
            {"text_config": {"sliding_window": 1024, "layer_types": local * 3}},
            {"sliding_window": 4096, "sliding_window_pattern": "LLLG"},
            {"sliding_window": 4096, "model_type": "starcoder2"},
            {"sliding_window": 131072, "use_sliding_window": False, "model_type": "qwen2"},
            {"sliding_window": None, "model_type": "mistral"},
            {"sliding_window": 128, "layer_types": ["full_attention", *local]},
            {"sliding_window": 4096, "model_type": "gemma2"},
            {"sliding_window": 4096, "model_type": "another", "text_config": "none"},
        )
    ]
    told = [None if one is None else (one.tokens, one.full_every) for one in found]
    assert told == [(1024, 6), (4096, 4), (4096, 0), None, None, None, (4096, 2), None]


def test_a_name_that_is_no_path_states_no_window() -> None:
    assert window_of("transformer:" + "layers=12," * 60) is None
