"""Networks over volumes as published measurements ran them."""

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


class _OfVolumes:
    """What networks over volumes are given: cubes of a side, or an extent of their own.

    Attributes:
        side: Of a cube; another may be asked for. None where an extent is stated.
        multiple: What a side is a multiple of.
    """

    extent = None

    @property
    def has_one_size(self):
        """Whether no other size can be asked for."""
        return self.side is None

    @property
    def shape(self):
        """Of one channel."""
        return (self.side,) * 3 if self.side else self.extent

    @property
    def described(self):
        """As printed."""
        return "volumes of %d×%d×%d voxels" % self.shape


class VolumeUNet(_OfVolumes, nn.Module):
    """The 3D U-Net of MLPerf training on KiTS19 (Isensee et al., nnU-Net): crops of 128³ voxels.

    That of NVIDIA/DeepLearningExamples (TensorFlow/Segmentation/UNet_3D_Medical/model/unet3d.py)
    differs in the four channels of BraTS, its classes and the kernel of its last layer.
    """

    def __init__(self, channels=1, classes=3, kernel=1, extent=(128, 128, 128)):
        super().__init__()
        widths = (32, 64, 128, 256, 320, 320)
        self.channels, self.extent, self.multiple = channels, extent, 2 ** (len(widths) - 1)
        # Norms of an instance need more than one voxel at the lowest level.
        self.least = 2 * self.multiple
        self.side = extent[0] if len(set(extent)) == 1 else None
        pairs = list(zip(widths, widths[1:]))
        self.inward = _double(channels, widths[0])
        self.down = nn.ModuleList([_double(a, b, 2) for a, b in pairs])
        self.grow = nn.ModuleList([nn.ConvTranspose3d(b, a, 2, 2) for a, b in pairs[::-1]])
        self.up = nn.ModuleList([_double(2 * a, a) for a, _ in pairs[::-1]])
        self.outward = nn.Conv3d(widths[0], classes, kernel, padding=kernel // 2)

    def inputs(self, batch):
        """Volumes."""
        return torch.empty(batch, self.channels, *self.shape)

    def loss(self, output, _inputs):
        """Cross-entropy and Dice, half each."""
        truth = torch.empty(output[:, 0].shape, dtype=torch.int64)
        likely = F.softmax(output, dim=1)
        overlap = (likely * likely).sum((2, 3, 4)) / (likely + likely).sum((2, 3, 4))
        return 0.5 * F.cross_entropy(output, truth) + 0.5 * (1.0 - overlap).mean()

    def forward(self, x):
        return self.outward(_down_and_up(self, self.inward(x)))


def _down_and_up(model, x):
    """Down the blocks and up again, each level beside what it was on the way down."""
    kept = [x]
    for block in model.down:
        kept.append(block(kept[-1]))
    x = kept.pop()
    for grow, block in zip(model.grow, model.up):
        x = block(torch.cat((grow(x), kept.pop()), 1))
    return x


def _unit(inputs, outputs, kernel=3, stride=1):
    conv = nn.Conv3d(inputs, outputs, kernel, stride, padding=1 if stride == 1 else 0)
    return nn.Sequential(conv, nn.BatchNorm3d(outputs), nn.ReLU())


class _Residual(nn.Module):
    """Three convolutions beside a plain path."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(*[_unit(width, width) for _ in range(3)])

    def forward(self, x):
        return self.layers(x) + x


class VNet(_OfVolumes, nn.Module):
    """V-Net (Milletari et al. 2016) on crops of 32³ voxels of the hippocampus, three classes.

    Sizes of NVIDIA/DeepLearningExamples, TensorFlow/Segmentation/VNet: model/vnet.py and the
    defaults of its command line.
    """

    side, multiple = 32, 8

    def __init__(self, widths=(16, 32, 64, 128), classes=3):
        super().__init__()
        pairs = list(zip(widths, widths[1:]))
        self.inward = _unit(1, widths[0])
        self.down = nn.ModuleList(
            [nn.Sequential(_unit(a, b, 2, 2), _Residual(b)) for a, b in pairs]
        )
        joined = [widths[-1], *(2 * width for width in widths[-2:0:-1])]
        self.grow = nn.ModuleList([self._grown(a, b) for a, b in zip(joined, widths[-2::-1])])
        self.up = nn.ModuleList([_Residual(width) for width in joined[1:]])
        self.outward = nn.Conv3d(widths[0], classes, 3, padding=1)

    @staticmethod
    def _grown(inputs, outputs):
        grown = nn.ConvTranspose3d(inputs, outputs, 2, 2)
        return nn.Sequential(grown, nn.BatchNorm3d(outputs), nn.ReLU())

    def inputs(self, batch):
        """Volumes."""
        return torch.empty(batch, 1, *self.shape)

    def loss(self, output, _inputs):
        """Cross-entropy of every voxel."""
        return F.cross_entropy(output, torch.empty(output[:, 0].shape, dtype=torch.int64))

    def forward(self, x):
        return self.outward(self.grow[-1](_down_and_up(self, self.inward(x) + x)))


MODELS = {
    "unet3d": VolumeUNet,
    "vnet": VNet,
    "unet3d_brats": lambda: VolumeUNet(4, 4, 3),
    "unet3d_brats_whole": lambda: VolumeUNet(4, 4, 3, (224, 224, 160)),
}
