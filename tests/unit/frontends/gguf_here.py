"""Headers of GGUF files, written by hand as the format's description says."""

from __future__ import annotations

import struct

Q4_K, Q6_K, Q8_0, F32, MXFP4 = 12, 14, 8, 0, 39


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def key(name: str, value: object) -> bytes:
    """A key of the file: text, a whole number, a float, or a list of texts."""
    if isinstance(value, str):
        return text(name) + struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return text(name) + struct.pack("<If", 6, value)
    if isinstance(value, list):
        return text(name) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return text(name) + struct.pack("<II", 4, value)


def header(keys: dict[str, object], tensors: dict[str, tuple[tuple[int, ...], int]]) -> bytes:
    made = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    made += b"".join(key(name, value) for name, value in keys.items())
    for name, (extents, kind) in tensors.items():
        made += text(name) + struct.pack(f"<I{len(extents)}Q", len(extents), *extents)
        made += struct.pack("<IQ", kind, 0)
    return made


def decoder(
    architecture: str, *, hidden: int, layers: int, heads: int, shared: int, inner: int,
    vocab: int, head: int = 64, marks: str = "",
) -> bytes:  # fmt: skip
    """A decoder with a tied head; ``marks``: ``biases`` of q, k, v or ``norms`` of q, k."""
    sizes = {"embedding_length": hidden, "block_count": layers, "attention.head_count": heads,
             "attention.head_count_kv": shared, "feed_forward_length": inner,
             "attention.key_length": head, "context_length": 8192}  # fmt: skip
    keys = {"general.architecture": architecture, "general.name": "made by hand",
            "tokenizer.ggml.tokens": ["a", "b", "c"], f"{architecture}.rope.freq_base": 5e5,
            **{f"{architecture}.{name}": value for name, value in sizes.items()}}  # fmt: skip
    queries, others = heads * head, shared * head
    table = Q8_0 if hidden % 256 else Q6_K
    tensors = {"token_embd.weight": ((hidden, vocab), table),
               "output_norm.weight": ((hidden,), F32),
               "rope_freqs.weight": ((head // 2,), F32)}  # fmt: skip
    for block in range(layers):
        rows = {
            "attn_norm": (hidden,), "ffn_norm": (hidden,), "attn_q": (hidden, queries),
            "attn_k": (hidden, others), "attn_v": (hidden, others),
            "attn_output": (queries, hidden), "ffn_gate": (hidden, inner),
            "ffn_up": (hidden, inner), "ffn_down": (inner, hidden),
        }  # fmt: skip
        if marks == "norms":
            rows |= {"attn_q_norm": (head,), "attn_k_norm": (head,)}
        for name, extents in rows.items():
            kind = Q8_0 if extents[0] % 256 else Q4_K
            tensors[f"blk.{block}.{name}.weight"] = extents, F32 if len(extents) == 1 else kind
        if marks == "biases":
            for name, size in (("q", queries), ("k", others), ("v", others)):
                tensors[f"blk.{block}.attn_{name}.bias"] = (size,), F32
    return header(keys, tensors)


#: What a block of each kind holds beside its norms, at 256 features, 4 heads of 64, 2 of keys.
_SPLIT = {"attn_q": (256, 256), "attn_k": (256, 128), "attn_v": (256, 128)}
_JOINED = {"attn_qkv": (256, 512), "ffn_up": (256, 1024), "ffn_down": (512, 256)}
_DENSE = {"ffn_gate": (256, 512), "ffn_up": (256, 512), "ffn_down": (512, 256)}
_AFTER = {"post_attention_norm": (256,), "post_ffw_norm": (256,)}
_OF_HEADS = {"attn_q_norm": (64,), "attn_k_norm": (64,)}


def _experts(inner: int) -> dict[str, tuple[int, ...]]:
    return {"ffn_gate_inp": (256, 4), "ffn_gate_exps": (256, inner, 4),
            "ffn_up_exps": (256, inner, 4), "ffn_down_exps": (inner, 256, 4)}  # fmt: skip


#: Sinks of its heads, and a bias of everything; its second norm is that of others under their name.
_OF_GPT_OSS = {
    "attn_sinks": (4,), "attn_q.bias": (256,), "attn_k.bias": (128,), "attn_v.bias": (128,),
    "attn_output.bias": (256,), "ffn_gate_inp.bias": (4,), "ffn_gate_exps.bias": (512, 4),
    "ffn_up_exps.bias": (512, 4), "ffn_down_exps.bias": (256, 4),
}  # fmt: skip
#: By class: architecture, what a block holds, whether the head is the embedding's table.
BLOCKS = {
    "MixtralForCausalLM": ("llama", _SPLIT | _experts(512), False),
    "Qwen3MoeForCausalLM": ("qwen3moe", _SPLIT | _OF_HEADS | _experts(128), False),
    "GemmaForCausalLM": ("gemma", _SPLIT | _DENSE, True),
    "Gemma2ForCausalLM": ("gemma2", _SPLIT | _DENSE | _AFTER, True),
    "Phi3ForCausalLM": ("phi3", _JOINED, False),
    "LlamaForCausalLM": ("llama", _SPLIT | _DENSE, False),
    "GptOssForCausalLM": ("gpt-oss", _SPLIT | _experts(512) | _OF_GPT_OSS, False),
}


def small(class_name: str, experts: int = F32) -> bytes:
    """Two blocks of a kind, in FP32; its experts in another type."""
    architecture, block, is_tied = BLOCKS[class_name]
    sizes = {"embedding_length": 256, "block_count": 2, "attention.head_count": 4,
             "attention.head_count_kv": 2, "feed_forward_length": 512, "attention.key_length": 64,
             "context_length": 4096}  # fmt: skip
    if "ffn_gate_inp" in block:
        sizes |= {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 128}
    keys = {f"{architecture}.{name}": size for name, size in sizes.items()}
    shapes = {"token_embd": (256, 1000), "output_norm": (256,)}
    shapes |= {} if is_tied else {"output": (256, 1000)}
    common = {"attn_norm": (256,), "ffn_norm": (256,), "attn_output": (256, 256)}
    for number in range(2):
        shapes |= {f"blk.{number}.{name}": one for name, one in (common | block).items()}
    tensors = {
        name if name.endswith(".bias") else f"{name}.weight": (
            one, experts if name.endswith("_exps") else F32
        )
        for name, one in shapes.items()
    }  # fmt: skip
    return header({"general.architecture": architecture, **keys}, tensors)
