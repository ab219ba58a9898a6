"""A model of one's own, as a stranger brings it."""

import torch
from torch import nn


def network() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A small perceptron with its input."""
    layers = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    return layers, {"input": torch.zeros(8, 784)}
