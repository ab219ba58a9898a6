"""YOLOv8 and YOLO11 as their release lays them out, on pictures of 640×640 with 80 classes.

Standard library and torch only. Layers, widths and depths of ultralytics/cfg/models/v8/yolov8.yaml
and 11/yolo11.yaml (read 2026-11-21). Suppressing boxes in inference is not counted; in training a
loss at every place stands for the one at the places that are matched.
"""

import torch
import torch.nn.functional as F
from torch import nn

_BINS = 16
_CLASSES = 80
_SIDE = 640


def _conv(inputs, outputs, kernel=1, stride=1, groups=1, is_active=True):
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03),
    ]
    return nn.Sequential(*layers, *([nn.SiLU(inplace=True)] if is_active else []))


class _Bottleneck(nn.Module):
    def __init__(self, width, is_residual, share=1.0):
        super().__init__()
        inner = int(width * share)
        self.first, self.second = _conv(width, inner, 3), _conv(inner, width, 3)
        self.is_residual = is_residual

    def forward(self, x):
        y = self.second(self.first(x))
        return x + y if self.is_residual else y


class _Nested(nn.Module):
    """Two bottlenecks beside a shortcut (C3k)."""

    def __init__(self, width, is_residual):
        super().__init__()
        inner = width // 2
        self.first, self.aside = _conv(width, inner), _conv(width, inner)
        self.blocks = nn.Sequential(*[_Bottleneck(inner, is_residual) for _ in range(2)])
        self.merge = _conv(2 * inner, width)

    def forward(self, x):
        return self.merge(torch.cat((self.blocks(self.first(x)), self.aside(x)), 1))


class _Split(nn.Module):
    """Half of the channels goes through blocks, and the output of each block is kept (C2f, C3k2).

    Args:
        inputs: Channels.
        outputs: Channels.
        blocks: How many.
        make: Makes a block of a width.
        share: Of the outputs that each half has.
    """

    def __init__(self, inputs, outputs, blocks, make, share=0.5):
        super().__init__()
        width = int(outputs * share)
        self.first = _conv(inputs, 2 * width)
        self.blocks = nn.ModuleList([make(width) for _ in range(blocks)])
        self.merge = _conv((2 + blocks) * width, outputs)

    def forward(self, x):
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(block(parts[-1]))
        return self.merge(torch.cat(parts, 1))


class _Pool(nn.Module):
    """Maxima of three ranges beside the picture itself (SPPF)."""

    def __init__(self, width):
        super().__init__()
        self.first, self.merge = _conv(width, width // 2), _conv(2 * width, width)

    def forward(self, x):
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.merge(torch.cat(parts, 1))


class _Attention(nn.Module):
    """Attention over places with keys of half a head's width, and a feed-forward (PSABlock)."""

    def __init__(self, width):
        super().__init__()
        self.heads = width // 64
        self.size, self.key = width // self.heads, width // self.heads // 2
        self.qkv = _conv(width, width + 2 * self.key * self.heads, is_active=False)
        self.out = _conv(width, width, is_active=False)
        self.place = _conv(width, width, 3, groups=width, is_active=False)
        self.feed = nn.Sequential(_conv(width, 2 * width), _conv(2 * width, width, is_active=False))

    def forward(self, x):
        batch, width, height, breadth = x.shape
        qkv = self.qkv(x).view(batch, self.heads, 2 * self.key + self.size, height * breadth)
        q, k, v = qkv.split((self.key, self.key, self.size), 2)
        weights = (q.transpose(-2, -1) @ k * self.key**-0.5).softmax(-1)
        y = (v @ weights.transpose(-2, -1)).view(batch, width, height, breadth)
        x = x + self.out(y + self.place(v.reshape(batch, width, height, breadth)))
        return x + self.feed(x)


class _AttentionSplit(nn.Module):
    """Half of the channels goes through attention (C2PSA)."""

    def __init__(self, width, blocks):
        super().__init__()
        self.first, self.merge = _conv(width, width), _conv(width, width)
        self.blocks = nn.Sequential(*[_Attention(width // 2) for _ in range(blocks)])

    def forward(self, x):
        kept, worked = self.first(x).chunk(2, 1)
        return self.merge(torch.cat((kept, self.blocks(worked)), 1))


class _Heads(nn.Module):
    """Distances of the four sides in bins, and scores of the classes, of one level."""

    def __init__(self, width, narrowest, is_separable):
        super().__init__()
        sides, scores = max(16, narrowest // 4, 4 * _BINS), max(narrowest, min(_CLASSES, 100))
        self.sides = nn.Sequential(
            _conv(width, sides, 3), _conv(sides, sides, 3), nn.Conv2d(sides, 4 * _BINS, 1)
        )
        first = [_conv(width, scores, 3), _conv(scores, scores, 3)]
        if is_separable:
            first = [
                _conv(width, width, 3, groups=width), _conv(width, scores),
                _conv(scores, scores, 3, groups=scores), _conv(scores, scores),
            ]  # fmt: skip
        self.scores = nn.Sequential(*first, nn.Conv2d(scores, _CLASSES, 1))

    def forward(self, x):
        return torch.cat((self.sides(x), self.scores(x)), 1).flatten(2)


class Yolo(nn.Module):
    """A backbone, levels merged upwards and downwards, and heads on three of them.

    Args:
        split: Makes a stage of (inputs, outputs, depth, number of the stage).
        widths: Channels of the five levels.
        outputs: Channels of the backbone's four stages.
        depths: Of the backbone's stages, and of every stage after it.
        attention: Blocks of attention at the end of the backbone.
        is_separable: Whether heads tell classes by separable convolutions.
    """

    def __init__(self, split, widths, outputs, depths, attention, is_separable):
        super().__init__()
        stem, *levels = widths
        self.stem = _conv(3, stem, 3, 2)
        before, down = stem, []
        for number, (width, output) in enumerate(zip(levels, outputs)):
            stage = split(width, output, depths[number], number)
            down.append(nn.Sequential(_conv(before, width, 3, 2), stage))
            before = output
        self.down = nn.ModuleList(down)
        self.pool = nn.Sequential(
            _Pool(before), *([_AttentionSplit(before, attention)] if attention else [])
        )
        three, four, five = levels[1:]
        depth = depths[-1]
        self.up4 = split(outputs[3] + outputs[2], four, depth, 4)
        self.up3 = split(four + outputs[1], three, depth, 5)
        self.narrow3, self.down4 = _conv(three, three, 3, 2), split(three + four, four, depth, 6)
        self.narrow4, self.down5 = _conv(four, four, 3, 2), split(four + five, five, depth, 7)
        self.heads = nn.ModuleList([_Heads(w, three, is_separable) for w in (three, four, five)])
        self.bins = nn.Conv2d(_BINS, 1, 1, bias=False).requires_grad_(False)

    def forward(self, pictures):
        kept, x = [], self.stem(pictures)
        for stage in self.down:
            x = stage(x)
            kept.append(x)
        top = self.pool(x)
        middle = self.up4(torch.cat((F.interpolate(top, scale_factor=2.0), kept[2]), 1))
        low = self.up3(torch.cat((F.interpolate(middle, scale_factor=2.0), kept[1]), 1))
        middle = self.down4(torch.cat((self.narrow3(low), middle), 1))
        top = self.down5(torch.cat((self.narrow4(middle), top), 1))
        found = [head(x) for head, x in zip(self.heads, (low, middle, top))]
        return found if self.training else self._decoded(torch.cat(found, 2))

    def _decoded(self, found):
        sides, scores = found.split((4 * _BINS, _CLASSES), 1)
        batch, _, places = sides.shape
        bins = sides.view(batch, 4, _BINS, places).transpose(1, 2).softmax(1)
        return torch.cat((self.bins(bins).view(batch, 4, places), scores.sigmoid()), 1)


class _YoloJob:
    kind = "image"

    def __init__(self, model):
        self.model = model

    def inputs(self, batch):
        """Pictures."""
        return torch.empty(batch, 3, _SIDE, _SIDE)

    def loss(self, output, _inputs):
        """Binary cross-entropy of scores, and cross-entropy of the bins of every side."""
        sides, scores = torch.cat(output, 2).split((4 * _BINS, _CLASSES), 1)
        bins = sides.transpose(1, 2).reshape(-1, _BINS)
        target = torch.empty(bins.shape[0], dtype=torch.int64, device=bins.device)
        classes = F.binary_cross_entropy_with_logits(scores, torch.empty_like(scores))
        return classes + F.cross_entropy(bins, target)


def _width(channels, width, most):
    """Channels at a multiple of the width, in eights."""
    return -(-min(channels, most) * width // 8) * 8


def _yolo8(depth, width, most):
    def split(inputs, outputs, blocks, number):
        return _Split(inputs, outputs, blocks, lambda w: _Bottleneck(w, number < 4))

    widths = [int(_width(c, width, most)) for c in (64, 128, 256, 512, 1024)]
    depths = [max(round(n * depth), 1) for n in (3, 6, 6, 3, 3)]
    return _YoloJob(Yolo(split, widths, widths[1:], depths, 0, False))


def _yolo11(depth, width, most, is_nested):
    """Stages from the third on, and the last one, are nested; all of them in larger models."""

    def split(inputs, outputs, blocks, number):
        nested = is_nested or number in (2, 3, 7)
        share = 0.25 if number < 2 else 0.5
        make = (lambda w: _Nested(w, True)) if nested else (lambda w: _Bottleneck(w, True, 0.5))
        return _Split(inputs, outputs, blocks, make, share)

    widths = [int(_width(c, width, most)) for c in (64, 128, 256, 512, 1024)]
    outputs = [int(_width(c, width, most)) for c in (256, 512, 512, 1024)]
    blocks = max(round(2 * depth), 1)
    return _YoloJob(Yolo(split, widths, outputs, [blocks] * 5, blocks, True))


def _made(build, *sizes):
    return lambda: build(*sizes)


_MODELS = {
    "yolov8n": _made(_yolo8, 0.33, 0.25, 1024),
    "yolov8s": _made(_yolo8, 0.33, 0.5, 1024),
    "yolov8m": _made(_yolo8, 0.67, 0.75, 768),
    "yolov8l": _made(_yolo8, 1.0, 1.0, 512),
    "yolov8x": _made(_yolo8, 1.0, 1.25, 512),
    "yolo11n": _made(_yolo11, 0.5, 0.25, 1024, False),
    "yolo11s": _made(_yolo11, 0.5, 0.5, 1024, False),
    "yolo11m": _made(_yolo11, 0.5, 1.0, 512, True),
    "yolo11l": _made(_yolo11, 1.0, 1.0, 512, True),
    "yolo11x": _made(_yolo11, 1.0, 1.5, 512, True),
}
