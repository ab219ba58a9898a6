"""The networks of GPUNet (Wang et al., CVPR 2022).

Standard library and torch only. Blocks as in NVIDIA/DeepLearningExamples, GPUNet/configs.
"""

import torch
from torch import nn

_ACTIVATIONS = {"r": nn.ReLU, "s": nn.SiLU}


def _conv(inputs, outputs, kernel, stride=1, groups=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)


class _Squeeze(nn.Module):
    """Squeeze and excitation over the widened channels."""

    def __init__(self, channels, inner, activation):
        super().__init__()
        self.down, self.act = nn.Conv2d(channels, inner, 1), activation(inplace=True)
        self.up = nn.Conv2d(inner, channels, 1)

    def forward(self, x):
        scale = self.up(self.act(self.down(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(scale)


class _Bottleneck(nn.Module):
    """Widen, convolve per channel or in full while widening (``f``), narrow, add."""

    def __init__(self, kind, inputs, outputs, kernel, stride, expansion, act, has_squeeze):
        super().__init__()
        wide, activation = int(inputs * expansion + 4) // 8 * 8, _ACTIVATIONS[act]
        if kind == "d":
            wide = inputs * expansion
        if kind == "f":
            layers = [_conv(inputs, wide, kernel, stride)]
        else:
            layers = [
                _conv(inputs, wide, 1), nn.BatchNorm2d(wide), activation(inplace=True),
                _conv(wide, wide, kernel, stride, wide),
            ]  # fmt: skip
        layers += [nn.BatchNorm2d(wide), activation(inplace=True)]
        if has_squeeze:
            layers.append(_Squeeze(wide, round(wide * 0.25 / expansion), activation))
        self.body = nn.Sequential(*layers, _conv(wide, outputs, 1), nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.body(x)
        return x + y if self.adds else y


def _conv_block(inputs, outputs, kernel, stride, act):
    return nn.Sequential(
        _conv(inputs, outputs, kernel, stride), nn.BatchNorm2d(outputs),
        _ACTIVATIONS[act](inplace=True),
    )  # fmt: skip


class GpuNet(nn.Module):
    """One network.

    Args:
        size: Side of its images.
        head: Channels of the first convolution and its activation.
        rows: Of ``kind kernel expansion channels stride act[e] [times]``: ``c`` a convolution,
            ``f`` a fused bottleneck, ``i`` a bottleneck, ``d`` one of a distilled network; ``e``
            squeezes; the stride is that of the first of several.
        tail: Channels before the classifier; two in distilled networks.
        extra: Further convolutions of the head.
    """

    def __init__(self, size, head, rows, tail, extra=0):
        super().__init__()
        channels, act = head
        layers = [_conv_block(3, channels, 3, 2, act)]
        layers += [_conv_block(channels, channels, 3, 1, act) for _ in range(extra)]
        for row in rows:
            kind, kernel, expansion, outputs, stride, act = row.split()[:6]
            for number in range(int("".join(row.split()[6:]) or 1)):
                first = stride if number == 0 else "1"
                layers.append(self._block(channels, kind, kernel, expansion, outputs, first, act))
                channels = int(outputs)
        self.features = nn.Sequential(*layers, _conv_block(channels, tail[0], 1, 1, "r"))
        classifier = [nn.AdaptiveAvgPool2d(1)]
        if len(tail) > 1:
            classifier += [_conv(tail[0], tail[1], 1), nn.ReLU()]
        self.classifier = nn.Sequential(
            *classifier, nn.Flatten(), nn.Dropout(0.2), nn.Linear(tail[-1], 1000)
        )
        self.image_size = size

    @staticmethod
    def _block(inputs, kind, kernel, expansion, channels, stride, act):
        if kind == "c":
            return _conv_block(inputs, int(channels), int(kernel), int(stride), act[0])
        ratio = int(expansion) if kind == "d" else float(expansion)
        return _Bottleneck(
            kind, inputs, int(channels), int(kernel), int(stride), ratio, act[0], "e" in act
        )

    def forward(self, images):
        """Logits of 1000 classes, [batch, 1000], of images [batch, 3, side, side]."""
        return self.classifier(self.features(images))


_ZERO = (
    "c 3 1 32 1 r 2", "f 3 5 32 2 r 2", "f 3 5 64 2 r 3", "i 3 5 256 2 s 3", "i 3 5 704 2 re 2",
)  # fmt: skip
_ONE = (
    "c 3 1 24 1 r", "f 3 4 64 2 s 2", "f 3 4 96 2 s 2", "i 3 2 160 2 se", "i 3 5 288 1 r 4",
    "i 3 4 448 2 re 4",
)  # fmt: skip
_TWO = (
    "c 3 1 32 1 r 3", "f 5 6 32 2 se", "f 3 3 112 2 s 3", "i 3 6 144 2 s 6", "i 5 3 160 1 r 4",
    "i 3 3 224 2 se 8", "i 5 2 832 1 r 7",
)  # fmt: skip
_P0 = (
    "c 3 1 32 1 r 2", "c 3 1 64 2 r", "i 3 8 96 2 r", "i 3 7.67 96 1 r 2", "i 3 7.67 256 2 r",
    "i 5 4.25 256 1 r", "i 3 4.75 256 1 r", "i 3 8 704 2 r", "i 5 3.82 704 1 r", "i 3 3.36 704 1 r",
    "i 3 2.55 704 1 r", "i 3 5.73 704 2 r",
)  # fmt: skip
_P1 = (
    "c 3 1 32 1 r 2", "c 5 1 64 2 r", "i 3 8 64 1 r 2", "i 5 8 96 2 r", "i 5 8 96 1 r",
    "i 5 8 256 2 r", "i 5 7.5 256 1 r", "i 3 7.88 256 1 r", "i 5 7.88 704 2 r", "i 5 8 704 1 r",
    "i 3 7.41 704 1 r", "i 5 8 704 1 r", "i 5 7.95 704 2 r",
)  # fmt: skip
_D1 = (
    "d 3 1 33 1 r", "d 3 3 44 2 r", "d 5 4 44 1 r", "d 3 3 44 1 r", "d 5 4 67 2 r", "d 5 4 67 1 r",
    "d 3 6 67 1 r", "d 5 3 67 1 r", "d 7 6 134 2 r", "d 5 6 134 1 r", "d 3 3 134 1 r",
    "d 5 4 134 1 r", "d 3 6 190 1 r", "d 5 6 190 1 r", "d 7 6 190 1 r", "d 3 4 190 1 r",
    "d 3 6 268 2 r", "d 3 6 268 1 r", "d 5 6 268 1 r", "d 3 3 268 1 r 3",
)  # fmt: skip
_D2 = (
    "d 3 1 48 1 r", "d 3 3 64 2 r", "d 5 4 64 1 r", "d 3 3 64 1 r", "d 5 4 96 2 r", "d 5 4 96 1 r",
    "d 3 6 96 1 r", "d 5 3 96 1 r", "d 7 6 192 2 r", "d 5 6 192 1 r", "d 3 3 192 1 r",
    "d 5 4 192 1 r 2", "d 3 6 272 1 r", "d 5 6 272 1 r", "d 7 6 272 1 r", "d 5 6 272 1 r",
    "d 3 4 272 1 r", "d 3 6 384 2 r", "d 3 6 384 1 r", "d 5 6 384 1 r", "d 3 3 384 1 r 4",
)  # fmt: skip

_MODELS = {
    "gpunet_0": lambda: GpuNet(320, (32, "s"), _ZERO, (1280,)),
    "gpunet_1": lambda: GpuNet(288, (24, "s"), _ONE, (1280,)),
    "gpunet_2": lambda: GpuNet(384, (32, "s"), _TWO, (1280,)),
    "gpunet_p0": lambda: GpuNet(224, (32, "r"), _P0, (1984,)),
    "gpunet_p1": lambda: GpuNet(224, (32, "r"), _P1, (1984,)),
    "gpunet_d1": lambda: GpuNet(456, (33, "r"), _D1, (1152, 1984)),
    "gpunet_d2": lambda: GpuNet(528, (48, "r"), _D2, (1152, 1984), extra=2),
}
