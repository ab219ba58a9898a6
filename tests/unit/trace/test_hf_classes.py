"""Classes of transformers whose forward would read values, which a trace has not."""

import json

import pytest
from traced import trace_here

SMALL = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
         "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64,
         "vocab_size": 97}  # fmt: skip
CONFIGS = {
    "PegasusForCausalLM": {"model_type": "pegasus", **SMALL},
    "OpenAIGPTLMHeadModel": {"model_type": "openai-gpt", "n_embd": 32, "n_layer": 2, "n_head": 2},
    "ConvBertForMaskedLM": {"model_type": "convbert", "hidden_size": 32, "num_hidden_layers": 1,
                            "num_attention_heads": 2, "intermediate_size": 64},
    "MusicgenForCausalLM": {"model_type": "musicgen_decoder", "hidden_size": 32,
                            "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 64},
}  # fmt: skip


@pytest.mark.parametrize("task", ["train", "infer"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_whole_sequence_needs_no_values_to_be_traced(name, task, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIGS[name], "architectures": [name]}))
    workload = trace_here(f"hf:{path}", task=task)
    assert workload.num_parameters > 0
    assert all(len(one.graph.ops.kind) > 10 for one in workload.passes)
