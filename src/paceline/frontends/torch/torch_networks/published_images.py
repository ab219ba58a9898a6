"""Detectors of MLPerf as published measurements ran them.

Standard library, torch and torchvision only. ``published_images:NAME`` builds one.
"""

import torch
import torch.nn.functional as F
from torch import nn


class SsdResNet34(nn.Module):
    """SSD at 300×300 on ResNet-34 up to its third stage, 81 classes (MLPerf Training v0.5)."""

    image_size = 300

    def __init__(self, classes=81):
        super().__init__()
        from torch_networks import zoo

        backbone = zoo.import_torchvision().models.resnet34(weights=None)
        self.backbone = nn.Sequential(*list(backbone.children())[:7])
        block = self.backbone[-1][0]
        block.conv1.stride, block.downsample[0].stride = (1, 1), (1, 1)
        widths, mids = (256, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128)
        self.extra = nn.ModuleList([])
        for n, (a, mid, b) in enumerate(zip(widths, mids, widths[1:])):
            stride, padding = (2, 1) if n < 3 else (1, 0)
            self.extra.append(
                nn.Sequential(
                    nn.Conv2d(a, mid, 1), nn.ReLU(), nn.Conv2d(mid, b, 3, stride, padding),
                    nn.ReLU(),
                )
            )  # fmt: skip
        self.heads = nn.ModuleList(
            [
                nn.Conv2d(w, (4 + classes) * n, 3, padding=1)
                for w, n in zip(widths, (4, 6, 6, 6, 4, 4))
            ]
        )
        self.columns = 4 + classes

    def forward(self, images):
        """Offsets and logits of 8732 boxes, [batch, 8732, 85], of images [batch, 3, 300, 300]."""
        x = self.backbone(images)
        found = [self.heads[0](x)]
        for extra, head in zip(self.extra, self.heads[1:]):
            x = extra(x)
            found.append(head(x))
        joined = [one.reshape(images.shape[0], self.columns, -1) for one in found]
        return torch.cat(joined, 2).transpose(1, 2)


class RetinaNetMlperf(nn.Module):
    """RetinaNet of MLPerf Training v2.0 on: ResNeXt-50 32x4d, 264 classes, images of 800×800.

    Norms are frozen and so is the backbone up to its first stage. Matching boxes is not counted.
    Architecture of mlcommons/training, single_stage_detector/ssd/model.
    """

    side, multiple = 800, 32

    def __init__(self, classes=264):
        super().__init__()
        from torch_networks import zoo

        vision = zoo.import_torchvision()
        trunk = vision.models.detection.backbone_utils.resnet_fpn_backbone(
            backbone_name="resnext50_32x4d", weights=None, returned_layers=[2, 3, 4],
            extra_blocks=vision.ops.feature_pyramid_network.LastLevelP6P7(256, 256),
            trainable_layers=3,
        )  # fmt: skip
        heads = vision.models.detection.retinanet.RetinaNetHead(256, 9, classes)
        self.trunk, self.heads = trunk, heads

    def inputs(self, batch):
        """Images."""
        return torch.empty(batch, 3, self.side, self.side)

    def loss(self, output, _inputs):
        """Of scores and boxes; matching boxes to truth is not counted."""
        scores, boxes = (output[name].float() for name in ("cls_logits", "bbox_regression"))
        classes = F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores))
        return classes + F.l1_loss(boxes, torch.zeros_like(boxes))

    def forward(self, images):
        """Logits [batch, anchors, 264] and offsets [batch, anchors, 4], by torchvision's names."""
        return self.heads(list(self.trunk(images).values()))


_MODELS = {
    "ssd_resnet34": SsdResNet34,
    "retinanet_mlperf": RetinaNetMlperf,
}
