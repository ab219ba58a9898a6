"""Transformers of diffusion that are told a class instead of a text (DiT, SiT).

Peebles and Xie 2023 (arXiv:2212.09748, table 1); Ma et al. 2024 (arXiv:2401.08740) train the same
network on another path.
"""

import torch
import torch.nn.functional as F
from torch import nn


class _Block(nn.Module):
    """Attention and a feed-forward whose scales, shifts and gates follow from the class."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = nn.Linear(width, 6 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, told):
        batch, length, width = x.shape
        shift, scale, gate, shift2, scale2, gate2 = self.modulation(F.silu(told))[:, None].chunk(
            6, -1
        )
        y = self.qkv(self.norm(x) * (1 + scale) + shift)
        q, k, v = y.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + gate * self.out(y)
        y = self.norm(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(F.gelu(self.up(y), approximate="tanh"))


class ClassTransformer(nn.Module):
    """One pass of DiT over latents of pictures, each pixel of which stands for eight.

    Args:
        layers: Blocks.
        width: Hidden size.
        heads: Of attention.
        patch: Side of a patch of latents.
    """

    side = 256

    def __init__(self, layers, width, heads, patch=2):
        super().__init__()
        self.patch, self.multiple = patch, 8 * patch
        self.cut = nn.Conv2d(4, width, patch, patch)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.classes = nn.Embedding(1001, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.modulation = nn.Linear(width, 2 * width)
        self.head = nn.Linear(width, patch * patch * 8)

    def inputs(self, batch):
        """Latents, waves of the times, and classes."""
        latents = torch.empty(batch, 4, self.side // 8, self.side // 8)
        return latents, torch.empty(batch, 256), torch.empty(batch, dtype=torch.int64)

    def loss(self, output, _inputs):
        """Squared error of the noise."""
        return F.mse_loss(output, torch.empty_like(output))

    def forward(self, latents, times, classes):
        x = self.cut(latents).flatten(2).transpose(1, 2)
        x = x + torch.empty(x.shape[1], x.shape[2], device=x.device)
        told = self.time(times) + self.classes(classes)
        for block in self.blocks:
            x = block(x, told)
        shift, scale = self.modulation(F.silu(told))[:, None].chunk(2, -1)
        return self.head(self.norm(x) * (1 + scale) + shift)


MODELS = {
    "dit_s": lambda: ClassTransformer(12, 384, 6),
    "dit_b": lambda: ClassTransformer(12, 768, 12),
    "dit_l": lambda: ClassTransformer(24, 1024, 16),
    "dit_xl": lambda: ClassTransformer(28, 1152, 16),
}
