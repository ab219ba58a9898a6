"""SlowFast and its slow way alone, on clips of 224×224 places and Kinetics' 400 classes.

Feichtenhofer et al. 2019, arXiv:1812.03982, table 1, with what PySlowFast configures:
SLOWFAST_8x8_R50 has 34.6 million numbers, SLOW_8x8_R50 32.5 million.
"""

import torch
import torch.nn.functional as F
from torch import nn

_DEPTHS = (3, 4, 6, 3)


def _conv(inputs, outputs, kernel, stride=(1, 1, 1), is_active=True):
    padding = tuple(extent // 2 for extent in kernel)
    layers = [nn.Conv3d(inputs, outputs, kernel, stride, padding, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm3d(outputs), *([nn.ReLU(True)] if is_active else []))


class _Bottleneck(nn.Module):
    """A kernel over moments, one over places and one over channels, beside a way around."""

    def __init__(self, inputs, width, moments, stride):
        super().__init__()
        step = (1, stride, stride)
        self.layers = nn.Sequential(
            _conv(inputs, width, (moments, 1, 1)), _conv(width, width, (1, 3, 3), step),
            _conv(width, 4 * width, (1, 1, 1), is_active=False),
        )  # fmt: skip
        is_other = inputs != 4 * width or stride > 1
        self.around = _conv(inputs, 4 * width, (1, 1, 1), step, False) if is_other else None

    def forward(self, x):
        return F.relu(self.layers(x) + (x if self.around is None else self.around(x)))


def _stages(width, moments, lateral):
    """Four stages of a way; each is given what the other way tells beside what it has."""
    made, inputs = [], width
    for number, depth in enumerate(_DEPTHS):
        blocks, inner = [], width * 2**number
        for place in range(depth):
            given = inputs + lateral * (1 if number == 0 else 2 ** (number + 1)) * (place == 0)
            stride = 2 if number and not place else 1
            blocks.append(_Bottleneck(given, inner, moments[number], stride))
            inputs = 4 * inner
        made.append(nn.Sequential(*blocks))
    return nn.ModuleList(made)


class _Way(nn.Module):
    def __init__(self, width, kernel, moments, lateral=0):
        super().__init__()
        self.stem = _conv(3, width, (kernel, 7, 7), (1, 2, 2))
        self.pool = nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1))
        self.stages = _stages(width, moments, lateral)

    def first(self, x):
        """Of frames [batch, 3, moments, side, side]."""
        return self.pool(self.stem(x))


class SlowFast(nn.Module):
    """Eight frames on a wide way, and four times as many on one of an eighth of its width.

    Args:
        has_fast: Whether there is the second way.
    """

    def __init__(self, has_fast):
        super().__init__()
        self.slow = _Way(64, 1, (1, 1, 3, 3), 16 if has_fast else 0)
        self.fast = _Way(8, 5, (3, 3, 3, 3)) if has_fast else None
        widths = (8, 32, 64, 128) if has_fast else ()
        self.told = nn.ModuleList([_conv(w, 2 * w, (7, 1, 1), (4, 1, 1)) for w in widths])
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(2048 + 256 * has_fast, 400))

    @property
    def described(self):
        """Frames of the faster way, as printed."""
        return "%d frames of 224×224" % (32 if self.fast else 8)

    def inputs(self, batch):
        """Frames of both ways."""
        frames = (8, 32) if self.fast else (8,)
        return tuple(torch.empty(batch, 3, count, 224, 224) for count in frames)

    def loss(self, output, _inputs):
        """Which action it is."""
        return F.cross_entropy(output, torch.empty(len(output), dtype=torch.int64))

    def forward(self, slow, fast=None):
        x, y = self.slow.first(slow), None if self.fast is None else self.fast.first(fast)
        for number, stage in enumerate(self.slow.stages):
            if y is not None:
                x, y = torch.cat([x, self.told[number](y)], 1), self.fast.stages[number](y)
            x = stage(x)
        means = [one.mean((2, 3, 4)) for one in (x, y) if one is not None]
        return self.head(torch.cat(means, 1))


MODELS = {"slowfast_r50": lambda: SlowFast(True), "slow_r50": lambda: SlowFast(False)}
