"""A Llama as Megatron-LM with Transformer Engine runs it, for tracing: what its fused kernels keep.

Each fused kernel is stood for by one operator of PyTorch that reads, writes and saves tensors of
the same sizes: SwiGLU keeps its input alone (`glu`), rotation of queries and keys keeps nothing,
RMSNorm its input and one number per row (as `layer_norm`),
the cross-entropy writes the gradient of the logits in their place.

Sources: NVIDIA/TransformerEngine 2.11, transformer_engine/pytorch/module/layernorm_linear.py and
triton/cross_entropy.py; NVIDIA/Megatron-LM, megatron/core/fusions/fused_bias_swiglu.py.
"""

import json
import os

import torch
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    """Grouped-query attention from one fused projection."""

    def __init__(self, hidden, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, hidden // heads
        self.qkv = nn.Linear(hidden, (heads + 2 * groups) * self.size, bias=False)
        self.proj = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        batch, seq, hidden = x.shape
        per_group = (self.heads // self.groups + 2) * self.size
        qkv = self.qkv(x).view(batch, seq, self.groups, per_group)
        q, k, v = qkv.split([per_group - 2 * self.size, self.size, self.size], dim=-1)
        q = rotated(q.reshape(batch, seq, self.heads, self.size))
        attended = functional.scaled_dot_product_attention(
            q.transpose(1, 2), rotated(k).transpose(1, 2), v.contiguous().transpose(1, 2),
            is_causal=True, enable_gqa=True,
        )  # fmt: skip
        return self.proj(attended.transpose(1, 2).reshape(batch, seq, hidden))


def rotated(x):
    """Rotary positions in one kernel: a new tensor, and nothing kept but a table of angles."""
    return x * torch.empty(x.shape[1], 1, x.shape[-1], device=x.device)


class Layer(nn.Module):
    """Attention and gated feed-forward, each after a norm and beside a residual."""

    def __init__(self, hidden, heads, groups, ffn):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden, bias=False), nn.LayerNorm(hidden, bias=False)
        self.attention = Attention(hidden, heads, groups)
        self.fc1 = nn.Linear(hidden, 2 * ffn, bias=False)
        self.fc2 = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(functional.glu(self.fc1(self.norm2(x))))


class Llama(nn.Module):
    """A decoder with an output layer of its own."""

    def __init__(self, layers, hidden, heads, groups, ffn, vocab):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList([Layer(hidden, heads, groups, ffn) for _ in range(layers)])
        self.norm = nn.LayerNorm(hidden, bias=False)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class _CrossEntropyInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target):
        ctx.save_for_backward(logits.detach())
        return functional.nll_loss(logits, target)

    @staticmethod
    def backward(ctx, gradient):
        (logits,) = ctx.saved_tensors
        return logits.mul_(gradient), None


class Job:
    """A training step on whole sequences."""

    def __init__(self, model):
        self.model = model

    def inputs(self, batch, seq=4096):
        """Token numbers."""
        return torch.zeros(batch, seq, dtype=torch.int64)

    def loss(self, logits, tokens):
        """Fused cross-entropy."""
        rows = logits.view(-1, logits.shape[-1])
        return _CrossEntropyInPlace.apply(rows, tokens.reshape(-1))


def build():
    """The job whose hyperparameters stand in the environment as ``TRACED_MODEL``."""
    return Job(Llama(**json.loads(os.environ["TRACED_MODEL"])))
