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
    """Unfused attention: scores are written, normalised, dropped and read again at full length.

    The sequence comes first, as in Megatron-LM, so that the products read heads in place.
    """

    def __init__(self, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, q, k, v):
        scores = torch.bmm(q.transpose(0, 1), k.permute(1, 2, 0))
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return torch.bmm(weights, v.transpose(0, 1))


class Layer(nn.Module):
    """A transformer block; hidden states are (sequence, batch, hidden)."""

    def __init__(self, hidden, heads, dropout):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.core = nn.ModuleList([Core(dropout)])
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        seq, batch, hidden = x.shape
        size = hidden // self.heads
        qkv = self.qkv(self.norm1(x)).view(seq, batch * self.heads, 3 * size)
        attended = self.core[0](*qkv.chunk(3, dim=-1))
        attended = attended.transpose(0, 1).reshape(seq, batch, hidden)
        x = x + self.dropout(self.proj(attended))
        return x + self.dropout(self.down(functional.gelu(self.up(self.norm2(x)))))


def letters(number):
    """A number in letters, for patterns of names that must not find a digit: 012 is ``abc``."""
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:03d}")


class Megatron(nn.Module):
    """Decoder with tied embeddings; takes (batch, sequence), returns logits of the same order."""

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
        x = self.dropout(x.transpose(0, 1).contiguous())
        for name, module in self.named_children():
            if name.startswith("layer_"):
                x = module(x)
        logits = functional.linear(self.norm(x), self.embedding.weight)
        return logits.transpose(0, 1).contiguous()


def build():
    """The model whose hyperparameters stand in the environment as ``MEGATRON_MODEL``."""
    pairs = (part.split("=") for part in os.environ["MEGATRON_MODEL"].split(","))
    numbers = {name: int(value) for name, value in pairs}
    assert math.gcd(numbers["hidden"], numbers["heads"]) == numbers["heads"]
    return Megatron(**numbers)
