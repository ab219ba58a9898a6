"""The detectors of Darknet: YOLOv3 and YOLOv4, as their configurations have them at COCO's classes.

Redmon and Farhadi 2018, arXiv:1804.02767 (yolov3.cfg: 61,949,149 numbers); Bochkovskiy et al. 2020,
arXiv:2004.10934 (yolov4.cfg: 64,363,101); both recalled 2026-11-27.
"""

import torch
import torch.nn.functional as F
from torch import nn

_OUTPUTS = 3 * (80 + 5)


def _conv(inputs, outputs, kernel, stride=1, act=nn.LeakyReLU):
    product = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    active = nn.Mish(True) if act is nn.Mish else nn.LeakyReLU(0.1, True)
    return nn.Sequential(product, nn.BatchNorm2d(outputs), active)


def _five(inputs, width):
    """Five convolutions, narrow and wide by turns."""
    wide = [_conv(w, 2 * width, 3) for w in (width, width)]
    narrow = [_conv(w, width, 1) for w in (inputs, 2 * width, 2 * width)]
    return nn.Sequential(narrow[0], wide[0], narrow[1], wide[1], narrow[2])


def _answers(width):
    return nn.Sequential(_conv(width, 2 * width, 3), nn.Conv2d(2 * width, _OUTPUTS, 1))


class _Residual(nn.Module):
    def __init__(self, width, inner, act):
        super().__init__()
        self.layers = nn.Sequential(_conv(width, inner, 1, 1, act), _conv(inner, width, 3, 1, act))

    def forward(self, x):
        return x + self.layers(x)


class _Split(nn.Module):
    """A stage of CSPDarknet53: residual blocks beside a way around all of them."""

    def __init__(self, inputs, outputs, depth):
        super().__init__()
        half = outputs if depth == 1 else outputs // 2
        self.down = _conv(inputs, outputs, 3, 2, nn.Mish)
        self.around, self.into = (_conv(outputs, half, 1, 1, nn.Mish) for _ in range(2))
        inner = half // 2 if depth == 1 else half
        blocks = [_Residual(half, inner, nn.Mish) for _ in range(depth)]
        self.blocks = nn.Sequential(*blocks, _conv(half, half, 1, 1, nn.Mish))
        self.out = _conv(2 * half, outputs, 1, 1, nn.Mish)

    def forward(self, x):
        x = self.down(x)
        return self.out(torch.cat([self.blocks(self.into(x)), self.around(x)], 1))


def _plain_stage(inputs, outputs, depth):
    blocks = [_Residual(outputs, outputs // 2, nn.LeakyReLU) for _ in range(depth)]
    return nn.Sequential(_conv(inputs, outputs, 3, 2), *blocks)


class _Detector(nn.Module):
    """Three levels of boxes; choosing among them is not counted, nor matching them to truth."""

    kind, side, multiple = "image", 640, 32

    def __init__(self, stage, act):
        super().__init__()
        sizes = ((32, 64, 1), (64, 128, 2), (128, 256, 8), (256, 512, 8), (512, 1024, 4))
        self.first = _conv(3, 32, 3, 1, act)
        self.stages = nn.ModuleList([stage(*one) for one in sizes])

    def inputs(self, batch):
        """Pictures."""
        return torch.empty(batch, 3, self.side, self.side)

    def loss(self, output, _inputs):
        """Cross-entropies of all that is said of each box."""
        return sum(F.softplus(part.float()).mean() for part in output)

    def levels(self, x):
        """Maps of an eighth, a sixteenth and a thirty-second of the side."""
        found, x = [], self.first(x)
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found[2:]


class YoloV3(_Detector):
    """YOLOv3 of 80 classes."""

    def __init__(self):
        super().__init__(_plain_stage, nn.LeakyReLU)
        self.mixed = nn.ModuleList([_five(1024, 512), _five(768, 256), _five(384, 128)])
        self.narrow = nn.ModuleList([_conv(512, 256, 1), _conv(256, 128, 1)])
        self.heads = nn.ModuleList([_answers(512), _answers(256), _answers(128)])

    def forward(self, x):
        eighth, sixteenth, last = self.levels(x)
        x = self.mixed[0](last)
        answers = [self.heads[0](x)]
        for number, level in enumerate((sixteenth, eighth)):
            x = F.interpolate(self.narrow[number](x), scale_factor=2.0)
            x = self.mixed[number + 1](torch.cat([x, level], 1))
            answers.append(self.heads[number + 1](x))
        return answers


class YoloV4(_Detector):
    """YOLOv4 of 80 classes: pooled over three windows, then down the levels and up again."""

    def __init__(self):
        super().__init__(_Split, nn.Mish)
        self.before = nn.Sequential(_conv(1024, 512, 1), _conv(512, 1024, 3), _conv(1024, 512, 1))
        self.after = nn.Sequential(_conv(2048, 512, 1), _conv(512, 1024, 3), _conv(1024, 512, 1))
        self.narrow = nn.ModuleList([_conv(512, 256, 1), _conv(256, 128, 1)])
        self.beside = nn.ModuleList([_conv(512, 256, 1), _conv(256, 128, 1)])
        self.mixed = nn.ModuleList([_five(512, 256), _five(256, 128)])
        self.down = nn.ModuleList([_conv(128, 256, 3, 2), _conv(256, 512, 3, 2)])
        self.joined = nn.ModuleList([_five(512, 256), _five(1024, 512)])
        self.heads = nn.ModuleList([_answers(128), _answers(256), _answers(512)])

    def forward(self, x):
        eighth, sixteenth, last = self.levels(x)
        x = self.before(last)
        x = self.after(torch.cat([*(F.max_pool2d(x, k, 1, k // 2) for k in (13, 9, 5)), x], 1))
        passed = [x]
        for number, level in enumerate((sixteenth, eighth)):
            wide = F.interpolate(self.narrow[number](passed[-1]), scale_factor=2.0)
            passed.append(self.mixed[number](torch.cat([self.beside[number](level), wide], 1)))
        x, answers = passed[2], [self.heads[0](passed[2])]
        for number, level in enumerate((passed[1], passed[0])):
            x = self.joined[number](torch.cat([self.down[number](x), level], 1))
            answers.append(self.heads[number + 1](x))
        return answers


MODELS = {"yolov3": YoloV3, "yolov4": YoloV4}
