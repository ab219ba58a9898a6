"""U-Nets and linear transformers of diffusion as their releases configure them.

Podell et al. 2023 (SDXL), Rombach et al. 2022 (Stable Diffusion),
Xie et al. 2024 (SANA). Text encoders and decoders of latents run once and are not counted.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from networks.builders.stable_diffusion import CrossAttention, ResidualBlock

_TIME = 1280
_HEAD_WIDTH = 64
#: Of a side of a picture in one of a latent picture, of Stable Diffusion and of SANA.
_PIXELS, _SANA_PIXELS = 8, 32


class _TextLayer(nn.Module):
    """Attention to the picture and to the text, and a gated feed-forward."""

    def __init__(self, width, context):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(3)])
        self.own, self.text = (
            CrossAttention(width, size, heads=width // _HEAD_WIDTH) for size in (width, context)
        )
        self.gated, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x, context):
        normed = self.norms[0](x)
        x = x + self.own(normed, normed)
        x = x + self.text(self.norms[1](x), context)
        value, gate = self.gated(self.norms[2](x)).chunk(2, dim=-1)
        return x + self.narrow(value * F.gelu(gate))


class _Level(nn.Module):
    """A residual block, and as many layers of text as the level has."""

    def __init__(self, inputs, outputs, depth, context):
        super().__init__()
        self.residual = ResidualBlock(inputs, outputs)
        self.layers = nn.ModuleList([_TextLayer(outputs, context) for _ in range(depth)])
        self.norm = nn.GroupNorm(32, outputs, eps=1e-6) if depth else None
        self.inward = nn.Linear(outputs, outputs) if depth else None
        self.outward = nn.Linear(outputs, outputs) if depth else None

    def forward(self, x, time, context):
        x = self.residual(x, time)
        if self.norm is None:
            return x
        batch, width, height, breadth = x.shape
        flat = self.norm(x).permute(0, 2, 3, 1).reshape(batch, height * breadth, width)
        flat = self.inward(flat)
        for layer in self.layers:
            flat = layer(flat, context)
        flat = self.outward(flat).reshape(batch, height, breadth, width)
        return x + flat.permute(0, 3, 1, 2)


class LatentUNet(nn.Module):
    """One denoising step of a latent picture.

    Args:
        widths: Channels of each level.
        depths: Layers of text of each level.
        context: Width of the text.
        side: Of the latent picture.
        added: Width of further conditions, such as sizes and a pooled text; 0 for none.
        guided: Passes per item: two where guidance needs the item without its prompt.
    """

    taken = "a sample is one denoising step"

    def __init__(self, widths, depths, context, side, added=0, guided=1):
        super().__init__()
        self.sizes = (context, added, guided)
        self.side, self.multiple = _PIXELS * side, _PIXELS * 2 ** (len(widths) - 1)
        # A single pixel at the lowest level is copied less often than any more are.
        self.least = 2 * self.multiple
        base, last = widths[0], len(widths) - 1
        self.time = nn.Sequential(nn.Linear(base, _TIME), nn.SiLU(), nn.Linear(_TIME, _TIME))
        self.added = (
            nn.Sequential(nn.Linear(added, _TIME), nn.SiLU(), nn.Linear(_TIME, _TIME))
            if added
            else None
        )
        self.inward = nn.Conv2d(4, base, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        self.shrink, self.grow = nn.ModuleList(), nn.ModuleList()
        kept, width = [base], base
        for number, (outputs, depth) in enumerate(zip(widths, depths)):
            for _ in range(2):
                self.down.append(_Level(width, outputs, depth, context))
                width = outputs
                kept.append(width)
            if number < last:
                self.shrink.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                kept.append(width)
        self.middle1 = _Level(width, width, max(depths[-1], 1), context)
        self.middle2 = ResidualBlock(width, width)
        for number, (outputs, depth) in reversed(list(enumerate(zip(widths, depths)))):
            for _ in range(3):
                self.up.append(_Level(width + kept.pop(), outputs, depth, context))
                width = outputs
            if number:
                self.grow.append(nn.Conv2d(width, width, 3, padding=1))
        self.norm, self.outward = nn.GroupNorm(32, base), nn.Conv2d(base, 4, 3, padding=1)

    def inputs(self, batch):
        """Latent pictures, waves of their times, the text, and what else conditions them."""
        (context, added, guided), side = self.sizes, self.side // _PIXELS
        items, base = guided * batch, self.inward.out_channels
        given = (torch.empty(items, 4, side, side), torch.empty(items, base))
        text = torch.empty(items, 77, context)
        return (*given, text, torch.empty(items, added)) if added else (*given, text)

    def loss(self, output, _inputs):
        """Squared error of the noise."""
        return F.mse_loss(output, torch.empty_like(output))

    def forward(self, latents, waves, context, more=None):
        time = self.time(waves)
        if more is not None:
            time = time + self.added(more)
        x = self.inward(latents)
        kept = [x]
        for number, level in enumerate(self.down):
            x = level(x, time, context)
            kept.append(x)
            if number % 2 and number // 2 < len(self.shrink):
                x = self.shrink[number // 2](x)
                kept.append(x)
        x = self.middle2(self.middle1(x, time, context), time)
        for number, level in enumerate(self.up):
            x = level(torch.cat((x, kept.pop()), dim=1), time, context)
            if number % 3 == 2 and number // 3 < len(self.grow):
                x = self.grow[number // 3](F.interpolate(x, scale_factor=2.0))
        return self.outward(F.silu(self.norm(x)))


class _LinearAttention(nn.Module):
    """Attention whose cost grows with the patches: values times keys first, in FP32."""

    def __init__(self, width, norm):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.RMSNorm(width) for _ in range(2)] if norm else [])

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).chunk(3, -1)
        if len(self.norms):
            q, k = self.norms[0](q), self.norms[1](k)
        q, k, v = (one.transpose(1, 2).reshape(batch, -1, 32, tokens) for one in (q, k, v))
        q, k = torch.relu(q).float(), torch.relu(k).float()
        sums = F.pad(v.float(), (0, 0, 0, 1), value=1.0) @ k.transpose(2, 3)
        found = sums @ q
        found = (found[:, :, :-1] / (found[:, :, -1:] + 1e-15)).to(x.dtype)
        return self.out(found.reshape(batch, width, tokens).transpose(1, 2))


class _SanaBlock(nn.Module):
    """Linear attention, attention to the text and a gated convolution over the picture."""

    def __init__(self, width, norm, head):
        super().__init__()
        inner, self.head = int(2.5 * width), head
        self.own = _LinearAttention(width, norm)
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.text_norms = nn.ModuleList([nn.RMSNorm(width) for _ in range(2)] if norm else [])
        self.o = nn.Linear(width, width)
        self.wide = nn.Conv2d(width, 2 * inner, 1)
        self.deep = nn.Conv2d(2 * inner, 2 * inner, 3, padding=1, groups=2 * inner)
        self.narrow = nn.Conv2d(inner, width, 1, bias=False)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.scales = nn.Parameter(torch.empty(6, width))

    def forward(self, x, text, time):
        shift, scale, gate, shift2, scale2, gate2 = (self.scales + time).chunk(6, 1)
        x = x + gate * self.own(self.norm(x) * (1 + scale) + shift)
        x = x + self.o(self._attended(x, text))
        y = self.norm(x) * (1 + scale2) + shift2
        y = y.unflatten(1, (math.isqrt(y.shape[1]),) * 2).permute(0, 3, 1, 2)
        value, gates = self.deep(F.silu(self.wide(y))).chunk(2, 1)
        y = self.narrow(value * F.silu(gates)).flatten(2).transpose(1, 2)
        return x + gate2 * y

    def _attended(self, x, text):
        k, v = self.kv(text).chunk(2, -1)
        q = self.q(x)
        if len(self.text_norms):
            q, k = self.text_norms[0](q), self.text_norms[1](k)
        q, k, v = (one.unflatten(-1, (-1, self.head)).transpose(1, 2) for one in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)


class Sana(nn.Module):
    """One denoising step of SANA with guidance: pictures of 1024 pixels are 32 x 32 patches.

    Args:
        layers: Blocks.
        norm: Queries and keys are normalised, as SANA 1.5 does.
        width: Hidden size.
        side: Of a picture.
        head: Width of a head that attends to the text.
    """

    taken = "a sample is one denoising step with guidance"
    multiple, least = _SANA_PIXELS, 2 * _SANA_PIXELS

    def __init__(self, layers, norm=False, width=2240, side=1024, head=112):
        super().__init__()
        self.patch, self.head = nn.Conv2d(32, width, 1), nn.Linear(width, 32)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.scales = nn.Linear(width, 6 * width)
        self.caption = nn.Sequential(nn.Linear(2304, width), nn.GELU(), nn.Linear(width, width))
        self.caption_norm = nn.RMSNorm(width)
        self.blocks = nn.ModuleList([_SanaBlock(width, norm, head) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.last, self.side = nn.Parameter(torch.empty(2, width)), side

    def inputs(self, batch):
        """Latent pictures with and without their prompt, waves of their times, the text."""
        side = self.side // _SANA_PIXELS
        latents = torch.empty(2 * batch, 32, side, side)
        return latents, torch.empty(2 * batch, 256), torch.empty(2 * batch, 300, 2304)

    def forward(self, latents, waves, text):
        time = self.time(waves)
        scales = self.scales(F.silu(time)).unflatten(1, (6, -1))
        text = self.caption_norm(self.caption(text))
        x = self.patch(latents).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x, text, scales)
        shift, scale = (self.last + time[:, None]).chunk(2, 1)
        return self.head(self.norm(x) * (1 + scale) + shift)


def _sd2(**more):
    return LatentUNet((320, 640, 1280, 1280), (1, 1, 1, 0), 1024, **more)


def _sdxl(**more):
    return LatentUNet((320, 640, 1280), (0, 2, 10), 2048, 128, added=2816, **more)


MODELS = {
    "sd2_unet": lambda: _sd2(side=64),
    "sd2": lambda: _sd2(side=96, guided=2),
    "sd2_base": lambda: _sd2(side=64, guided=2),
    "sdxl_unet": _sdxl,
    "sdxl": lambda: _sdxl(guided=2),
    "sana_600m": lambda: Sana(28, width=1152, head=72),
    "sana_1600m": lambda: Sana(20),
    "sana15_1600m": lambda: Sana(20, norm=True),
    "sana15_4800m": lambda: Sana(60, norm=True),
}
