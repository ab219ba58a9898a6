"""Models that published measurements name, in the shapes of the code that was measured.

Standard library and torch only. The trace worker finds this module and its siblings beside itself:
``published:ssd300`` is a detector without weights.
"""

import torch
import torch.nn.functional as F
from torch import nn


def _conv_bn(inputs, outputs, kernel, stride=1, padding=0):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class OverfeatFast(nn.Module):
    """The fast model of OverFeat (Sermanet et al., 2014) on 231×231 images."""

    image_size = 231

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 96, 11, 4), nn.ReLU(), nn.MaxPool2d(2, 2),
            nn.Conv2d(96, 256, 5), nn.ReLU(), nn.MaxPool2d(2, 2),
            nn.Conv2d(256, 512, 3, 1, 1), nn.ReLU(),
            nn.Conv2d(512, 1024, 3, 1, 1), nn.ReLU(),
            nn.Conv2d(1024, 1024, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2, 2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Linear(1024 * 6 * 6, 3072), nn.ReLU(), nn.Linear(3072, 4096), nn.ReLU(),
            nn.Linear(4096, 1000),
        )  # fmt: skip

    def forward(self, images):
        """Logits of 1000 classes, [batch, 1000], of images [batch, 3, 231, 231]."""
        return self.classifier(self.features(images).flatten(1))


class _ResponseNorm(nn.Module):
    """Local response normalisation as one kernel that keeps its divisor (cuDNN, MXNet)."""

    def forward(self, x):
        divisor = x * x
        return x * divisor


class AlexNetLrn(nn.Module):
    """AlexNet in one column with 96 filters and normalised responses, 224×224 images.

    Architecture of apache/mxnet, example/image-classification/symbols/alexnet.py.
    """

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 96, 11, 4), nn.ReLU(True), _ResponseNorm(), nn.MaxPool2d(3, 2),
            nn.Conv2d(96, 256, 5, padding=2), nn.ReLU(True), _ResponseNorm(), nn.MaxPool2d(3, 2),
            nn.Conv2d(256, 384, 3, padding=1), nn.ReLU(True),
            nn.Conv2d(384, 384, 3, padding=1), nn.ReLU(True),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Linear(256 * 5 * 5, 4096), nn.ReLU(True), nn.Dropout(0.5),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(0.5), nn.Linear(4096, 1000),
        )  # fmt: skip

    def forward(self, images):
        """Logits of 1000 classes, [batch, 1000], of images [batch, 3, 224, 224]."""
        return self.classifier(self.features(images).flatten(1))


class _InceptionBlock(nn.Module):
    """A block of Inception-BN: 1×1, 3×3, double 3×3 and pooling; no 1×1 where it strides."""

    def __init__(self, inputs, one, three, double, pool, stride=1):
        super().__init__()
        self.one = _conv_bn(inputs, one, 1) if one else None
        self.three = nn.Sequential(
            _conv_bn(inputs, three[0], 1), _conv_bn(three[0], three[1], 3, stride, 1)
        )
        self.double_three = nn.Sequential(
            _conv_bn(inputs, double[0], 1), _conv_bn(double[0], double[1], 3, 1, 1),
            _conv_bn(double[1], double[1], 3, stride, 1),
        )  # fmt: skip
        self.pool = nn.MaxPool2d(3, stride, 1)
        self.project = _conv_bn(inputs, pool, 1) if pool else nn.Identity()

    def forward(self, x):
        parts = [self.three(x), self.double_three(x), self.project(self.pool(x))]
        if self.one is not None:
            parts.insert(0, self.one(x))
        return torch.cat(parts, 1)


#: inputs, 1×1, 3×3 (reduce, out), double 3×3 (reduce, out), pool projection, stride
_INCEPTION_BN = (
    (192, 64, (64, 64), (64, 96), 32, 1), (256, 64, (64, 96), (64, 96), 64, 1),
    (320, 0, (128, 160), (64, 96), 0, 2), (576, 224, (64, 96), (96, 128), 128, 1),
    (576, 192, (96, 128), (96, 128), 128, 1), (576, 160, (128, 160), (128, 160), 128, 1),
    (608, 96, (128, 192), (160, 192), 128, 1), (608, 0, (128, 192), (192, 256), 0, 2),
    (1056, 352, (192, 320), (160, 224), 128, 1), (1024, 352, (192, 320), (192, 224), 128, 1),
)  # fmt: skip


class InceptionBn(nn.Module):
    """Inception with batch normalisation (Ioffe and Szegedy, 2015), as in MXNet's model zoo."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            _conv_bn(3, 64, 7, 2, 3), nn.MaxPool2d(3, 2, 1), _conv_bn(64, 64, 1),
            _conv_bn(64, 192, 3, 1, 1), nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        self.blocks = nn.Sequential(*[_InceptionBlock(*numbers) for numbers in _INCEPTION_BN])
        self.head = nn.Linear(1024, 1000)

    def forward(self, images):
        """Logits of 1000 classes, [batch, 1000], of images [batch, 3, height, width]."""
        x = self.blocks(self.stem(images))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Ssd300(nn.Module):
    """SSD at 300×300 on ResNet-50 up to its third stage, 81 classes.

    Architecture of NVIDIA/DeepLearningExamples, PyTorch/Detection/SSD.
    """

    image_size = 300

    def __init__(self, classes=81):
        super().__init__()
        from torch_networks import zoo

        backbone = zoo.import_torchvision().models.resnet50(weights=None)
        self.backbone = nn.Sequential(*list(backbone.children())[:7])
        block = self.backbone[-1][0]
        block.conv2.stride, block.downsample[0].stride = (1, 1), (1, 1)
        widths, mids = (1024, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128)
        self.extra = nn.ModuleList(
            [
                nn.Sequential(
                    _conv_bn(a, mid, 1), _conv_bn(mid, b, 3, 2 if n < 3 else 1, 1 if n < 3 else 0)
                )
                for n, (a, mid, b) in enumerate(zip(widths, mids, widths[1:]))
            ]
        )
        boxes = (4, 6, 6, 6, 4, 4)
        self.places = nn.ModuleList(
            [nn.Conv2d(w, 4 * n, 3, padding=1) for w, n in zip(widths, boxes)]
        )
        self.scores = nn.ModuleList(
            [nn.Conv2d(w, classes * n, 3, padding=1) for w, n in zip(widths, boxes)]
        )
        self.classes = classes

    def forward(self, images):
        """Logits [batch, 8732, 81] and offsets [batch, 8732, 4] of boxes, at 300×300."""
        x = self.backbone(images)
        places, scores = [self.places[0](x)], [self.scores[0](x)]
        for extra, place, score in zip(self.extra, self.places[1:], self.scores[1:]):
            x = extra(x)
            places.append(place(x))
            scores.append(score(x))
        batch = images.shape[0]
        joined = torch.cat([s.reshape(batch, self.classes, -1) for s in scores], 2)
        boxes = torch.cat([p.reshape(batch, 4, -1) for p in places], 2)
        return joined.transpose(1, 2), boxes.transpose(1, 2)


class MaskRcnn(nn.Module):
    """Mask R-CNN on ResNet-50 with a feature pyramid at 800×1344, without its dynamic parts.

    Proposals are a fixed number of regions per image and their pooling is a copy; choosing and
    suppressing boxes (host work and small kernels) is not counted.

    Attributes:
        side: Of a square picture, where one is asked for.
        multiple: Of the sides of a batch's pictures, which are padded to it.
    """

    side, multiple = None, 32

    def __init__(self, regions=512, masks=128):
        super().__init__()
        from torch_networks import zoo

        stages = list(zoo.import_torchvision().models.resnet50(weights=None).children())
        self.stem, self.stages = nn.Sequential(*stages[:4]), nn.ModuleList(stages[4:8])
        self.lateral = nn.ModuleList([nn.Conv2d(w, 256, 1) for w in (256, 512, 1024, 2048)])
        self.smooth = nn.ModuleList([nn.Conv2d(256, 256, 3, padding=1) for _ in range(4)])
        self.rpn = nn.Conv2d(256, 256, 3, padding=1)
        self.rpn_out = nn.Conv2d(256, 15, 1)
        self.box = nn.Sequential(
            nn.Linear(256 * 49, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
            nn.Linear(1024, 81 * 5),
        )  # fmt: skip
        self.mask = nn.Sequential(
            *[nn.Sequential(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU()) for _ in range(4)],
            nn.ConvTranspose2d(256, 256, 2, 2), nn.ReLU(), nn.Conv2d(256, 81, 1),
        )  # fmt: skip
        self.regions, self.masks = regions, masks

    @property
    def shape(self):
        """Of a picture: a square that was asked for, or as a batch of COCO has them."""
        return (self.side, self.side) if self.side else (800, 1344)

    @property
    def described(self):
        """As printed."""
        return "pictures of %d×%d" % self.shape

    def inputs(self, batch):
        """Images."""
        return torch.empty(batch, 3, *self.shape)

    def loss(self, output, _inputs):
        """A square of every score, box and mask: matching boxes to truth is not counted."""
        return sum(part.float().pow(2).mean() for part in output)

    def forward(self, images):
        """What the heads tell of images [batch, 3, height, width].

        Returns:
            Scores and offsets of proposals, [batch, 15, height, width] of each of five levels;
            those of regions, [batch × regions, 405]; masks, [batch × masks, 81, 28, 28].
        """
        x, levels = self.stem(images), []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        merged = [lateral(level) for lateral, level in zip(self.lateral, levels)]
        for number in (2, 1, 0):
            merged[number] = merged[number] + F.interpolate(
                merged[number + 1], size=merged[number].shape[-2:], mode="nearest"
            )
        pyramid = [smooth(level) for smooth, level in zip(self.smooth, merged)]
        pyramid.append(F.max_pool2d(pyramid[-1], 1, 2))
        proposals = [self.rpn_out(torch.relu(self.rpn(level))) for level in pyramid]
        boxes = self._pooled(pyramid[1], 7, self.regions)
        masks = self._pooled(pyramid[0], 14, self.masks)
        return [*proposals, self.box(boxes.flatten(1)), self.mask(masks)]

    def _pooled(self, level, side, count):
        one = F.adaptive_avg_pool2d(level, side)
        return one[:, None].expand(-1, count, -1, -1, -1).reshape(-1, 256, side, side)


class RetinaNetJob:
    """RetinaNet with a ResNet-50 pyramid on 800×800 images, before its boxes are matched.

    Matching boxes to targets and suppressing duplicates depend on the data and are left out.
    """

    kind, side, multiple = "image", 800, 32

    def __init__(self):
        from torch_networks import zoo

        detection = zoo.import_torchvision().models.detection
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


_MODELS = {
    "overfeat_fast": OverfeatFast,
    "inception_bn": InceptionBn,
    "alexnet_lrn": AlexNetLrn,
    "ssd300": Ssd300,
    "mask_rcnn": MaskRcnn,
}
