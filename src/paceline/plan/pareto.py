"""Pareto fronts of two quantities that should both be small, and the knee of a scaling curve."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.trace.graph import FloatArray

Index = npt.NDArray[np.int64]

#: A doubling of devices that buys less than this speed-up is past the knee: more than a quarter
#: of what is added is lost.
KNEE_SPEED_UP_PER_DOUBLING = 1.5


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
    thinned: Index = front[np.unique(nearest)]
    return thinned


def knee_index(num_devices: FloatArray, samples_per_s: FloatArray) -> int:
    """The last point up to which each step still pays.

    A step from ``n`` to ``k n`` devices pays if it speeds up by at least
    ``KNEE_SPEED_UP_PER_DOUBLING ** log2(k)``.

    Args:
        num_devices: Rising, (num_points,).
        samples_per_s: Throughput at each, (num_points,).

    >>> knee_index(np.array([1.0, 2.0, 4.0, 8.0]), np.array([1.0, 1.9, 3.6, 4.0]))
    2
    """
    growth = np.log2(num_devices[1:] / num_devices[:-1])
    pays = samples_per_s[1:] / samples_per_s[:-1] >= KNEE_SPEED_UP_PER_DOUBLING**growth
    stops = np.flatnonzero(~pays)
    return int(stops[0]) if len(stops) else len(num_devices) - 1
