"""Blocks of which YOLOv5 to YOLO26 are laid, each named by what it does.

Standard library and torch only. Their names in the releases stand in parentheses.
"""

import torch
import torch.nn.functional as F
from torch import nn


def conv(inputs, outputs, kernel=1, stride=1, groups=1, is_active=True):
    """A convolution that keeps the size at a stride of one, its norm, and SiLU."""
    padding = (kernel - 1) // 2
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03),
    ]
    return nn.Sequential(*layers, *([nn.SiLU(inplace=True)] if is_active else []))


def repeated(make, width, blocks):
    """As many blocks of a width, one after another."""
    return nn.Sequential(*[make(width) for _ in range(blocks)])


class Summed(nn.Module):
    """Two convolutions of one picture, added before SiLU (RepConv, RepVGGDW).

    In inference they are merged into the larger one, as their releases do before they run it.
    """

    def __init__(self, width, kernels, groups=1, outputs=None):
        super().__init__()
        made = [conv(width, outputs or width, k, 1, groups, False) for k in kernels]
        self.parts = nn.ModuleList(made)

    def forward(self, x):
        """As many places as ``x`` has; in inference only the larger convolution runs."""
        wide, narrow = self.parts
        return F.silu(wide(x) + narrow(x) if self.training else wide(x))


class Residual(nn.Sequential):
    """Layers whose output is added to what they were given, where they are residual."""

    def __init__(self, *layers, is_residual=True):
        super().__init__(*layers)
        self.is_residual = is_residual

    def forward(self, x):
        """What the layers give of ``x``, with ``x`` added where it is residual."""
        y = super().forward(x)
        return x + y if self.is_residual else y


def bottleneck(width, is_residual, share=1.0, kernel=3):
    """Two convolutions (Bottleneck)."""
    inner = int(width * share)
    layers = conv(width, inner, kernel), conv(inner, width, 3)
    return Residual(*layers, is_residual=is_residual)


def summed_bottleneck(width):
    """The same with two convolutions in place of the first (RepNBottleneck)."""
    return Residual(Summed(width, (3, 1)), conv(width, width, 3))


def inverted_bottleneck(width, is_large):
    """Convolutions of single channels between those of places, twice as wide (CIB)."""
    inner = 2 * width
    middle = Summed(inner, (7, 3), inner) if is_large else conv(inner, inner, 3, 1, inner)
    return Residual(
        conv(width, width, 3, 1, width), conv(width, inner), middle, conv(inner, width),
        conv(width, width, 3, 1, width),
    )  # fmt: skip


class Beside(nn.Module):
    """Blocks of half the outputs beside a shortcut (C3, C3k, RepNCSP)."""

    def __init__(self, inputs, outputs, blocks, make):
        super().__init__()
        inner = outputs // 2
        self.first, self.aside = conv(inputs, inner), conv(inputs, inner)
        self.blocks = repeated(make, inner, blocks)
        self.merge = conv(2 * inner, outputs)

    def forward(self, x):
        """From [batch, inputs, height, width] to [batch, outputs, height, width]."""
        return self.merge(torch.cat((self.blocks(self.first(x)), self.aside(x)), 1))


def nested(width, is_residual=True):
    """Two bottlenecks beside a shortcut (C3k)."""
    return Beside(width, width, 2, lambda inner: bottleneck(inner, is_residual))


class Kept(nn.Module):
    """The output of each block is kept for the last convolution (C2f, C3k2, GELAN, A2C2f).

    Args:
        first: To what the blocks see and what is kept beside it.
        parts: In how many parts the first output is cut; the last goes through the blocks.
        blocks: In order.
        merge: From all parts.
    """

    def __init__(self, first, parts, blocks, merge):
        super().__init__()
        self.first, self.parts, self.merge = first, parts, merge
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        """As many places as ``x`` has, with the channels of the last convolution."""
        parts = list(self.first(x).chunk(self.parts, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.merge(torch.cat(parts, 1))


def split(inputs, outputs, blocks, make, share=0.5):
    """Half of the channels goes through blocks, of a share of the outputs each (C2f, C3k2)."""
    width = int(outputs * share)
    first, merge = conv(inputs, 2 * width), conv((2 + blocks) * width, outputs)
    return Kept(first, 2, [make(width) for _ in range(blocks)], merge)


def aggregated(inputs, outputs, width, inner, blocks):
    """Two stages of an inner width, of bottlenecks where there are (RepNCSPELAN4, ELAN1)."""
    stages = []
    for given in (width // 2, inner):
        stage, into = [], given
        if blocks:
            stage, into = [Beside(given, inner, blocks, summed_bottleneck)], inner
        stages.append(nn.Sequential(*stage, conv(into, inner, 3)))
    return Kept(conv(inputs, width), 2, stages, conv(width + 2 * inner, outputs))


class Scaled(nn.Module):
    """A block whose output is scaled by channel and added to its input."""

    def __init__(self, block, width):
        super().__init__()
        self.block, self.scale = block, nn.Parameter(torch.ones(width))

    def forward(self, x):
        """The same shape as ``x``, [batch, width, rows, columns]."""
        return x + self.scale.view(-1, 1, 1) * self.block(x)


class Pool(nn.Module):
    """Maxima of three ranges beside the picture itself (SPPF, SPPELAN)."""

    def __init__(self, inputs, inner, outputs, is_residual=False):
        super().__init__()
        self.first = conv(inputs, inner, is_active=not is_residual)
        self.merge, self.is_residual = conv(4 * inner, outputs), is_residual

    def forward(self, x):
        """From [batch, inputs, height, width] to [batch, outputs, height, width].

        Where it is residual, as many outputs as inputs.
        """
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        y = self.merge(torch.cat(parts, 1))
        return x + y if self.is_residual else y


class Averaged(nn.Module):
    """Half the size by a convolution of averaged places (AConv)."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = conv(inputs, outputs, 3, 2)

    def forward(self, x):
        """From [batch, inputs, height, width] to [batch, outputs, height // 2, width // 2]."""
        return self.conv(F.avg_pool2d(x, 2, 1))


class AveragedHalves(nn.Module):
    """Half the size: half of the channels by a convolution, half by their maxima (ADown)."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv, self.most = (
            conv(inputs // 2, outputs // 2, 3, 2),
            conv(inputs // 2, outputs // 2),
        )

    def forward(self, x):
        """From [batch, inputs, height, width] to [batch, outputs, height // 2, width // 2]."""
        one, other = F.avg_pool2d(x, 2, 1).chunk(2, 1)
        return torch.cat((self.conv(one), self.most(F.max_pool2d(other, 3, 2, 1))), 1)


def separable_half(inputs, outputs):
    """Half the size by channels first and places after (SCDown)."""
    return nn.Sequential(
        conv(inputs, outputs), conv(outputs, outputs, 3, 2, outputs, is_active=False)
    )


class Attention(nn.Module):
    """Attention of every place to every other of its area, and a convolution for where they are.

    Args:
        width: Of all heads.
        heads: How many.
        key: Channels of a query and a key of a head.
        kernel: Of the convolution of values.
        areas: Equal parts of the picture, each on its own.
    """

    def __init__(self, width, heads, key, kernel=3, areas=1):
        super().__init__()
        self.heads, self.key, self.size, self.areas = heads, key, width // heads, areas
        self.qkv = conv(width, width + 2 * key * heads, is_active=False)
        self.out = conv(width, width, is_active=False)
        self.place = conv(width, width, kernel, 1, width, is_active=False)

    def forward(self, x):
        """The same shape as ``x``, whose height times breadth is a multiple of the areas."""
        batch, _, height, breadth = x.shape
        places = height * breadth // self.areas
        qkv = self.qkv(x).flatten(2)
        if self.areas > 1:
            qkv = qkv.transpose(1, 2).reshape(batch * self.areas, places, -1).transpose(1, 2)
        qkv = qkv.view(batch * self.areas, self.heads, 2 * self.key + self.size, places)
        q, k, v = qkv.split((self.key, self.key, self.size), 2)
        weights = (q.transpose(-2, -1) @ k * self.key**-0.5).softmax(-1)
        y, v = (self._whole(part, x) for part in (v @ weights.transpose(-2, -1), v))
        return self.out(y + self.place(v))

    def _whole(self, part, x):
        """Areas joined to the picture again."""
        if self.areas == 1:
            return part.reshape(x.shape)
        return part.permute(0, 3, 1, 2).reshape(x.shape[0], -1, x.shape[1]).mT.reshape(x.shape)


def _attentive(width, attention, inner):
    feed = nn.Sequential(conv(width, inner), conv(inner, width, is_active=False))
    return nn.Sequential(Residual(attention), Residual(feed))


def attention_block(width):
    """Attention with keys of half a head's width, and a feed-forward (PSABlock)."""
    heads = max(width // 64, 1)
    return _attentive(width, Attention(width, heads, width // heads // 2), 2 * width)


def area_block(width, areas, growth):
    """Attention of areas in heads of 32, and a feed-forward of that growth (ABlock)."""
    attention = Attention(width, width // 32, 32, 7, areas)
    return _attentive(width, attention, int(width * growth))


class AttentionSplit(nn.Module):
    """Half of the channels goes through attention (PSA, C2PSA)."""

    def __init__(self, width, blocks):
        super().__init__()
        self.first, self.merge = conv(width, width), conv(width, width)
        self.blocks = repeated(attention_block, width // 2, blocks)

    def forward(self, x):
        """The same shape as ``x``, whose channels are even."""
        kept, worked = self.first(x).chunk(2, 1)
        return self.merge(torch.cat((kept, self.blocks(worked)), 1))
