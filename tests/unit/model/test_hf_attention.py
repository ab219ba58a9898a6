"""Attention that the library writes out, and kernels run as one op."""

import json

import numpy as np
from traced import trace_here

from paceline.model.graph.graph import OpKind
from paceline.model.ops.registry import DIM_NAMES

HEADS, KV_HEADS, HEAD_SIZE, LAYERS = 4, 2, 16, 2
GPT_OSS = {
    "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 64,
    "intermediate_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD_SIZE, "num_local_experts": 4,
    "num_experts_per_tok": 2, "vocab_size": 128, "max_position_embeddings": 512,
    "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip


def test_attention_with_sinks_is_one_causal_op_a_layer(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GPT_OSS))
    ops = trace_here(f"hf:{path}", task="train").passes[0].graph.ops
    for kind in (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD):
        found = ops.dims[ops.kind == kind]
        assert len(found) == LAYERS
        columns = dict(zip(DIM_NAMES[kind], found[0], strict=False))
        np.testing.assert_array_equal(columns["q_heads"][0], HEADS)
        np.testing.assert_array_equal(columns["kv_heads"][0], KV_HEADS)
        np.testing.assert_array_equal(columns["head_size"][0], HEAD_SIZE)
        np.testing.assert_array_equal(columns["is_causal"][0], 1.0)
