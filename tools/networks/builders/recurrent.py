"""RWKV-7 as its releases configure it.

Peng et al. 2025, "RWKV-7 Goose" (arXiv:2503.14456), section 4 and
its table of sizes; the recurrence runs as its chunked kernel does (chunks of 16).
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch_transformers.kernels import delta_chunks

_WORDS = 65_536
_HEAD = 64
_CHUNK = 16


class _Narrow(nn.Module):
    """Two thin layers and what they are added to."""

    def __init__(self, width, rank, has_base=True):
        super().__init__()
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        self.base = nn.Parameter(torch.empty(width)) if has_base else None

    def forward(self, x, between=None):
        x = self.up(self.down(x) if between is None else between(self.down(x)))
        return x if self.base is None else x + self.base


class _TimeMix(nn.Module):
    """Each token beside the one before it, and the state of all: a delta rule per channel."""

    def __init__(self, width, ranks, is_first):
        super().__init__()
        decay, rate, value, gate = ranks
        self.mixes = nn.Parameter(torch.empty(6, width))
        self.r, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.decay, self.rate = _Narrow(width, decay), _Narrow(width, rate)
        self.gate = _Narrow(width, gate, has_base=False)
        self.value = None if is_first else _Narrow(width, value)
        self.scales = nn.Parameter(torch.empty(3, width))
        self.norm = nn.GroupNorm(width // _HEAD, width)

    def forward(self, x, first):
        moved = F.pad(x, (0, 0, 1, -1)) - x
        read, decayed, keyed, valued, rated, gated = (x + moved * mix for mix in self.mixes)
        r, k, v = self.r(read), self.k(keyed), self.v(valued)
        first = v if first is None else first
        if self.value is not None:
            v = v + (first - v) * torch.sigmoid(self.value(valued))
        rate = torch.sigmoid(self.rate(rated))
        decay = self.decay(decayed, torch.tanh)
        key_scale, rate_scale, bonus = self.scales
        heads = [one.unflatten(-1, (-1, _HEAD)) for one in (r, k * key_scale, v, decay, rate)]
        y, _ = delta_chunks(*heads[:4], heads[4].mean(-1), chunk_size=_CHUNK)
        y = self.norm(y.reshape(-1, x.shape[-1])).view(x.shape)
        k = k * (1 + (rate - 1) * rate_scale)
        own = (r * k * bonus).unflatten(-1, (-1, _HEAD)).sum(-1, keepdim=True)
        y = y + (own * heads[2]).flatten(2)
        return self.o(y * self.gate(gated, torch.sigmoid)), first


class _ChannelMix(nn.Module):
    """A feed-forward of squares on each token and the one before it."""

    def __init__(self, width):
        super().__init__()
        self.mix = nn.Parameter(torch.empty(width))
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        x = x + (F.pad(x, (0, 0, 1, -1)) - x) * self.mix
        return self.down(torch.relu(self.up(x)).square())


class _Block(nn.Module):
    def __init__(self, width, ranks, is_first):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.time, self.channel = _TimeMix(width, ranks, is_first), _ChannelMix(width)

    def forward(self, x, first):
        mixed, first = self.time(self.norms[0](x), first)
        x = x + mixed
        return x + self.channel(self.norms[1](x)), first


class Rwkv7(nn.Module):
    """A language model that reads its text into states.

    Args:
        layers: Blocks.
        width: Hidden size, of heads of 64.
        ranks: Of the thin layers of decay, rate, value and gate.
    """

    kind = "language"
    taken = "a text is read; what would be written after it is not counted"

    def __init__(self, layers, width, ranks):
        super().__init__()
        self.words, self.before = nn.Embedding(_WORDS, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList([_Block(width, ranks, n == 0) for n in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, _WORDS, bias=False)

    def inputs(self, batch, seq):
        """Words."""
        return torch.empty((batch, seq), dtype=torch.int64)

    def forward(self, words):
        x, first = self.before(self.words(words)), None
        for block in self.blocks:
            x, first = block(x, first)
        return self.head(self.norm(x))


MODELS = {
    "rwkv7_0b1": lambda: Rwkv7(12, 768, (64, 64, 32, 128)),
    "rwkv7_0b4": lambda: Rwkv7(24, 1024, (64, 64, 32, 128)),
    "rwkv7_1b5": lambda: Rwkv7(24, 2048, (96, 96, 64, 256)),
    "rwkv7_2b9": lambda: Rwkv7(32, 2560, (96, 96, 64, 320)),
}
