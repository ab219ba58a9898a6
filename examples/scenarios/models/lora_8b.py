"""Llama 3 8B with rank-16 adapters on its attention, the base frozen in BF16: for `03-...yaml`.

Needs torch only. `paceline plan lora_8b:train` from this folder.
"""

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, RANK = 32, 4096, 32, 8, 14336, 128256, 16


class Adapted(nn.Module):
    """A frozen projection plus a trainable low-rank product (Hu et al. 2021, arXiv:2106.09685)."""

    def __init__(self, inner, outer):
        super().__init__()
        self.base = nn.Linear(inner, outer, bias=False)
        self.down = nn.Linear(inner, RANK, bias=False)
        self.up = nn.Linear(RANK, outer, bias=False)
        self.base.weight.requires_grad_(False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        size = HIDDEN // HEADS
        self.before, self.after = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.query, self.out = Adapted(HIDDEN, HIDDEN), Adapted(HIDDEN, HIDDEN)
        self.key, self.value = Adapted(HIDDEN, KV_HEADS * size), Adapted(HIDDEN, KV_HEADS * size)
        self.gate = nn.Linear(HIDDEN, FFN, bias=False)
        self.rise = nn.Linear(HIDDEN, FFN, bias=False)
        self.fall = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        normal = self.before(x)
        query = self.query(normal).view(batch, length, HEADS, -1).transpose(1, 2)
        key = self.key(normal).view(batch, length, KV_HEADS, -1).transpose(1, 2)
        value = self.value(normal).view(batch, length, KV_HEADS, -1).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, HIDDEN))
        normal = self.after(x)
        return x + self.fall(F.silu(self.gate(normal)) * self.rise(normal))


class Llama(nn.Module):
    """What paceline needs beside the model: the kind of work, and a batch of inputs."""

    kind = "language"

    def inputs(self, batch, length):
        return torch.zeros(batch, length, dtype=torch.long)

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train():
    """The model with everything frozen but the adapters."""
    model = Llama().to(torch.bfloat16)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".down." in name or ".up." in name)
    return model
