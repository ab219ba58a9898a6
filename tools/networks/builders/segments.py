"""DeepLabV3+ and PSPNet on ResNets, of VOC's 21 classes.

Chen et al. 2018, arXiv:1802.02611 (at a sixteenth of the side, rates 6, 12, 18; 48 channels of the
low level); Zhao et al. 2017, arXiv:1612.01105 (at an eighth, pools of 1, 2, 3 and 6 places).
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn


def _conv(inputs, outputs, kernel):
    product = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(product, nn.BatchNorm2d(outputs), nn.ReLU())


class _Segments(nn.Module):
    """A ResNet whose last stages keep their places by spreading their kernels.

    Args:
        depth: Layers of the ResNet.
        spread: For each of the last three stages, whether it keeps its places.
    """

    kind, side, multiple, classes = "image", 512, 96, 21

    def __init__(self, depth, spread):
        super().__init__()
        from torch_networks import zoo

        make = getattr(zoo.import_torchvision().models, f"resnet{depth}")
        made = make(weights=None, replace_stride_with_dilation=spread)
        self.stem = nn.Sequential(made.conv1, made.bn1, made.relu, made.maxpool, made.layer1)
        self.stages = nn.Sequential(made.layer2, made.layer3, made.layer4)

    def inputs(self, batch):
        """Pictures."""
        return torch.empty(batch, 3, self.side, self.side)

    def loss(self, output, _inputs):
        """Which class each place is of."""
        target = torch.empty((len(output), *output.shape[2:]), dtype=torch.int64)
        return F.cross_entropy(output, target)

    @staticmethod
    def as_large(x, other):
        """Places of ``x`` filled in to as many as another has."""
        return F.interpolate(x, size=other.shape[2:], mode="bilinear", align_corners=False)


class DeepLabV3Plus(_Segments):
    """Kernels of four spreads and the mean of all, then places of the low level beside them."""

    multiple = 16

    def __init__(self, depth):
        super().__init__(depth, (False, False, True))
        from torchvision.models.segmentation.deeplabv3 import ASPP

        self.pool, self.low = ASPP(2048, [6, 12, 18], 256), _conv(256, 48, 1)
        self.last = nn.Sequential(_conv(304, 256, 3), _conv(256, 256, 3))
        self.head = nn.Conv2d(256, self.classes, 1)

    def forward(self, images):
        low = self.stem(images)
        x = self.as_large(self.pool(self.stages(low)), low)
        x = self.head(self.last(torch.cat([x, self.low(low)], 1)))
        return self.as_large(x, images)


class PyramidPooling(_Segments):
    """Means of few places beside all of them, and the third stage's answer beside the last's."""

    has_one_size, side = True, 480

    def __init__(self, depth):
        super().__init__(depth, (False, True, True))
        self.pools = nn.ModuleList([_conv(2048, 512, 1) for _ in range(4)])
        self.head = nn.Sequential(_conv(4096, 512, 3), nn.Dropout(0.1), nn.Conv2d(512, 21, 1))
        self.beside = nn.Sequential(_conv(1024, 256, 3), nn.Conv2d(256, self.classes, 1))

    def loss(self, output, inputs):
        """Of both answers."""
        return sum(super(PyramidPooling, self).loss(one, inputs) for one in output)

    def forward(self, images):
        middle = self.stages[:2](self.stem(images))
        x = self.stages[2](middle)
        means = [F.adaptive_avg_pool2d(x, places) for places in (1, 2, 3, 6)]
        wide = [self.as_large(one(mean), x) for one, mean in zip(self.pools, means, strict=True)]
        answers = [self.as_large(self.head(torch.cat([x, *wide], 1)), images)]
        if self.training:
            answers.append(self.as_large(self.beside(middle), images))
        return answers


MODELS = {
    f"{name}_resnet{depth}": functools.partial(make, depth)
    for name, make in (("deeplabv3plus", DeepLabV3Plus), ("pspnet", PyramidPooling))
    for depth in (50, 101)
}
