"""State-space layers that the library writes out, and kernels run as products of chunks."""

import json

import numpy as np
import pytest
from traced import trace_here

from paceline.trace.graph import OpKind, Phase, monomials

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
