from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import Graph, OpKind, Owner, monomials
from paceline.model.lowering import lower, rewritten
from paceline.model.reading.load import load_workload

LAYERS, BATCH, PAST = 32, 16, 1024


@cache
def decode_of(name: str) -> Graph:
    return next(p.graph for p in load_workload(name, task="infer").passes if p.name == "decode")


def as_library_and_engine(graph: Graph) -> tuple[LoweredPass, LoweredPass]:
    return (
        lower(graph, Configuration(compiler="compiled")),
        lower(graph, Configuration(compiler="compiled", is_served=True)),
    )


def count_of(lowered: LoweredPass, *kinds: OpKind) -> float:
    return float(lowered.costs.count[np.isin(lowered.costs.kind, kinds)].sum())


def flop_of(lowered: LoweredPass) -> float:
    return float(lowered.costs.count @ lowered.costs.flop @ monomials(BATCH, PAST)[0])


def moved_bytes(lowered: LoweredPass, kind: OpKind) -> float:
    costs = lowered.costs
    rows = costs.kind == kind
    each = costs.moved_bytes(monomials(BATCH, PAST))[0]
    return float((costs.count * each)[rows].sum())


def test_products_of_one_input_are_one_kernel_with_the_same_work() -> None:
    library, engine = as_library_and_engine(decode_of("llama-3-8b"))
    assert count_of(library, OpKind.MATMUL) == 7 * LAYERS + 1
    assert count_of(engine, OpKind.MATMUL) == 4 * LAYERS + 1
    assert flop_of(engine) == pytest.approx(flop_of(library))


def test_a_cache_is_read_once_and_never_copied() -> None:
    library, engine = as_library_and_engine(decode_of("mixtral-8x7b"))
    cache_bytes = 2 * LAYERS * BATCH * PAST * 8 * 128 * 2
    assert moved_bytes(library, OpKind.COPY) > cache_bytes
    assert moved_bytes(engine, OpKind.COPY) < 0.01 * cache_bytes
    assert moved_bytes(engine, OpKind.ATTENTION) == pytest.approx(cache_bytes, rel=0.02)


@pytest.mark.parametrize(
    ("name", "layers", "kv_heads", "head_size"),
    [("bloom-7b1", 30, 32, 128), ("gpt-j-6b", 28, 16, 256), ("gemma-2-27b", 46, 16, 128)],
)
def test_attention_that_a_library_writes_out_is_one_kernel_that_reads_a_cache_once(
    name: str, layers: int, kv_heads: int, head_size: int
) -> None:
    library, engine = as_library_and_engine(decode_of(name))
    assert count_of(library, OpKind.ATTENTION) == 0
    assert count_of(engine, OpKind.ATTENTION) == layers
    assert count_of(engine, OpKind.SOFTMAX) == 0
    assert flop_of(engine) == pytest.approx(flop_of(library), rel=1e-3)
    cache_bytes = 2 * layers * BATCH * PAST * kv_heads * head_size * 2
    assert moved_bytes(engine, OpKind.ATTENTION) == pytest.approx(cache_bytes, rel=0.03)
    assert moved_bytes(engine, OpKind.COPY) < 0.01 * cache_bytes


def test_a_layer_of_experts_is_a_router_and_two_products() -> None:
    _, engine = as_library_and_engine(decode_of("mixtral-8x7b"))
    assert count_of(engine, OpKind.SORT, OpKind.SCAN) == 0
    assert count_of(engine, OpKind.MATMUL) == (2 + 1 + 2) * LAYERS + 1


def test_a_training_step_stays_as_it_is() -> None:
    library, engine = as_library_and_engine(load_workload("llama-3-8b").passes[0].graph)
    assert np.array_equal(library.costs.flop, engine.costs.flop)


def test_heads_of_latent_attention_share_one_latent(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    heads, latent, rope, nope, layers = 4, 32, 8, 16, 2
    sizes = {
        "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": heads, "vocab_size": 128,
        "kv_lora_rank": latent, "q_lora_rank": 24, "qk_rope_head_dim": rope,
        "qk_nope_head_dim": nope, "v_head_dim": nope, "intermediate_size": 96,
        "first_k_dense_replace": layers, "n_routed_experts": 8, "moe_intermediate_size": 32,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(sizes), encoding="utf-8")
    library, engine = as_library_and_engine(decode_of(f"hf:{path}"))
    rows = np.flatnonzero(engine.costs.kind == OpKind.ATTENTION)
    dims = engine.costs.dims[rows] @ monomials(BATCH, PAST)[0]
    assert {tuple(row[[0, 1, 2, 5]]) for row in dims} == {(BATCH, heads, 1.0, latent + rope)}
    read = moved_bytes(engine, OpKind.ATTENTION) / layers / 2
    queries_and_output = BATCH * heads * (latent + nope)
    assert read == pytest.approx(BATCH * PAST * (latent + rope) + queries_and_output, rel=0.02)
    assert flop_of(engine) < flop_of(library) / 4


def test_kernels_of_an_engine_change_their_time_and_no_op() -> None:
    how = Configuration(compiler="compiled", is_served=True)
    tuned, portable = (
        lower(decode_of("llama-3-8b"), replace(how, engine_kernels=kernels))
        for kernels in ("tuned", "portable")
    )
    assert np.array_equal(tuned.costs.kind, portable.costs.kind)
    assert flop_of(tuned) == flop_of(portable)


def test_a_cache_in_eight_bits_is_half_of_one_in_sixteen() -> None:
    how = Configuration(compiler="compiled", is_served=True)
    wide, narrow = (
        rewritten(decode_of("llama-3-8b"), replace(how, cache_format=form)).stores
        for form in ("wide", "fp8")
    )
    powers = monomials(BATCH, PAST)[0]
    cached = wide.owner == Owner.KV_CACHE
    wide_bytes, narrow_bytes = (stores.num_bytes() @ powers for stores in (wide, narrow))
    assert narrow_bytes[cached] == pytest.approx(wide_bytes[cached] / 2.0)
    assert narrow_bytes[~cached] == pytest.approx(wide_bytes[~cached])


def test_a_token_of_deepseek_v3_takes_seventy_kilobytes_of_cache() -> None:
    # 576 numbers in 16 bits for each of 61 layers (DeepSeek-V3 technical report, table 1).
    how = Configuration(precision="fp8", compiler="compiled", is_served=True)
    stores = rewritten(decode_of("deepseek-r1"), how).stores
    short, long = (stores.num_bytes() @ monomials(1, past)[0] for past in (PAST, 2 * PAST))
    grows = (long - short) / PAST
    lasting = (stores.owner == Owner.KV_CACHE) & (stores.birth < 0)
    assert grows[lasting].sum() == pytest.approx(61 * 576 * 2)
    assert grows[stores.owner == Owner.ACTIVATION].sum() == pytest.approx(0.0)


def test_an_indexer_keeps_no_score_of_a_single_head(tmp_path: Path) -> None:
    # 64 heads of DeepSeek-V3.2 score every pair of 8,192 tokens: 17 GB in FP32 if each is written.
    # Layers score one after another, so that few of them keep as much.
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "deepseek_v32", "num_hidden_layers": 4}', encoding="utf-8")
    passes = load_workload(f"hf:{path}", task="infer").passes
    prefill = next(one.graph for one in passes if one.name == "prefill")
    by_head_bytes = 64 * 8192**2 * 4
    library, engine = (_most_live_bytes(one, 8192) for one in as_library_and_engine(prefill))
    assert library > by_head_bytes
    assert engine < by_head_bytes / 2


def _most_live_bytes(lowered: LoweredPass, num_tokens: int) -> float:
    live = lowered.memory.by_owner[:, Owner.ACTIVATION] @ monomials(1, num_tokens)[0]
    return float(live.max())
