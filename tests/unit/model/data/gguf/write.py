"""Write ``written.gguf`` with the package ``gguf`` 0.19.0, as converters do.

A Llama of two blocks with weights of zero: 8-bit matrices, 32-bit norms, a vocabulary of 96 words.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np

HIDDEN, HEADS, SHARED, HEAD, INNER, VOCAB, BLOCKS = 64, 4, 2, 16, 128, 96, 2


def main(path: Path) -> None:
    """Write the file."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("written by gguf")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(SHARED)
    writer.add_rope_dimension_count(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"word{number}" for number in range(VOCAB)])
    writer.add_token_scores([0.5] * VOCAB)
    writer.add_token_types([gguf.TokenType.NORMAL] * VOCAB)
    writer.add_bos_token_id(1)
    queries, others = HEADS * HEAD, SHARED * HEAD
    matrices = {"token_embd": (VOCAB, HIDDEN), "output": (VOCAB, HIDDEN)}
    norms = {"output_norm": (HIDDEN,)}
    for block in range(BLOCKS):
        rows = {"attn_q": (queries, HIDDEN), "attn_k": (others, HIDDEN),
                "attn_v": (others, HIDDEN), "attn_output": (HIDDEN, queries),
                "ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN),
                "ffn_down": (HIDDEN, INNER)}  # fmt: skip
        matrices |= {f"blk.{block}.{name}": shape for name, shape in rows.items()}
        norms |= {f"blk.{block}.{name}": (HIDDEN,) for name in ("attn_norm", "ffn_norm")}
    for name, shape in matrices.items():
        zeros = np.zeros(shape, dtype=np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(f"{name}.weight", gguf.quantize(zeros, kind), raw_dtype=kind)
    for name, shape in norms.items():
        writer.add_tensor(f"{name}.weight", np.ones(shape, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
