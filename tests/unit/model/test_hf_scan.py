"""State-space layers that the library writes out, and kernels run as products of chunks."""

import json

import numpy as np
import pytest
from tests.sampled import sampled
from traced import trace_here

from paceline.model.graph.graph import OpKind, Phase, monomials
from paceline.model.reading.load import load_workload

HEADS, WIDTH, GROUPS, STATE, CHUNK, TOKENS = 8, 16, 2, 32, 64, 256
NEMOTRON = {
    "model_type": "nemotron_h", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 128,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "mamba_num_heads": HEADS,
    "mamba_head_dim": WIDTH, "ssm_state_size": STATE, "n_groups": GROUPS, "chunk_size": CHUNK,
    "layers_block_type": ["linear_attention", "full_attention"],
}  # fmt: skip


def test_a_scan_is_four_products_of_chunks(tmp_path):
    """Dao and Gu 2024, section 6: scores, what is near, states of chunks, and what is far."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(NEMOTRON))
    graph = trace_here(f"hf:{path}", task="train").passes[0].graph
    ops = graph.ops
    chosen = np.array([graph.modules[module].endswith("layers.0.mixer") for module in ops.module])
    chosen &= (ops.kind == OpKind.MATMUL) & (ops.phase == Phase.FORWARD)
    flop = ops.flop[chosen] @ monomials(1.0, float(TOKENS))[0]
    scores, near = 2 * TOKENS * CHUNK * STATE * GROUPS, 2 * TOKENS * CHUNK * HEADS * WIDTH
    states = far = 2 * TOKENS * STATE * HEADS * WIDTH
    assert sorted(flop) == pytest.approx(sorted([scores, near, states, far]))


KEYS, VALUES, KEY_WIDTH, VALUE_WIDTH = 2, 4, 16, 32
DELTA = {
    "model_type": "qwen3_5_text", "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64,
    "linear_num_key_heads": KEYS, "linear_num_value_heads": VALUES,
    "linear_key_head_dim": KEY_WIDTH, "linear_value_head_dim": VALUE_WIDTH,
}  # fmt: skip


@pytest.mark.parametrize("task", sampled(["train", "infer"], "train"))
def test_the_delta_rule_is_eight_products_of_chunks_at_any_length(tmp_path, task):
    """Yang et al. 2024, section 3.3: within a chunk of 64, three over keys and two over values;
    three with the state. Heads of values that share keys have products of their own."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DELTA))
    workload = trace_here(f"hf:{path}", task=task)
    assert not workload.has_fixed_length
    graph = workload.passes[0].graph
    ops = graph.ops
    chosen = np.array([graph.modules[one].endswith("layers.0.linear_attn") for one in ops.module])
    chosen &= (ops.kind == OpKind.MATMUL) & (ops.phase == Phase.FORWARD)
    asked = sorted(ops.flop[chosen] @ monomials(1.0, float(TOKENS))[0])
    per_head = [64 * KEY_WIDTH] * 3 + [64 * VALUE_WIDTH] * 2 + [KEY_WIDTH * VALUE_WIDTH] * 3
    assert asked == pytest.approx(sorted(2 * TOKENS * VALUES * one for one in per_head))


def test_a_token_of_the_delta_rule_reads_its_state_and_no_past(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DELTA))
    decode = trace_here(f"hf:{path}", task="infer").passes[1].graph
    rows = [".linear_attn" in decode.modules[one] for one in decode.ops.module]
    near, far = (decode.ops.flop[rows] @ monomials(1.0, past).T for past in (64.0, 4096.0))
    assert near.sum() == pytest.approx(far.sum())


def test_rwkv_7_is_a_language_model_whose_work_follows_its_text():
    """The delta rule in chunks of 16: as much for each token, however long the text."""
    workload = load_workload("published_recurrent:rwkv7_0b1", task="infer")
    assert workload.sample_unit == "tokens"
    assert not workload.has_fixed_length
    ops = workload.passes[0].graph.ops
    chosen = ops.kind == OpKind.MATMUL
    short, long = (ops.flop[chosen] @ monomials(2.0, seq).T for seq in (128.0, 4096.0))
    assert long.sum() == pytest.approx(32 * short.sum())
