"""Networks over points in space."""

import torch
import torch.nn.functional as F
from torch import nn


def _shared(inputs, outputs):
    """A layer that all points share."""
    return [nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU(True)]


def _dense(inputs, outputs):
    return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(True)]


class _Turned(nn.Module):
    """Points turned by a matrix that a network makes of all of them."""

    def __init__(self, width):
        super().__init__()
        self.width = width
        self.points = nn.Sequential(*_shared(width, 64), *_shared(64, 128), *_shared(128, 1024))
        self.matrix = nn.Sequential(
            *_dense(1024, 512), *_dense(512, 256), nn.Linear(256, width**2)
        )  # fmt: skip

    def forward(self, x):
        turn = self.matrix(self.points(x).amax(2)).view(-1, self.width, self.width)
        return torch.bmm(turn, x)


class PointNet(nn.Module):
    """PointNet that tells 40 classes of 1,024 points (Qi et al. 2017, arXiv:1612.00593).

    Section 5.1 and table 6 of the paper: 3.5 M numbers.
    """

    has_one_size, side, described = True, None, "clouds of 1,024 points"

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            _Turned(3), *_shared(3, 64), _Turned(64), *_shared(64, 128), nn.Conv1d(128, 1024, 1),
            nn.BatchNorm1d(1024),
        )  # fmt: skip
        self.head = nn.Sequential(
            *_dense(1024, 512), nn.Linear(512, 256), nn.Dropout(0.4), nn.BatchNorm1d(256),
            nn.ReLU(True), nn.Linear(256, 40),
        )  # fmt: skip

    def inputs(self, batch):
        """Places of points."""
        return torch.empty(batch, 3, 1024)

    def loss(self, output, _inputs):
        """Which class it is."""
        return F.cross_entropy(output, torch.empty(len(output), dtype=torch.int64))

    def forward(self, points):
        return self.head(self.layers(points).amax(2))


MODELS = {"pointnet": PointNet}
