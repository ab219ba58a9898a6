"""The U-Net of Stable Diffusion 1.5, layer by layer.

Rombach et al. 2022 (arXiv:2112.10752) with the sizes of the
release's ``unet/config.json``: 859,520,964 parameters.
"""

import torch
import torch.nn.functional as F
from torch import nn

_CONTEXT = 768
_HEADS = 8
_TIME = 1280


class ResidualBlock(nn.Module):
    """Two convolutions with the time embedding added between them."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(_TIME, outputs)
        self.norm2 = nn.GroupNorm(32, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, time):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class CrossAttention(nn.Module):
    """Attention over itself or over the text."""

    def __init__(self, width, context, *, heads=_HEADS):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(context, width, bias=False)
        self.v = nn.Linear(context, width, bias=False)
        self.o = nn.Linear(width, width)

    def forward(self, x, context):
        q, k, v = self._heads(self.q(x)), self._heads(self.k(context)), self._heads(self.v(context))
        h = F.scaled_dot_product_attention(q, k, v)
        return self.o(h.transpose(1, 2).reshape(x.shape))

    def _heads(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


class TransformerBlock(nn.Module):
    """Self-attention, attention to the text, and a gated feed-forward, on an image."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.inward = nn.GroupNorm(32, width, eps=1e-6), nn.Conv2d(width, width, 1)
        self.norm1, self.attention1 = nn.LayerNorm(width), CrossAttention(width, width)
        self.norm2, self.attention2 = nn.LayerNorm(width), CrossAttention(width, _CONTEXT)
        self.norm3 = nn.LayerNorm(width)
        self.gated, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)
        self.outward = nn.Conv2d(width, width, 1)

    def forward(self, x, context):
        batch, width, height, breadth = x.shape
        h = self.inward(self.norm(x)).permute(0, 2, 3, 1).reshape(batch, height * breadth, width)
        normed = self.norm1(h)
        h = h + self.attention1(normed, normed)
        h = h + self.attention2(self.norm2(h), context)
        value, gate = self.gated(self.norm3(h)).chunk(2, dim=-1)
        h = h + self.narrow(value * F.gelu(gate))
        h = h.reshape(batch, height, breadth, width).permute(0, 3, 1, 2)
        return x + self.outward(h)


class Level(nn.Module):
    """A residual block, with attention or without."""

    def __init__(self, inputs, outputs, has_attention):
        super().__init__()
        self.residual = ResidualBlock(inputs, outputs)
        self.attention = TransformerBlock(outputs) if has_attention else None

    def forward(self, x, time, context):
        x = self.residual(x, time)
        return x if self.attention is None else self.attention(x, context)


class DiffusionUNet(nn.Module):
    """Predicts the noise in a latent image from the time step and the text."""

    def __init__(self, base=320, factors=(1, 2, 4, 4)):
        super().__init__()
        widths = [base * f for f in factors]
        self.time1, self.time2 = nn.Linear(base, _TIME), nn.Linear(_TIME, _TIME)
        self.inward = nn.Conv2d(4, base, 3, padding=1)
        self.base = base
        kept, width = [base], base
        self.down, self.shrink = nn.ModuleList(), nn.ModuleList()
        for number, outputs in enumerate(widths):
            has_attention = number < 3
            for _ in range(2):
                self.down.append(Level(width, outputs, has_attention))
                width = outputs
                kept.append(width)
            if number < 3:
                self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                kept.append(width)
        self.middle1 = Level(width, width, True)
        self.middle2 = ResidualBlock(width, width)
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for number, outputs in reversed(list(enumerate(widths))):
            for _ in range(3):
                self.up.append(Level(width + kept.pop(), outputs, number < 3))
                width = outputs
            if number:
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm, self.outward = nn.GroupNorm(32, base), nn.Conv2d(base, 4, 3, padding=1)

    def forward(self, latents, steps, context):
        time = self.time2(F.silu(self.time1(self._sinusoid(steps))))
        x = self.inward(latents)
        kept = [x]
        for number, level in enumerate(self.down):
            x = level(x, time, context)
            kept.append(x)
            if number % 2 and number < 6:
                x = self.shrink[number // 2](x)
                kept.append(x)
        x = self.middle2(self.middle1(x, time, context), time)
        for number, level in enumerate(self.up):
            x = level(torch.cat((x, kept.pop()), dim=1), time, context)
            if number % 3 == 2 and number < 9:
                x = self.grow[number // 3](F.interpolate(x, scale_factor=2.0))
        return self.outward(F.silu(self.norm(x)))

    def _sinusoid(self, steps):
        frequencies = torch.empty(self.base // 2, device=steps.device)
        angles = steps[:, None] * frequencies[None, :]
        return torch.cat((angles.cos(), angles.sin()), dim=-1)


class DiffusionJob:
    """Noise prediction on 64×64 latents (512×512 images) with 77 text tokens."""

    kind, side, multiple = "image", 512, 64

    def __init__(self):
        self.model = DiffusionUNet()

    def inputs(self, batch):
        """Latents, time steps, text."""
        latents = torch.empty(batch, 4, self.side // 8, self.side // 8)
        return latents, torch.empty(batch), torch.empty(batch, 77, _CONTEXT)

    def loss(self, output, inputs):
        """Mean squared error against the noise."""
        return F.mse_loss(output, torch.empty_like(output))
