"""Networks that draw a picture four times as large, on patches of 128 pixels a side.

Wang et al. 2018, arXiv:1809.00219 (ESRGAN: 16,697,987 numbers of 23 blocks; Real-ESRGAN is the same
network); Lim et al. 2017, arXiv:1707.02921 (EDSR: 43.1 million).
"""

import torch
import torch.nn.functional as F
from torch import nn


def _conv(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 3, padding=1)


class _Dense(nn.Module):
    """Five convolutions, each of all that was before it."""

    def __init__(self, width, growth):
        super().__init__()
        outputs = (growth,) * 4 + (width,)
        made = [_conv(width + number * growth, out) for number, out in enumerate(outputs)]
        self.convs = nn.ModuleList(made)

    def forward(self, x):
        kept = [x]
        for conv in self.convs[:-1]:
            kept.append(F.leaky_relu(conv(torch.cat(kept, 1)), 0.2))
        return x + 0.2 * self.convs[-1](torch.cat(kept, 1))


class _ThreeDense(nn.Sequential):
    def __init__(self, width, growth):
        super().__init__(*[_Dense(width, growth) for _ in range(3)])

    def forward(self, x):
        return x + 0.2 * super().forward(x)


class _Plain(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(_conv(width, width), nn.ReLU(True), _conv(width, width))

    def forward(self, x):
        return x + 0.1 * self.layers(x)


class _Upscaler(nn.Module):
    """A stem, blocks with a way around them all, and two doublings of the side."""

    side, multiple = 128, 4

    def __init__(self, width, blocks):
        super().__init__()
        self.stem, self.last = _conv(3, width), _conv(width, width)
        self.blocks = nn.Sequential(*blocks)

    def inputs(self, batch):
        """Small pictures."""
        return torch.empty(batch, 3, self.side, self.side)

    def loss(self, output, _inputs):
        """Differences of places."""
        return F.l1_loss(output, torch.empty_like(output))

    def forward(self, images):
        x = self.stem(images)
        return self.doubled(x + self.last(self.blocks(x)))


class Esrgan(_Upscaler):
    """The generator of ESRGAN."""

    taken = "the generator alone; its critic of pictures is not counted"

    def __init__(self):
        super().__init__(64, [_ThreeDense(64, 32) for _ in range(23)])
        self.wide = nn.ModuleList([_conv(64, 64) for _ in range(2)])
        self.head = nn.Sequential(_conv(64, 64), nn.LeakyReLU(0.2), _conv(64, 3))

    def doubled(self, x):
        """Twice copied and mended."""
        for conv in self.wide:
            x = F.leaky_relu(conv(F.interpolate(x, scale_factor=2.0)), 0.2)
        return self.head(x)


class Edsr(_Upscaler):
    """The large size of EDSR."""

    def __init__(self):
        super().__init__(256, [_Plain(256) for _ in range(32)])
        self.wide = nn.ModuleList([_conv(256, 1024) for _ in range(2)])
        self.head = _conv(256, 3)

    def doubled(self, x):
        """Twice: four channels become four places."""
        for conv in self.wide:
            x = F.pixel_shuffle(conv(x), 2)
        return self.head(x)


MODELS = {"esrgan": Esrgan, "edsr": Edsr}
