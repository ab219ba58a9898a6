"""From the header of a GGUF file to the settings of a model of transformers.

Standard library only. Keys and names of tensors are those of
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (2026-11).
"""

import collections
import re

from gguf_header import TYPES, Array, tensor_bytes
from torch_entries.request_errors import RequestError

#: Class and model type of transformers by `general.architecture`; those with experts end in `moe`.
_KINDS = {
    "llama": ("LlamaForCausalLM", "llama"),
    "llama+experts": ("MixtralForCausalLM", "mixtral"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "qwen3moe+experts": ("Qwen3MoeForCausalLM", "qwen3_moe"),
    "gemma": ("GemmaForCausalLM", "gemma"),
    "gemma2": ("Gemma2ForCausalLM", "gemma2"),
    "phi3": ("Phi3ForCausalLM", "phi3"),
    "gpt-oss+experts": ("GptOssForCausalLM", "gpt_oss"),
}
#: Settings by the keys that state them; the last four need not be there.
_SIZES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}
_STATED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_LARGEST, _MOST_LAYERS, _LONGEST = 1 << 20, 1_024, 1 << 28
#: Tensors that are tables of a rotation, which transformers computes.
_COMPUTED = re.compile(r"(^|\.)rope_")
#: Precisions that are formats of files, by the type of most weights.
_OWN = {"MXFP4": "mxfp4", "NVFP4": "nvfp4"}
#: Precision by the bits that a weight takes at most, where the format is of llama.cpp alone.
_NEAREST = ((6.0, "int4"), (12.0, "int8"), (20.0, "bf16"), (float("inf"), "fp32"))


def settings_of(header):
    """Settings as a config.json states them.

    Raises:
        RequestError: An architecture that is not known, or keys that tensors contradict.
    """
    keys = header.keys
    architecture = keys.get("general.architecture")
    num_experts = _size(keys, architecture, "expert_count", "num_experts")
    kind = "%s%s" % (architecture, "+experts" if num_experts else "")
    if kind not in _KINDS:
        known = ", ".join(dict.fromkeys(one.partition("+")[0] for one in _KINDS))
        said = "the architecture `%s` is not among those known: %s"
        raise _refused(said % (str(kind)[:60], known))
    found = {name: _size(keys, architecture, key, name) for name, key in _SIZES.items()}
    if found["intermediate_size"] is None:
        found["intermediate_size"] = found["moe_intermediate_size"]
    for name in _STATED:
        if found[name] is None:
            raise _refused("it does not state `%s.%s`" % (architecture, _SIZES[name]))
    found = {name: value for name, value in found.items() if value is not None}
    if num_experts:
        found.update(num_experts=num_experts, num_local_experts=num_experts)
    found["num_key_value_heads"] = found.get("num_key_value_heads", found["num_attention_heads"])
    found["vocab_size"] = _vocabulary(header, found["hidden_size"])
    _check(header, found)
    class_name, model_type = _KINDS[kind]
    biased = ("blk.0.attn_%s.bias" % part in header.tensors for part in ("q", "output"))
    return {
        **found, "architectures": [class_name], "model_type": model_type,
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "attention_bias": any(biased), "pad_token_id": 0,
    }  # fmt: skip


def num_parameters(header):
    """Numbers that the tensors hold, without tables that are computed."""
    return sum(_elements(one) for name, one in header.tensors.items() if not _COMPUTED.search(name))


def stored(header):
    """What is said of the weights as they lie in the file, and the precision that is nearest."""
    by_type, numbers = collections.Counter(), collections.Counter()
    for one in header.tensors.values():
        by_type[TYPES[one.type][0]] += tensor_bytes(one)
        numbers[TYPES[one.type][0]] += _elements(one)
    total = sum(by_type.values())
    bits = 8 * total / sum(numbers.values())
    types = [name for name, _ in by_type.most_common(2)]
    own = _OWN.get(numbers.most_common(1)[0][0])
    nearest = own or next(name for most, name in _NEAREST if bits <= most)
    said = "the file's weights are %s, %.3g GB, %.2g bits each, %s %s"
    words = " and ".join(types), total / 1e9, bits, "served in" if own else "nearest to", nearest
    return said % words, nearest


def _elements(tensor):
    product = 1
    for extent in tensor.extents:
        product *= extent
    return product


def _size(keys, architecture, key, name):
    """A whole number above zero; None where it is not stated. A list must say one number."""
    value = keys.get("%s.%s" % (architecture, key))
    if isinstance(value, Array):
        if len(set(value.values)) != 1:
            raise _refused("`%s.%s` differs from layer to layer" % (architecture, key))
        value = value.values[0]
    if value is None or (value == 0 and name not in _STATED):
        return None
    bounds = {"num_hidden_layers": _MOST_LAYERS, "max_position_embeddings": _LONGEST,
              "sliding_window": _LONGEST}  # fmt: skip
    most = bounds.get(name, _LARGEST)
    if type(value) is not int or not 1 <= value <= most:
        raise _refused("`%s.%s` is %s, not 1 to %d" % (architecture, key, value, most))
    return value


def _vocabulary(header, hidden):
    table = header.tensors.get("token_embd.weight")
    if table is None or len(table.extents) != 2 or table.extents[0] != hidden:
        raise _refused("it has no `token_embd.weight` of %d columns" % hidden)
    return table.extents[1]


def _check(header, found):
    """Whether the tensors are there that the keys speak of, as many blocks and as wide."""
    if (header.keys.get("split.count") or 1) != 1:
        raise _refused("it is one of several parts: join them, or give the config.json")
    blocks = {name.split(".")[1] for name in header.tensors if name.startswith("blk.")}
    heads, shared = found["num_attention_heads"], found["num_key_value_heads"]
    if len(blocks) != found["num_hidden_layers"]:
        said = "%d blocks are stated and %d are there"
        raise _refused(said % (found["num_hidden_layers"], len(blocks)))
    if heads % shared or ("head_dim" not in found and found["hidden_size"] % heads):
        raise _refused("%d heads, %d of keys: they do not divide" % (heads, shared))


def _refused(said):
    return RequestError("bad-gguf", said)
