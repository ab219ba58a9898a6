"""Radiance fields: perceptrons of places."""

import torch
import torch.nn.functional as F
from torch import nn


class _Radiance(nn.Module):
    """Density and colour of points: eight layers of 256, the places again before the fifth."""

    def __init__(self, places=63, ways=27, width=256):
        super().__init__()
        self.before = nn.ModuleList(
            nn.Linear(places if not number else width, width) for number in range(5)
        )
        self.after = nn.ModuleList(
            nn.Linear(width if number else width + places, width) for number in range(3)
        )
        self.density, self.features = nn.Linear(width, 1), nn.Linear(width, width)
        self.turn, self.colour = nn.Linear(width + ways, width // 2), nn.Linear(width // 2, 3)

    def forward(self, places, ways):
        x = places
        for layer in self.before:
            x = F.relu(layer(x))
        x = torch.cat((places, x), -1)
        for layer in self.after:
            x = F.relu(layer(x))
        turned = F.relu(self.turn(torch.cat((self.features(x), ways), -1)))
        return self.density(x)[..., 0], torch.sigmoid(self.colour(turned))


def _waves(x, count):
    """Sines and cosines of so many octaves, beside the places themselves."""
    parts = [x] + [wave(x * 2.0**n) for n in range(count) for wave in (torch.sin, torch.cos)]
    return torch.cat(parts, -1)


class Nerf(nn.Module):
    """NeRF (Mildenhall et al. 2020, arXiv:2003.08934): 64 coarse and 192 fine points of a ray.

    1,191,688 numbers in its two networks. Drawing the fine points is not counted.
    """

    described = "rays of 64 and 192 points"

    def __init__(self):
        super().__init__()
        self.coarse, self.fine = _Radiance(), _Radiance()

    def inputs(self, batch):
        """Points of rays, and their ways."""
        return torch.empty(batch, 64, 3), torch.empty(batch, 192, 3), torch.empty(batch, 1, 3)

    def loss(self, output, _inputs):
        """Squared error of both colours."""
        return sum(F.mse_loss(one, torch.empty_like(one)) for one in output)

    def forward(self, few, many, ways):
        return self._seen(self.coarse, few, ways), self._seen(self.fine, many, ways)

    @staticmethod
    def _seen(network, points, ways):
        along = _waves(ways, 4).expand(-1, points.shape[1], -1)
        density, colour = network(_waves(points, 10), along)
        opaque = 1.0 - torch.exp(-F.relu(density))
        passed = torch.cumprod(1.0 - opaque + 1e-10, -1)
        return ((opaque * passed)[..., None] * colour).sum(1)


MODELS = {"nerf": Nerf}
