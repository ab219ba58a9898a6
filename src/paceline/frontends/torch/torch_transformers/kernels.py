"""Ops of transformers that the library writes out and kernels run as one.

Standard library and torch only; modules of transformers are changed in this process.
"""

import importlib

import torch
from torch_networks.zoo import routed


def fuse(config):
    """Replace what the model type of ``config`` writes out."""
    kinds = [config.model_type]
    text = getattr(config, "text_config", None)
    if text is not None:
        kinds.append(text.model_type)
    for kind in kinds:
        for replace in _FUSED.get(kind, ()):
            replace(kind)
    for part in (config, text):
        # Hyper-connections: a kernel normalises rows and columns twenty times where it stands.
        if hasattr(part, "hc_sinkhorn_iters"):
            part.hc_sinkhorn_iters = 1
        _open_windows(part)


def _open_windows(part):
    """Lets every layer look back on all tokens, so that its sizes follow the length everywhere.

    What a window spares is known by its length (``model/data/attention_windows.csv``).
    """
    for name in _WINDOWS:
        if getattr(part, name, None):
            setattr(part, name, _LONGER_THAN_ALL)


def _fuse_attention_with_sinks(_kind):
    """Attention of GPT-OSS as one op, as kernels run it; the library writes its products out.

    The sink is one more logit a head, and layers with a window are counted as causal ones.
    """
    modeling = importlib.import_module("transformers.models.gpt_oss.modeling_gpt_oss")

    def fused(module, query, key, value, attention_mask, scaling, dropout=0.0, **_more):
        """Takes and returns what the library's ``eager_attention_forward`` does."""
        output = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=query.shape[2] > 1, scale=scaling, enable_gqa=True
        )
        sinks = module.sinks.reshape(1, -1, 1, 1).to(output.dtype)
        return (output * sinks).transpose(1, 2).contiguous(), None

    modeling.eager_attention_forward = fused


def _fuse_chunked_scan(kind):
    """The state-space scan of Mamba 2 as its four products, as kernels run it chunk by chunk.

    The library writes decays and masks out and repeats what heads share. Chunks are as many
    operations on as many operands as one chunk that every token meets (Dao and Gu, "Transformers
    are SSMs", ICML 2024, section 6).
    """
    modeling = importlib.import_module("transformers.models.%s.modeling_%s" % (kind, kind))

    def fused(hidden_states, dt, decay, keys, queries, chunk_size, **more):
        """Takes and returns what the library's ``mamba2_chunk_scan`` does."""
        batch, length, heads, width = hidden_states.shape
        groups, size = keys.shape[2:]
        x = hidden_states.reshape(batch, length, groups, -1).transpose(1, 2)
        keys, queries = keys.transpose(1, 2), queries.transpose(1, 2)
        met, state = (
            end.mean(2, keepdim=True).expand(batch, groups, chunk_size, end.shape[-1])
            for end in (keys, x)
        )
        near = queries @ met.transpose(2, 3) @ state
        last = keys.transpose(2, 3) @ x
        far = queries @ last
        scale = (dt + more["dt_bias"]) * decay
        output = (near + far).transpose(1, 2).reshape(batch, length, heads, width)
        output = output * scale[..., None] + hidden_states * more["D"][:, None]
        state = last.reshape(batch, heads, width, size)
        return (output, state) if more["return_final_states"] else output

    modeling.mamba2_chunk_scan = fused


def _fuse_selective_scan(kind):
    """The scan of Mamba as passes over its sequences, as its kernel runs; the library loops.

    The kernel reads inputs, steps and gates and keeps them for the backward pass (Gu and Dao,
    "Mamba", 2023, section 3.3.2); its states never leave the chip, and nor do they here.
    """
    modeling = importlib.import_module("transformers.models.%s.modeling_%s" % (kind, kind))

    def fused(hidden_states, dt, decay, keys, queries, D=None, z=None, delta_bias=None, **more):
        """Takes and returns what the library's ``mamba_selective_scan`` does."""
        rates = decay.mean(1) if D is None else decay.mean(1) + D
        rates = rates if delta_bias is None else rates + delta_bias
        gate = hidden_states if z is None else z
        output = torch.addcmul(hidden_states, dt, gate) * (keys * queries).mean(1, keepdim=True)
        output = (output * rates[:, None]).to(hidden_states.dtype)
        state = hidden_states[:, :, -1:] * keys[:, None, :, -1]
        return (output, state) if more.get("return_last_state") else output

    modeling.mamba_selective_scan = fused


def _fuse_weighted_keys(_kind):
    """The recurrence of RWKV-4 as passes over its sequences, as its kernel runs; the library loops.

    Source: Peng et al., "RWKV", 2023 (arXiv:2305.13048), section 3.2 and its CUDA kernel.
    """
    modeling = importlib.import_module("transformers.models.rwkv.modeling_rwkv")

    def fused(time_decay, time_first, key, value, state=None, return_state=False):
        """Takes and returns what the library's ``rwkv_linear_attention`` does."""
        output = torch.addcmul(value, key, value) * (time_decay + time_first)
        kept = [key[:, -1] for _ in range(3)] if return_state or state is not None else None
        return output, kept

    modeling.rwkv_linear_attention = fused


def _fuse_delta_rule(kind):
    """The gated delta rule by chunks, and its step of one token, as kernels run them.

    The library writes them out in FP32 and loops over chunks. A chunk's keys meet each other and
    correct its values, what the state knew of them is taken off, and its queries meet both: three
    products over keys and two over values within a chunk, three with the state. As in
    `_fuse_chunked_scan`, one chunk stands for all. A gate per channel (Kimi) costs no product.

    Sources: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", 2024 (arXiv:2412.06464), section
    3.3; "Kimi Linear", 2025 (arXiv:2510.26692), section 3.
    """
    home = kind[: -len("_text")] if kind.endswith("_text") else kind
    modeling = importlib.import_module("transformers.models.%s.modeling_%s" % (home, home))
    for prefix, suffix in (("torch_", "gated_delta_rule"), ("", "kimi_delta_attention")):
        if hasattr(modeling, prefix + "chunk_" + suffix):
            setattr(modeling, prefix + "chunk_" + suffix, delta_chunks)
            setattr(modeling, prefix + "recurrent_" + suffix, _delta_step)


def _by_head(tensor):
    """(batch, length, heads, size) as (batch, heads, length, size)."""
    return tensor.transpose(1, 2)


def delta_chunks(query, key, value, g, beta, chunk_size=64, output_final_state=False, **_more):
    """Takes and returns what the library's ``torch_chunk_gated_delta_rule`` does."""
    batch, length, groups, _ = key.shape
    heads, width = value.shape[2:]
    shared = heads // groups
    keys, queries = _by_head(key), _by_head(query)
    values = _by_head(value.reshape(batch, length, groups, shared * width))
    met_keys, met_values = (
        one.mean(2, keepdim=True).expand(-1, -1, shared * chunk_size, -1)
        for one in (keys, values[..., :width])
    )
    scores = keys @ met_keys.transpose(2, 3)
    known, corrected = scores @ met_keys, scores @ met_values
    near = queries @ met_keys.transpose(2, 3) @ met_values
    state = keys.transpose(2, 3) @ values
    far = known @ state + queries @ state
    output = _by_head(far).reshape(value.shape) + _by_head(near + corrected).repeat_interleave(
        shared, dim=2
    )
    decay = g if g.dim() == beta.dim() else g.mean(-1)
    output = (output * (decay + beta)[..., None]).to(query.dtype)
    state = state.float().view(batch, groups, -1, shared, width).transpose(2, 3)
    return output, state.reshape(batch, heads, -1, width) if output_final_state else None


def _delta_step(query, key, value, g, beta, initial_state=None, **_more):
    """Takes and returns what the library's ``torch_recurrent_gated_delta_rule`` does."""
    shared = value.shape[2] // key.shape[2]
    keys, queries = (
        _by_head(one.repeat_interleave(shared, dim=2)).to(initial_state.dtype)
        for one in (key, query)
    )
    decay = g if g.dim() == beta.dim() else g.mean(-1)
    change = _by_head(value * (decay + beta)[..., None]).to(initial_state.dtype)
    state = torch.addcmul(initial_state, keys.transpose(2, 3), change)
    return _by_head(queries @ state).to(query.dtype), state


def _fuse_llama4_experts(_kind):
    """Experts of Llama 4 on the tokens that chose them; the library runs all on every token."""
    modeling = importlib.import_module("transformers.models.llama4.modeling_llama4")

    def fused(self, hidden_states):
        """Takes and returns what the library's ``Llama4TextMoe.forward`` does."""
        rows = hidden_states.reshape(-1, self.hidden_dim)
        logits = torch.nn.functional.linear(rows, self.router.weight)
        scores, chosen = torch.topk(logits, self.top_k, dim=1)
        experts = self.experts

        def run(inputs, bounds):
            """Both products of all experts, grouped."""
            both = torch._grouped_mm(inputs, experts.gate_up_proj, offs=bounds)
            gate, up = both.chunk(2, dim=-1)
            return torch._grouped_mm(up * experts.act_fn(gate), experts.down_proj, offs=bounds)

        out = routed(rows, run, chosen, self.num_experts)
        scale = torch.sigmoid(scores.float()).to(out.dtype)
        return self.shared_expert(rows) + (out * scale[..., None]).sum(1), logits

    modeling.Llama4TextMoe.forward = fused


def _fuse_dbrx_experts(_kind):
    """Experts of DBRX as grouped products; the library loops over them."""
    modeling = importlib.import_module("transformers.models.dbrx.modeling_dbrx")

    def fused(self, hidden_states, top_k_index, top_k_weights):
        """Takes and returns what the library's ``DbrxExperts.forward`` does."""
        rows, mlp = hidden_states.reshape(-1, self.hidden_size), self.mlp
        split = (self.num_experts, self.ffn_hidden_size, self.hidden_size)

        def run(inputs, bounds):
            """The three products of all experts, grouped."""
            gate, up = (
                torch._grouped_mm(inputs, one.view(split).transpose(1, 2), offs=bounds)
                for one in (mlp.w1, mlp.v1)
            )
            inner = mlp.activation_fn(gate) * up
            return torch._grouped_mm(inner, mlp.w2.view(split), offs=bounds)

        out = routed(rows, run, top_k_index, self.num_experts)
        return (out * top_k_weights[..., None]).sum(1).view(hidden_states.shape)

    modeling.DbrxExperts.forward = fused


#: Settings of a window of attention, and a length that no text has.
_WINDOWS, _LONGER_THAN_ALL = ("sliding_window", "attention_chunk_size"), 2**30


#: What is replaced, by model type.
def _count_padding(kind):
    """Sizes of a codec's convolutions as numbers; the library keeps them as tensors and reads them.

    A sound is padded to whole frames (Défossez et al., arXiv:2210.13438; `pad_for_conv1d`).
    """
    modeling = importlib.import_module("transformers.models.%s.modeling_%s" % (kind, kind))
    layer = getattr(modeling, "%sConv1d" % kind.capitalize())
    if getattr(layer, "counts_padding", False):
        return
    build = layer.__init__

    def built(self, *arguments, **named):
        """Takes what the library's layer does."""
        build(self, *arguments, **named)
        for name in ("stride", "kernel_size", "padding_total"):
            delattr(self, name)
        self.stride, (size,) = self.conv.stride[0], self.conv.kernel_size
        self.kernel_size = (size - 1) * self.conv.dilation[0] + 1
        self.padding_total = self.kernel_size - self.stride

    def missing(self, hidden_states):
        """Numbers that the last frame lacks."""
        length = hidden_states.shape[-1]
        return -(length - self.kernel_size + self.padding_total) % self.stride

    layer.__init__, layer._get_extra_padding_for_conv1d = built, missing
    layer.counts_padding = True


_FUSED = {
    **dict.fromkeys(("encodec", "mimi"), (_count_padding,)),
    "gpt_oss": (_fuse_attention_with_sinks,),
    **dict.fromkeys(
        ("nemotron_h", "mamba2", "falcon_h1", "bamba", "granitemoehybrid", "zamba2"),
        (_fuse_chunked_scan,),
    ),
    **dict.fromkeys(("mamba", "falcon_mamba", "jamba"), (_fuse_selective_scan,)),
    "rwkv": (_fuse_weighted_keys,),
    **dict.fromkeys(
        (
            "qwen3_next",
            "qwen3_5",
            "qwen3_5_text",
            "qwen3_5_moe",
            "qwen3_5_moe_text",
            "olmo_hybrid",
            "kimi_linear",
            "glm5_next",
            "bailing_hybrid",
        ),
        (_fuse_delta_rule,),
    ),
    "llama4": (_fuse_llama4_experts,),
    "llama4_text": (_fuse_llama4_experts,),
    "dbrx": (_fuse_dbrx_experts,),
}
