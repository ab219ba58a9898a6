"""Batches of a device where none is stated: which are tried, and which of them is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy

#: Batches tried when the user names none; throughput has usually settled long before the end.
_MAX_DEFAULT_BATCH = 4096
#: The default batch is the smallest that reaches this share of the best throughput.
_SETTLED_FRAC = 0.98


def batch_sizes(max_global_batch: int | None) -> list[int]:
    """Batches of one device among which the default is chosen: powers of two.

    >>> batch_sizes(9)
    [1, 2, 4, 8]
    """
    sizes = (2**power for power in range(_MAX_DEFAULT_BATCH.bit_length()))
    return [size for size in sizes if size <= (max_global_batch or _MAX_DEFAULT_BATCH)]


def settled_batch(sizes: Sequence[int], steps: Steps, cluster: Cluster) -> int:
    """The smallest fitting batch that settles throughput.

    Args:
        sizes: Of `batch_sizes`.
        steps: One of each.
        cluster: Where.

    Raises:
        MissingFactError: The catalogue does not know what the times need.
    """
    steps.check_known()
    fits = steps.needed_bytes() <= cluster.capacity_bytes
    if not fits.any():
        return 1
    rate = np.where(fits, np.array(sizes) / steps.step_s, 0.0)
    return sizes[int(np.argmax(rate >= _SETTLED_FRAC * rate.max()))]


def sharing_strategies(count: int, devices_per_node: int) -> Iterator[Strategy]:
    """Ways in which devices hold together what none holds alone, each with items of its own.

    States that all split; or experts and tables that those of a node share.
    """
    if count == 1:
        return
    yield Strategy.from_degrees(dp=count, sharding="zero3")
    shared = min(count, devices_per_node)
    if count % shared == 0 and shared > 1:
        yield Strategy.from_degrees(dp=count // shared, ep=shared, sharding="zero2")
