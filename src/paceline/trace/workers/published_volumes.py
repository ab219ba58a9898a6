"""Networks over volumes as published measurements ran them.

Standard library and torch only. ``published_volumes:NAME`` builds one.
"""

import torch
import torch.nn.functional as F
from torch import nn


def _double(inputs, outputs, stride=1):
    layers = []
    for channels, step in ((inputs, stride), (outputs, 1)):
        layers += [
            nn.Conv3d(channels, outputs, 3, step, padding=1, bias=False),
            nn.InstanceNorm3d(outputs, affine=True), nn.ReLU(inplace=True),
        ]  # fmt: skip
    return nn.Sequential(*layers)


class VolumeUNet(nn.Module):
    """The 3D U-Net of MLPerf training on KiTS19 (Isensee et al., nnU-Net): crops of 128³ voxels."""

    def __init__(self, widths=(32, 64, 128, 256, 320, 320), classes=3):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.inward = _double(1, widths[0])
        self.down = nn.ModuleList([_double(a, b, 2) for a, b in pairs])
        self.grow = nn.ModuleList([nn.ConvTranspose3d(b, a, 2, 2) for a, b in pairs[::-1]])
        self.up = nn.ModuleList([_double(2 * a, a) for a, _ in pairs[::-1]])
        self.outward = nn.Conv3d(widths[0], classes, 1)

    def inputs(self, batch):
        return torch.empty(batch, 1, 128, 128, 128)

    def loss(self, output, _inputs):
        """Cross-entropy and Dice, half each."""
        truth = torch.empty(output[:, 0].shape, dtype=torch.int64)
        likely = F.softmax(output, dim=1)
        overlap = (likely * likely).sum((2, 3, 4)) / (likely + likely).sum((2, 3, 4))
        return 0.5 * F.cross_entropy(output, truth) + 0.5 * (1.0 - overlap).mean()

    def forward(self, x):
        kept = [self.inward(x)]
        for block in self.down:
            kept.append(block(kept[-1]))
        x = kept.pop()
        for grow, block in zip(self.grow, self.up):
            x = block(torch.cat((grow(x), kept.pop()), 1))
        return self.outward(x)


_MODELS = {"unet3d": VolumeUNet}
