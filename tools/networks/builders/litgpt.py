"""LitGPT's decoder of October 2023 with its adapters: all that autograd keeps, all that waits.

The whole model is BF16 (``--precision bf16-true``); adapters alone are trained. Logits stand in one
piece, which is what sequences of up to 128 tokens have.

Sources: Lightning-AI/litgpt, lit_gpt/model.py, lora.py, adapter.py, adapter_v2.py, rmsnorm.py and
finetune/lora.py; Lightning-AI/pytorch-lightning 2.1, lightning/fabric/plugins/precision/half.py
(what a module returns is converted to FP32).
"""

import functools
import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

RANK = 8
DROPOUT = 0.05
PROMPT_LENGTH = 10
FIRST_ADAPTED_LAYER = 2


class RMSNorm(nn.Module):
    """Normalises in FP32."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        wide = x.float()
        normed = wide * torch.rsqrt(torch.mean(wide * wide, dim=-1, keepdim=True) + 1e-5)
        return (self.weight * normed).to(x.dtype)


class LoraQueryValue(nn.Module):
    """One projection to queries, keys and values with low-rank updates of the first and last."""

    def __init__(self, hidden, bias):
        super().__init__()
        self.linear = nn.Linear(hidden, 3 * hidden, bias=bias)
        self.lora_a = nn.Parameter(torch.empty(2 * RANK, hidden))
        self.lora_b = nn.Parameter(torch.empty(2 * hidden, RANK))
        self.dropout = nn.Dropout(DROPOUT)
        self.hidden = hidden
        self.lora_ind = [*range(hidden), *range(2 * hidden, 3 * hidden)]

    def forward(self, x):
        reduced = functional.linear(self.dropout(x), self.lora_a)
        update = functional.conv1d(
            reduced.transpose(-2, -1), self.lora_b.unsqueeze(-1), groups=2
        ).transpose(-2, -1)
        return self.linear(x) + self._padded(update) * 2.0

    def _padded(self, update):
        """A list of all columns becomes a tensor in every call, as `zero_pad` does it."""
        update = update.transpose(0, 1)
        rows = update.reshape(-1, 2 * self.hidden)
        target = update.new_zeros(rows.shape[0], 3 * self.hidden)
        columns = torch.tensor(self.lora_ind, device=update.device)
        placed = target.index_copy(1, columns, rows)
        return placed.view(*update.shape[:-1], 3 * self.hidden).transpose(0, 1)


class ScaledLinear(nn.Module):
    """Adapter v2: a trained bias and scale on what a frozen layer computes."""

    def __init__(self, inputs, outputs, bias):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.adapter_bias = nn.Parameter(torch.zeros(outputs))
        self.adapter_scale = nn.Parameter(torch.ones(outputs))

    def forward(self, x):
        return self.adapter_scale * (self.linear(x) + self.adapter_bias)


class Attention(nn.Module):
    """Attention with rotary positions and, from the third layer on, attention to a prompt."""

    def __init__(self, spec, index):
        super().__init__()
        hidden, bias = spec["hidden"], spec["bias"]
        self.heads, self.method = spec["heads"], spec["method"]
        self.size = hidden // self.heads
        self.num_rotated = int(spec["rotary_frac"] * self.size)
        if self.method == "lora":
            self.attn = LoraQueryValue(hidden, bias)
        else:
            self.attn = _linear(spec, hidden, 3 * hidden)
        self.proj = _linear(spec, hidden, hidden)
        self.has_prompt = self.method.startswith("adapter") and index >= FIRST_ADAPTED_LAYER
        if self.has_prompt:
            self.adapter_wte = nn.Embedding(PROMPT_LENGTH, hidden)
            self.gating_factor = nn.Parameter(torch.zeros(1, 1, self.heads, 1))

    def forward(self, x, angles):
        batch, length, hidden = x.shape
        q, k, v = self._split(self.attn(x))
        q, k = self._rotated(q, angles), self._rotated(k, angles)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        if self.has_prompt:
            _, key, value = self._split(self.attn(self.adapter_wte.weight[None]))
            mask = torch.ones(length, PROMPT_LENGTH, dtype=torch.bool, device=x.device)
            prompt = functional.scaled_dot_product_attention(q, key, value, attn_mask=mask)
            y = y + self.gating_factor * prompt.transpose(1, 2)
        return self.proj(y.reshape(batch, length, hidden))

    def _split(self, qkv):
        parts = qkv.view(qkv.shape[0], qkv.shape[1], self.heads, 3, self.size)
        return (part.squeeze(2) for part in parts.permute(0, 2, 3, 1, 4).split(1, dim=2))

    def _rotated(self, x, angles):
        cos, sin = (a[: x.shape[2]] for a in angles)
        first = x[..., : self.num_rotated]
        half = self.num_rotated // 2
        turned = torch.cat((-first[..., half:], first[..., :half]), dim=-1)
        turned = (first * cos + turned * sin).type_as(x)
        return torch.cat((turned, x[..., self.num_rotated :]), dim=-1)


class FeedForward(nn.Module):
    """GELU between two layers, or SiLU times a second one."""

    def __init__(self, spec):
        super().__init__()
        hidden, ffn = spec["hidden"], spec["ffn"]
        self.fc_1 = _linear(spec, hidden, ffn)
        self.fc_2 = _linear(spec, hidden, ffn) if spec["gated"] else None
        self.proj = _linear(spec, ffn, hidden)

    def forward(self, x):
        first = self.fc_1(x)
        if self.fc_2 is None:
            return self.proj(functional.gelu(first))
        return self.proj(functional.silu(first) * self.fc_2(x))


class Block(nn.Module):
    """Attention and feed-forward, one after the other or beside each other."""

    def __init__(self, spec, index):
        super().__init__()
        self.norm_1 = _norm(spec)
        self.attn = Attention(spec, index)
        self.norm_2 = None if spec["shared_norm"] else _norm(spec)
        self.mlp = FeedForward(spec)
        self.is_parallel = spec["parallel"]

    def forward(self, x, angles):
        normed = self.norm_1(x)
        attended = self.attn(normed, angles)
        if self.is_parallel:
            return self.mlp(normed if self.norm_2 is None else self.norm_2(x)) + attended + x
        x = attended + x
        return self.mlp(self.norm_2(x)) + x


class Decoder(nn.Module):
    """Embedding, blocks, and logits, in chunks where a number of tokens is given."""

    def __init__(self, spec, chunk_tokens=None):
        super().__init__()
        self.spec, self._chunk_tokens = spec, chunk_tokens
        self.lm_head = _linear(dict(spec, bias=False), spec["hidden"], spec["vocab"])
        self.wte = nn.Embedding(spec["vocab"], spec["hidden"])
        self.h = nn.ModuleList([Block(spec, index) for index in range(spec["layers"])])
        self.ln_f = _norm(spec)

    def forward(self, tokens):
        size = int(self.spec["rotary_frac"] * self.spec["hidden"] // self.spec["heads"])
        angles = torch.empty(2, tokens.shape[1], size, device=tokens.device, dtype=torch.bfloat16)
        x = self.wte(tokens)
        for block in self.h:
            x = block(x, angles.unbind())
        x = self.ln_f(x)
        parts = x.split(self._chunk_tokens, dim=1) if self._chunk_tokens else (x,)
        chunks = [self.lm_head(part) for part in parts]
        return [logits.float() for logits in chunks]  # HalfPrecision.convert_output


def _linear(spec, inputs, outputs):
    made = ScaledLinear if spec["method"] == "adapter-v2" else nn.Linear
    return made(inputs, outputs, bias=spec["bias"])


def _norm(spec):
    return RMSNorm(spec["hidden"]) if spec["rms"] else nn.LayerNorm(spec["hidden"])


#: Parts of the names of trained parameters.
TRAINED = {
    "lora": ("lora_",),
    "adapter": ("adapter_wte", "gating_factor"),
    "adapter-v2": ("adapter_", "gating_factor", "norm_1", "norm_2", "ln_f"),
}


class FineTuning:
    """A model whose adapters are trained.

    ``method`` is ``lora``, ``adapter`` (prompts in the upper layers) or ``adapter-v2`` (these, and
    a scale and a bias beside every dense layer).
    """

    def __init__(self, sizes, method, chunk_tokens=None):
        self.model = Decoder(dict(sizes, method=method), chunk_tokens).bfloat16()
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad = any(part in name for part in TRAINED[method])

    def inputs(self, batch, seq):
        """Token numbers."""
        return torch.zeros(batch, seq, dtype=torch.int64)

    def loss(self, chunks, tokens):
        """Cross-entropy of the next token."""
        logits = chunks[0][..., :-1, :]
        return functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), tokens[..., 1:].reshape(-1)
        )


def _made(name, method):
    path = Path(__file__).with_name("litgpt_models.json")
    return FineTuning(json.loads(path.read_text(encoding="utf-8"))["models"][name], method)


MODELS = {
    f"{name}-{method}": functools.partial(_made, name, method)
    for name in ("phi-1.5", "stablelm-alpha-3b", "llama-2-7b", "llama-2-13b")
    for method in TRAINED
}
