"""Headers of GGUF files, written by hand as the format's description says."""

from __future__ import annotations

import struct

Q4_K, Q6_K, Q8_0, F32 = 12, 14, 8, 0


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
