"""Residual networks of small pictures, as papers on CIFAR have them, from one block.

He et al. 2015, arXiv:1512.03385, section 4.2 (ResNet-20: 269,722 numbers with its norms); He et al.
2016, arXiv:1603.05027 (before, not after, each product: PreAct); Zagoruyko and Komodakis 2016,
arXiv:1605.07146 (WRN-28-10: 36,479,194 of ten classes).
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn


def _conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class _Block(nn.Module):
    """Two convolutions beside a way around them.

    Args:
        inputs: Channels that come.
        width: Channels that go.
        stride: Of the first convolution.
        is_before: Whether norms and activations stand before the products.
        is_padded: Whether the way around drops places and pads channels; a product else.
    """

    def __init__(self, inputs, width, stride, is_before, is_padded):
        super().__init__()
        self.convs = nn.ModuleList([_conv(inputs, width, 3, stride), _conv(width, width, 3)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(inputs if is_before else width)])
        self.norms.append(nn.BatchNorm2d(width))
        self.is_before, self.stride, self.missing = is_before, stride, width - inputs
        self.around, self.around_norm = None, None
        if (stride > 1 or self.missing) and not is_padded:
            self.around = _conv(inputs, width, 1, stride)
            self.around_norm = None if is_before else nn.BatchNorm2d(width)

    def forward(self, x):
        if self.is_before:
            first = F.relu(self.norms[0](x))
            inner = F.relu(self.norms[1](self.convs[0](first)))
            return self.convs[1](inner) + self._beside(x, first)
        inner = F.relu(self.norms[0](self.convs[0](x)))
        return F.relu(self.norms[1](self.convs[1](inner)) + self._beside(x, x))

    def _beside(self, x, first):
        if self.around is not None:
            y = self.around(first)
            return y if self.around_norm is None else self.around_norm(y)
        if self.missing:
            half = self.missing // 2
            x = F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, half, half))
        return x


class SmallResidual(nn.Module):
    """Stages of blocks, each half as large as the one before it, and one layer of classes.

    Args:
        depths: Blocks of each stage.
        widths: Channels of each.
        stem: Channels of the first convolution.
        classes: What is told apart.
        is_before: As of a block.
        is_padded: As of a block.
    """

    kind, side, usual_optimizer = "image", 32, "sgd-momentum"

    def __init__(self, depths, widths, stem, classes=10, is_before=False, is_padded=False):
        super().__init__()
        self.multiple, inputs, blocks = 2 ** (len(depths) - 1), stem, []
        for number, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            for place in range(depth):
                stride = 2 if number and not place else 1
                blocks.append(_Block(inputs, width, stride, is_before, is_padded))
                inputs = width
        self.stem, self.blocks = _conv(3, stem, 3), nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(inputs if is_before else stem)
        self.head, self.is_before = nn.Linear(inputs, classes), is_before

    def inputs(self, batch):
        """Pictures."""
        return torch.empty(batch, 3, self.side, self.side)

    def loss(self, output, _inputs):
        """Which class it is."""
        return F.cross_entropy(output, torch.empty(len(output), dtype=torch.int64))

    def forward(self, images):
        x = self.stem(images)
        if self.is_before:
            x = F.relu(self.norm(self.blocks(x)))
        else:
            x = self.blocks(F.relu(self.norm(x)))
        return self.head(x.mean((2, 3)))


def _plain(layers):
    depth = (layers - 2) // 6
    return SmallResidual((depth,) * 3, (16, 32, 64), 16, is_padded=True)


def _wide(layers, factor):
    depth, widths = (layers - 4) // 6, tuple(factor * width for width in (16, 32, 64))
    return SmallResidual((depth,) * 3, widths, 16, is_before=True)


def _deep(depths, is_before=False):
    return SmallResidual(depths, (64, 128, 256, 512), 64, is_before=is_before)


_DEEP, _FACTORS = (16, 28, 40), (2, 4, 8, 10)
MODELS = {
    **{f"resnet{n}": functools.partial(_plain, n) for n in (20, 32, 44, 56, 110)},
    **{f"wrn_{n}_{k}": functools.partial(_wide, n, k) for n in _DEEP for k in _FACTORS},
    "cifar_resnet18": functools.partial(_deep, (2, 2, 2, 2)),
    "cifar_resnet34": functools.partial(_deep, (3, 4, 6, 3)),
    "preact_resnet18": functools.partial(_deep, (2, 2, 2, 2), is_before=True),
}
