"""Models that published measurements name: timm's by name, and others in the shapes of their code.

Standard library, torch and (for ``timm__NAME``) timm only. The trace worker finds this module
beside itself: ``published_models:timm__resnet18`` is timm's resnet18 without weights.
"""

import torch.nn.functional as F
from torch import nn


def __getattr__(name):
    """``timm__NAME`` builds timm's model NAME; ``published__NAME`` a model of this module."""
    scheme, _, model = name.partition("__")
    if scheme == "timm" and model:
        return lambda: _timm_model(model)
    if scheme == "published" and model in _MODELS:
        return _MODELS[model]
    raise AttributeError("no published model is called `%s`" % name)


def _timm_model(name):
    import torch_models

    torch_models.import_torchvision()
    import timm

    return timm.create_model(name, pretrained=False)


def _conv_bn(inputs, outputs, kernel, stride=1, padding=0):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class OverfeatFast(nn.Module):
    """The fast model of OverFeat (Sermanet et al., 2014) on 231×231 images."""

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
        import torch

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
        x = self.blocks(self.stem(images))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


_MODELS = {
    "overfeat_fast": OverfeatFast,
    "inception_bn": InceptionBn,
}
