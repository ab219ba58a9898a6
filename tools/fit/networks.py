"""Small networks from features to log10 of (time over bound)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from fit.options import FitOptions
from paceline.prediction.calibration.fitted import EfficiencyModel
from paceline.prediction.features import ATTENTION_FEATURES, PRODUCT_FEATURES

_FLOOR, _CEILING = -0.5, 2.5
#: Weights or biases of one layer of all members.
Layer = np.ndarray
#: Share of the noise: streams have few features that tell a card, and sizes that must stay sharp.
_NOISE_OF = {"stream": 0.2}


class Network(nn.Module):
    """Clamped, standardised features through hidden layers, several networks side by side.

    Args:
        x: Features, which set the clamps and the scale.
        options: How the fit is run.
        onto: Column whose value is added to the answer, such as that of the tile model; None.
    """

    low: torch.Tensor
    high: torch.Tensor
    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, x: np.ndarray, options: FitOptions, onto: int | None = None):
        super().__init__()
        self.onto = onto
        low, high = np.quantile(x, 0.0005, axis=0), np.quantile(x, 0.9995, axis=0)
        seen = np.clip(x, low, high)
        facts = (low, high, seen.mean(0), np.maximum(seen.std(0), 0.2))
        for name, value in zip(("low", "high", "mean", "scale"), facts, strict=True):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float32))
        self.noise = options.noise
        sizes = (len(low), *options.hidden, 1)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for a, b in pairwise(sizes):
            reach = a**-0.5
            self.weights.append(torch.empty(options.members, a, b).uniform_(-reach, reach))
            self.biases.append(torch.empty(options.members, 1, b).uniform_(-reach, reach))
        with torch.no_grad():
            self.weights[-1] *= 0.1
            self.biases[-1].fill_(0.25 if onto is None else 0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Log10 slowdowns, (members, rows)."""
        x = torch.clamp(x, self.low, self.high)
        start = 0.0 if self.onto is None else x[:, self.onto]
        x = (x - self.mean) / self.scale
        if self.training and self.noise:
            x = x + self.noise * torch.randn_like(x)
        x = x.expand(len(self.weights[0]), *x.shape)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = torch.relu(torch.baddbmm(bias, x, weight))
        y = start + torch.baddbmm(self.biases[-1], x, self.weights[-1])[..., 0]
        return torch.clamp(y, _FLOOR, _CEILING) + 0.01 * (y - y.detach())

    def export(self) -> EfficiencyModel:
        weights = [w.detach().double().numpy() for w in self.weights]
        biases = [b.detach().double().numpy() for b in self.biases]
        mean, scale = self.mean.double().numpy(), self.scale.double().numpy()
        weights[0] = weights[0] / scale[:, None]
        biases[0] = biases[0] - mean @ weights[0][:, None]
        if self.onto is not None:
            weights, biases = _passed_through(weights, biases, self.onto)
        return EfficiencyModel(
            low=self.low.numpy().copy(), high=self.high.numpy().copy(),
            weights=tuple(w.astype(np.float32) for w in weights),
            biases=tuple(b.astype(np.float32) for b in biases),
            floor=_FLOOR, ceiling=_CEILING,
        )  # fmt: skip


def _passed_through(
    weights: list[Layer], biases: list[Layer], column: int
) -> tuple[list[Layer], list[Layer]]:
    """The same layers with two units more, which carry one feature unchanged to the answer."""
    signs = np.array([1.0, -1.0])
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        members, inputs, outputs = weight.shape
        is_first, is_last = layer == 0, layer == len(weights) - 1
        more_in, more_out = 0 if is_first else 2, 0 if is_last else 2
        wide = np.zeros((members, inputs + more_in, outputs + more_out))
        wide[:, :inputs, :outputs] = weight
        if is_first:
            wide[:, column, outputs:] = signs
        elif is_last:
            wide[:, inputs:, 0] = signs
        else:
            wide[:, inputs:, outputs:] = np.eye(2)
        weights[layer] = wide
        biases[layer] = np.concatenate([bias, np.zeros((members, 1, more_out))], axis=2)
    return weights, biases


#: Models whose network corrects the tile model, which is this feature.
ONTO = {
    "product_tensor": PRODUCT_FEATURES.index("log_tiled_over_bound"),
    "attention": ATTENTION_FEATURES.index("log_tiled_over_bound"),
}


class Tiled(nn.Module):
    """No network: the tile model, which is the last feature, is the answer.

    Free coefficients on FP32 products and on decode attention carry worse to other GPUs than the
    tile model alone: in folds over the GPUs of the training side.
    """

    def __init__(self, num_features: int):
        super().__init__()
        self.num_features = num_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x[None, :, -1], _FLOOR, _CEILING)

    def export(self) -> EfficiencyModel:
        pick = np.zeros((1, self.num_features, 1), np.float32)
        pick[0, -1] = 1.0
        wide = np.full(self.num_features, 9.0, np.float32)
        return EfficiencyModel(
            low=-wide, high=wide, weights=(pick,), biases=(np.zeros((1, 1, 1), np.float32),),
            floor=_FLOOR, ceiling=_CEILING,
        )  # fmt: skip


#: Models that the tile model answers alone.
TILED = frozenset({"product_vector", "attention_decode"})


def make_networks(
    features: Mapping[str, np.ndarray], options: FitOptions
) -> dict[str, Network | Tiled]:
    """Networks by model, whose clamps span the features of all its rows."""
    return {model: _make_network(model, features[model], options) for model in sorted(features)}


def _make_network(model: str, features: np.ndarray, options: FitOptions) -> Network | Tiled:
    if model in TILED:
        return Tiled(features.shape[1])
    noise = options.noise * _NOISE_OF.get(model, 1.0)
    own = dataclasses.replace(options, noise=noise)
    return Network(features.astype(np.float64), own, ONTO.get(model))
