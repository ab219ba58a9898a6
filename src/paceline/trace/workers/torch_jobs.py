"""Zoo models of pictures of any side that bring their own inputs and losses.

Standard library, torch and torchvision only. Each class is a job as users write them: ``model``,
``inputs`` and ``loss``.
"""

import torch
import torch.nn.functional as F
import torch_models
from torch import nn


class MedicalUNet(nn.Module):
    """The U-Net of Ronneberger et al. 2015 with padded convolutions and batch norm, one channel."""

    def __init__(self, width=64, depth=4, classes=2):
        super().__init__()
        widths = [width * 2**n for n in range(depth + 1)]
        self.inward = self._double(1, width)
        self.down = nn.ModuleList([self._double(a, b) for a, b in zip(widths, widths[1:])])
        back = widths[::-1]
        self.grow = nn.ModuleList([nn.ConvTranspose2d(a, b, 2, 2) for a, b in zip(back, back[1:])])
        self.up = nn.ModuleList([self._double(a, b) for a, b in zip(back, back[1:])])
        self.outward = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _double(inputs, outputs):
        layers = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
                       nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]  # fmt: skip
        return nn.Sequential(*layers)

    def forward(self, x):
        kept = [self.inward(x)]
        for block in self.down:
            kept.append(block(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for grow, block in zip(self.grow, self.up):
            x = block(torch.cat((kept.pop(), grow(x)), dim=1))
        return self.outward(x)


class SegmentationJob:
    """Pixel-wise cross-entropy on 512×512 slices, or on others of a multiple of 16."""

    kind, side, multiple = "image", 512, 16

    def __init__(self):
        self.model = MedicalUNet()

    def inputs(self, batch):
        """Grey slices."""
        return torch.empty(batch, 1, self.side, self.side)

    def loss(self, output, inputs):
        """Cross-entropy of every pixel."""
        return F.cross_entropy(
            output, torch.empty(len(output), *output.shape[2:], dtype=torch.int64)
        )


class RetinaNetJob:
    """RetinaNet with a ResNet-50 pyramid on 800×800 images, before its boxes are matched.

    Matching boxes to targets and suppressing duplicates depend on the data and are left out.
    """

    kind, side, multiple = "image", 800, 32

    def __init__(self):
        detection = torch_models.import_torchvision().models.detection
        whole = detection.retinanet_resnet50_fpn(weights=None, weights_backbone=None)
        self.model = _Detector(whole.backbone, whole.head)

    def inputs(self, batch):
        """Images."""
        return torch.empty(batch, 3, self.side, self.side)

    def loss(self, output, inputs):
        """Cross-entropy of every anchor's classes, and distances of its box."""
        scores, boxes = output["cls_logits"], output["bbox_regression"]
        classes = F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))
        return classes + F.l1_loss(boxes, torch.zeros_like(boxes))


class _Detector(nn.Module):
    def __init__(self, backbone, head):
        super().__init__()
        self.backbone, self.head = backbone, head

    def forward(self, images):
        return self.head(list(self.backbone(images).values()))
