"""Megatron-LM's GPT as of 2021 to 2023, for tracing: fused QKV, attention core without flash.

Layers are named by number, or, with ``core_only``, by letters with a numbered attention core, so
that block-wise recomputation recomputes the core alone ("selective recomputation").
"""

import math
import os

import torch
from torch import nn
from torch.nn import functional


class Core(nn.Module):
    """Unfused attention: the products as one attention op, and beside it what unfused kernels add.

    Scores are written, normalised, dropped and read again at full length, forward and backward;
    the two small products that stand for writing and reading them do next to no arithmetic.
    """

    def __init__(self, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, q, k, v):
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = q[..., :1] * k[..., :1].transpose(-1, -2)
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return attended + weights.sum(dim=-1, keepdim=True)


class Layer(nn.Module):
    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.core = nn.ModuleList([Core(dropout)])
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        batch, seq, hidden = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, seq, self.heads, 3 * hidden // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.chunk(3, dim=-1))
        attended = self.core[0](q, k, v).transpose(1, 2).reshape(batch, seq, hidden)
        x = x + self.dropout(self.proj(attended))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))


def letters(number):
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:03d}")


class Megatron(nn.Module):
    def __init__(self, layers, hidden, heads, vocab, positions, core_only=0, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.position = nn.Embedding(positions, hidden)
        self.dropout = nn.Dropout(dropout)
        for number in range(layers):
            name = "layer_" + letters(number) if core_only else f"layer_{number}"
            self.add_module(name, Layer(hidden, heads, dropout))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1]))
        x = self.dropout(x)
        for name, module in self.named_children():
            if name.startswith("layer_"):
                x = module(x)
        return functional.linear(self.norm(x), self.embedding.weight)


def build():
    """The model whose hyperparameters stand in the environment as ``MEGATRON_MODEL``."""
    pairs = (part.split("=") for part in os.environ["MEGATRON_MODEL"].split(","))
    numbers = {name: int(value) for name, value in pairs}
    assert math.gcd(numbers["hidden"], numbers["heads"]) == numbers["heads"]
    return Megatron(**numbers)
