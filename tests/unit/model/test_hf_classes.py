"""Classes of transformers whose forward would read values, which a trace has not."""

import json
from itertools import product

import numpy as np
import pytest
from tests.sampled import sampled
from traced import trace_here

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import OpKind, Phase, monomials

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


@pytest.mark.parametrize(
    ("name", "task"),
    sampled(
        [(name, task) for name in CONFIGS for task in ("train", "infer")],
        ("PegasusForCausalLM", "infer"), ("OpenAIGPTLMHeadModel", "train"),
        ("ConvBertForMaskedLM", "train"), ("MusicgenForCausalLM", "infer"),
    ),
)  # fmt: skip
def test_a_whole_sequence_needs_no_values_to_be_traced(name, task, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIGS[name], "architectures": [name]}))
    workload = trace_here(f"hf:{path}", task=task)
    assert workload.num_parameters > 0
    assert all(len(one.graph.ops.kind) > 10 for one in workload.passes)


TEXT = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 128,
        "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip
SIGHT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "image_size": 28,
         "num_attention_heads": 2, "patch_size": 14}  # fmt: skip
SIGHTED = {
    "llava": {"text_config": {"model_type": "llama", **TEXT},
              "vision_config": {"model_type": "clip_vision_model", **SIGHT}},
    "qwen2_5_vl": {"text_config": {**TEXT, "hidden_size": 512},
                   "vision_config": {"depth": 2, "hidden_size": 32, "intermediate_size": 64,
                                     "num_heads": 2, "out_hidden_size": 512}},
    "llama4": {"text_config": {**TEXT, "intermediate_size_mlp": 96, "head_dim": 16,
                               "num_local_experts": 4},
               "vision_config": {**SIGHT, "vision_output_dim": 32, "projector_input_dim": 32,
                                 "projector_output_dim": 32}},
    "gemma3": {"text_config": {**TEXT, "head_dim": 16}, "vision_config": SIGHT},
}  # fmt: skip


def traced(settings, task, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(settings))
    return trace_here(f"hf:{path}", task=task)


@pytest.mark.parametrize(
    ("kind", "task"),
    sampled(
        [pair for pair in product(SIGHTED, ("train", "infer")) if pair != ("llava", "train")],
        ("qwen2_5_vl", "infer"),
        ("llama4", "train"),
    ),
)
def test_a_model_of_pictures_and_text_is_traced_on_text_and_says_so(kind, task, tmp_path):
    workload = traced({"model_type": kind, **SIGHTED[kind]}, task, tmp_path)
    assert workload.sample_unit == "tokens"
    assert "text without pictures" in workload.title
    names = [one.name for one in workload.passes]
    assert names == (["step"] if task == "train" else ["prefill", "decode"])


#: Side of a picture of four patches, and what it becomes.
SIDE, NUM_SEEN = 28, 4
TRAINED_ON_PICTURES = {
    "llava": SIGHTED["llava"],
    "paligemma": {
        "text_config": {"model_type": "gemma", **TEXT, "head_dim": 16}, "projection_dim": 64,
        "vision_config": {"model_type": "siglip_vision_model", **SIGHT, "projection_dim": 64},
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=TRAINED_ON_PICTURES)
def seeing(request, tmp_path_factory):
    """A model of the kind that is trained on pictures alone, and its config file."""
    path = tmp_path_factory.mktemp("seeing") / "config.json"
    settings = {"model_type": request.param, **TRAINED_ON_PICTURES[request.param]}
    path.write_text(json.dumps(settings))
    return path, trace_here(f"hf:{path}", task="train")


def test_the_tokens_of_a_picture_count_in_the_sequence(seeing):
    path, workload = seeing
    assert f"{NUM_SEEN} of its tokens" in workload.title
    assert workload.default_seq == NUM_SEEN + 128
    with pytest.raises(Exception, match=f"--seq {NUM_SEEN + 1} or more"):
        trace_here(f"hf:{path}", task="train", seq=NUM_SEEN)
    with pytest.raises(InvalidInputError):
        workload.check_length(NUM_SEEN)


def test_what_looks_is_frozen_and_costs_each_sample_the_same(seeing):
    graph = seeing[1].passes[0].graph
    looks = np.array(["vision_tower" in path for path in graph.modules])[graph.ops.module]
    assert looks.any()
    assert not looks[graph.ops.phase == Phase.BACKWARD].any()
    two, four, long = monomials([2, 4, 2], [40, 40, 999]) @ graph.ops.flop[looks].sum(axis=0)
    assert four == 2 * two == 2 * long > 0


DETECTORS = {
    "rt_detr": {"decoder_layers": 2}, "detr": {"encoder_layers": 1, "decoder_layers": 1},
    "yolos": {"num_hidden_layers": 2},
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "task", "size"),
    sampled(
        [
            ("rt_detr", "train", "640×640"),
            ("rt_detr", "infer", "640×640"),
            ("detr", "train", "800×1066"),
            ("detr", "infer", "800×1066"),
            ("yolos", "train", "512×864"),
            ("yolos", "infer", "512×864"),
        ],
        ("detr", "infer"),
        ("yolos", "train"),
    ),
)
def test_a_detector_is_traced_on_one_size_of_picture_and_says_so(kind, size, task, tmp_path):
    workload = traced({"model_type": kind, **DETECTORS[kind]}, task, tmp_path)
    assert workload.sample_unit == "images"
    assert f"pictures of {size}" in workload.title
    assert ("matches no boxes" in workload.title) == (task == "train")


def products(graph, batch, length):
    """Operations of matrix products alone."""
    at = monomials(batch, length)[0]
    return float((graph.ops.flop[graph.ops.kind == OpKind.MATMUL] @ at).sum())


@pytest.mark.parametrize("experts", sampled([4, 16], 16))
def test_a_token_works_through_the_experts_that_it_chose(experts, tmp_path):
    """One of Llama 4's beside the shared one, two of DBRX's: whatever number there is."""
    tokens, hidden, inner = 6, 64, 96
    text = {**SIGHTED["llama4"]["text_config"], "num_local_experts": experts}
    llama = traced({"model_type": "llama4_text", **text}, "infer", tmp_path)
    attention = 2 * hidden * (64 + 32 + 32 + 64)
    layer = attention + 2 * 3 * 2 * hidden * inner + 2 * hidden * experts
    decode = products(llama.passes[1].graph, tokens, 40)
    assert decode == tokens * (2 * layer + 2 * hidden * 128)
    dbrx = traced(
        {"model_type": "dbrx", "d_model": hidden, "n_heads": 4, "n_layers": 1, "vocab_size": 128,
         "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
         "ffn_config": {"ffn_hidden_size": inner, "moe_num_experts": experts, "moe_top_k": 2,
                        "hidden_size": hidden}},
        "infer", tmp_path,
    )  # fmt: skip
    layer = attention + 2 * 3 * 2 * hidden * inner + 2 * hidden * experts
    assert products(dbrx.passes[1].graph, tokens, 40) == tokens * (layer + 2 * hidden * 128)


@pytest.mark.parametrize("kind", sampled(["mamba2", "falcon_h1"], "mamba2"))
def test_a_recurrence_decodes_with_the_state_that_it_went_on_from(kind, tmp_path):
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 128}
    if kind == "mamba2":
        sizes |= {"num_heads": 8, "head_dim": 16, "state_size": 16, "n_groups": 1}
    workload = traced({"model_type": kind, **sizes}, "infer", tmp_path)
    prefill, decode = (products(one.graph, 2, 256) for one in workload.passes)
    assert 0 < decode < prefill / 100


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl"])
def test_a_model_that_keeps_the_size_of_pictures_says_what_a_token_of_them_is(kind, tmp_path):
    """Patches of 14 or 16 pixels, merged by two."""
    settings = {"model_type": kind, **SIGHTED["qwen2_5_vl"]}
    side = {"qwen2_5_vl": 28, "qwen3_vl": 32}[kind]
    assert f"each {side}×{side} pixels" in traced(settings, "train", tmp_path).title
    path = tmp_path / "config.json"
    with pytest.raises(Exception, match="no side can be asked for") as caught:
        trace_here(f"hf:{path}", task="train", image_size=1344)
    assert f"{(1344 // side) ** 2} tokens" in str(caught.value) + str(
        getattr(caught.value, "hint", "")
    )
