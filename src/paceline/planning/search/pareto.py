"""Pareto fronts of two quantities that should both be small."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray

Index = npt.NDArray[np.int64]


def pareto_front(cost: FloatArray, duration: FloatArray) -> Index:
    """Indices that nothing else beats in one quantity without losing in the other.

    Equal pairs are kept once, the first of them.

    Args:
        cost: (num_items,), finite.
        duration: (num_items,), finite.

    Returns:
        Indices by rising cost and falling duration.

    >>> pareto_front(np.array([1.0, 2.0, 3.0, 2.5]), np.array([9.0, 5.0, 6.0, 4.0])).tolist()
    [0, 1, 3]
    """
    order = np.lexsort((duration, cost))
    sorted_duration = duration[order]
    best_before = np.concatenate(([np.inf], np.minimum.accumulate(sorted_duration)[:-1]))
    return np.asarray(order[sorted_duration < best_before]).astype(np.int64)


def thin_front(front: Index, duration: FloatArray, *, max_items: int) -> Index:
    """A front with fewer items, evenly spread in log duration; its two ends stay.

    Args:
        front: As `pareto_front` returns it.
        duration: Of all items.
        max_items: At least two.
    """
    if len(front) <= max_items:
        return front
    log_duration = np.log(duration[front])
    wanted = np.linspace(log_duration[0], log_duration[-1], max_items)
    nearest = np.abs(log_duration[None, :] - wanted[:, None]).argmin(axis=1)
    nearest[[0, -1]] = 0, len(front) - 1
    thinned: Index = front[distinct(nearest)]
    return thinned
