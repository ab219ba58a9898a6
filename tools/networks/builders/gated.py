"""Transformers of diffusion with gated feed-forwards: FLUX.2 and Z-Image.

huggingface/diffusers, transformer_flux2.py and
transformer_z_image.py (recalled 2026-11-22); sizes of FLUX.2: black-forest-labs/flux2. Text
encoders, time embeddings and the decoder of latents are not counted: they run once, or on one
vector.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch_networks.denoisers import RmsNorm, turned

from networks.builders.streams import OfPatches

_HEAD_WIDTH = 128


class _Heads(nn.Module):
    """Queries and keys of 128 numbers a head, normalised and turned by their positions."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([RmsNorm(_HEAD_WIDTH) for _ in range(2)])

    def split(self, qkv):
        """(queries, keys, values), each (batch, heads, tokens, 128)."""
        q, k, v = (one.unflatten(-1, (-1, _HEAD_WIDTH)).transpose(1, 2) for one in qkv.chunk(3, -1))
        return self.norms[0](q), self.norms[1](k), v


def _attended(q, k, v):
    """(batch, tokens, width) of all heads."""
    y = F.scaled_dot_product_attention(turned(q), turned(k), v)
    return y.transpose(1, 2).flatten(2)


def _gated(x):
    """SwiGLU: half of what a layer gives, times the other half."""
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


class _Stream(nn.Module):
    """What one kind of token passes in a block of two streams."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.heads = _Heads()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 6 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def attention_inputs(self, x, scales):
        """Of every head."""
        return self.heads.split(self.qkv(self.norm(x) * (1 + scales[1]) + scales[0]))

    def finished(self, x, attended, scales):
        """With what was attended to, through the feed-forward."""
        x = x + scales[2] * self.out(attended)
        inner = self.up(self.norm(x) * (1 + scales[4]) + scales[3])
        return x + scales[5] * self.down(_gated(inner))


class _TwoStreams(nn.Module):
    """Attention of picture and text together, all else apart."""

    def __init__(self, width):
        super().__init__()
        self.streams = nn.ModuleList([_Stream(width) for _ in range(2)])

    def forward(self, tokens, scales):
        parts = [s.attention_inputs(x, of) for s, x, of in zip(self.streams, tokens, scales)]
        y = _attended(*(torch.cat(both, 2) for both in zip(*parts)))
        found = y.split([x.shape[1] for x in tokens], 1)
        return [s.finished(x, y, of) for s, x, y, of in zip(self.streams, tokens, found, scales)]


class _OneStream(nn.Module):
    """Attention and feed-forward side by side, their layers in common."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.heads, self.width = _Heads(), width
        self.inward = nn.Linear(width, 9 * width, bias=False)
        self.outward = nn.Linear(4 * width, width, bias=False)

    def forward(self, x, scales):
        qkv, inner = self.inward(self.norm(x) * (1 + scales[1]) + scales[0]).split(
            (3 * self.width, 6 * self.width), -1
        )
        both = torch.cat((_attended(*self.heads.split(qkv)), _gated(inner)), -1)
        return x + scales[2] * self.outward(both)


class Flux2(OfPatches, nn.Module):
    """One denoising step of FLUX.2 on a picture of 1024 × 1024: 4096 patches, 512 tokens of text.

    Scales of all blocks of a kind are the same, and made once.

    Args:
        double: Blocks of two streams.
        single: Blocks of one.
        width: Hidden size, of heads of 128.
        text: Width of the encoded prompt.
    """

    taken = "a sample is one denoising step"

    def __init__(self, double, single, width, text):
        super().__init__()
        self.text = text
        self.show(4096)
        self.patch, self.head = (
            nn.Linear(128, width, bias=False), nn.Linear(width, 128, bias=False)
        )  # fmt: skip
        self.prompt = nn.Linear(text, width, bias=False)
        self.scales = nn.ModuleList([nn.Linear(width, n * width, bias=False) for n in (6, 6, 3, 2)])
        self.apart = nn.ModuleList([_TwoStreams(width) for _ in range(double)])
        self.together = nn.ModuleList([_OneStream(width) for _ in range(single)])
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def inputs(self, batch):
        """Patches, the encoded prompt, the vector of time and guidance."""
        return (
            torch.empty(batch, self.num_patches, 128),
            torch.empty(batch, 512, self.text),
            torch.empty(batch, self.patch.out_features),
        )

    def loss(self, output, _inputs):
        """Mean squared error against the noise."""
        return F.mse_loss(output, torch.empty_like(output))

    def forward(self, patches, prompt, vector):
        picture, text, joint, last = (
            made(F.silu(vector))[:, None].chunk(made.out_features // made.in_features, -1)
            for made in self.scales
        )
        tokens = [self.prompt(prompt), self.patch(patches)]
        for block in self.apart:
            tokens = block(tokens, (text, picture))
        x = torch.cat(tokens, 1)
        for block in self.together:
            x = block(x, joint)
        x = x[:, prompt.shape[1] :]
        return self.head(self.norm(x) * (1 + last[0]) + last[1])


class _ZLayer(nn.Module):
    """Attention and a gated feed-forward, normed before and after; scales of time, or none."""

    def __init__(self, width, conditions):
        super().__init__()
        inner = width * 8 // 3
        self.heads = _Heads()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.norms = nn.ModuleList([RmsNorm(width) for _ in range(4)])
        self.scales = nn.Linear(conditions, 4 * width) if conditions else None

    def forward(self, x, vector):
        scales = (0.0, 1.0, 0.0, 1.0)
        if self.scales is not None:
            scale, gate, scale2, gate2 = self.scales(vector)[:, None].chunk(4, -1)
            scales = (scale, gate.tanh(), scale2, gate2.tanh())
        q, k, v = self.heads.split(self.qkv(self.norms[0](x) * (1 + scales[0])))
        x = x + scales[1] * self.norms[1](self.out(_attended(q, k, v)))
        inner = self.up(self.norms[2](x) * (1 + scales[2]))
        return x + scales[3] * self.norms[3](self.down(_gated(inner)))


class ZImage(OfPatches, nn.Module):
    """One denoising step of Z-Image (arXiv:2511.22699) on a picture of 1024 × 1024.

    Patches and text pass two layers each, then thirty together; the turbo needs no guidance.
    """

    taken = "a sample is one denoising step without guidance"

    def __init__(self, layers=30, width=3840, text=2560):
        super().__init__()
        self.text = text
        self.show(4096)
        self.patch, self.head = nn.Linear(64, width), nn.Linear(width, 64)
        self.prompt = nn.Sequential(RmsNorm(text), nn.Linear(text, width))
        self.of_patches = nn.ModuleList([_ZLayer(width, 256) for _ in range(2)])
        self.of_text = nn.ModuleList([_ZLayer(width, 0) for _ in range(2)])
        self.layers = nn.ModuleList([_ZLayer(width, 256) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.scale = nn.Linear(256, width)

    def inputs(self, batch):
        """Patches, the encoded prompt, the vector of time."""
        return (
            torch.empty(batch, self.num_patches, 64),
            torch.empty(batch, 512, self.text),
            torch.empty(batch, 256),
        )

    def loss(self, output, _inputs):
        """Mean squared error against the noise."""
        return F.mse_loss(output, torch.empty_like(output))

    def forward(self, patches, prompt, vector):
        x, text = self.patch(patches), self.prompt(prompt)
        for layer in self.of_patches:
            x = layer(x, vector)
        for layer in self.of_text:
            text = layer(text, vector)
        joined = torch.cat((x, text), 1)
        for layer in self.layers:
            joined = layer(joined, vector)
        x = joined[:, : x.shape[1]]
        return self.head(self.norm(x) * (1 + self.scale(F.silu(vector))[:, None]))
