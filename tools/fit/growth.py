"""The law that streams grow with their elements, as a penalty on what a network has learned."""

from __future__ import annotations

import numpy as np
import torch

from fit.networks import Network
from fit.step_model import STREAM_OVER_L2, uncached
from paceline.prediction.features import STREAM_FEATURES

#: What grows with the elements of a stream, all else equal, and by how much from one size to the
#: next: the root of two.
_GROWING = [
    STREAM_FEATURES.index(n) for n in ("log_bound_us", "log_bytes_over_l2", "log_rows_per_sm")
]
_GROWTH = float(np.log10(2.0)) / 2
#: Sizes that the law is asked for: the rows' own, over or times so many decades.
_REACH = 2.0
#: Weights of growth that is too little and too much: the least that make a fit keep the laws that
#: `tests/unit/prediction/test_streams.py` asks of it. More of the latter flattens what is measured.
_LACK_WEIGHT, _EXCESS_WEIGHT = 30.0, 1.5
#: Least and most growth of time that cost nothing, over that of the elements.
_LEAST_GROWTH, _MOST_GROWTH = 0.05, 1.1
#: Log10 of bytes over the last-level cache between which streams leave it and may slow down.
_LEAVES_CACHE = (-0.5, 0.0)


def growth_loss(network: Network, x: torch.Tensor) -> torch.Tensor:
    """Penalty on streams that would be faster with more elements, or much slower per element.

    No kernel is, but that one which leaves the cache loses its speed.

    Args:
        network: Of streams.
        x: Features, (rows, features); each is asked for at another size, drawn anew.
    """
    along = torch.zeros(x.shape[1])
    along[_GROWING] = 1.0
    x = x + along * _REACH * (2 * torch.rand(len(x), 1) - 1)
    is_training = network.training
    network.eval()
    more = x + _GROWTH * along
    least = _GROWTH + network(more) - network(x)
    most = _GROWTH + _slowed(network, more) - _slowed(network, x)
    network.train(is_training)
    low, high = _LEAVES_CACHE
    is_kept = (x[:, STREAM_OVER_L2] < low) | (x[:, STREAM_OVER_L2] > high)
    excess = torch.relu(most - _MOST_GROWTH * _GROWTH) * is_kept
    lack = torch.relu(_LEAST_GROWTH * _GROWTH - least)
    return (_LACK_WEIGHT * lack + _EXCESS_WEIGHT * excess).mean() / _GROWTH


def _slowed(network: Network, x: torch.Tensor) -> torch.Tensor:
    """Log10 slowdown of streams, no less than what the cache cannot hold takes."""
    return torch.maximum(network(x), torch.log10(torch.clamp(uncached("stream", x), min=1e-3)))
