"""How often devices fail, and what the slowest of many ranks costs the others."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray
from paceline.shipped import shipped_rows
from paceline.units import DAY_S


def straggler_factor(num_ranks: npt.ArrayLike, step_variation_frac: float) -> FloatArray:
    """How much longer a step gets because all wait for the slowest rank.

    The expected largest of ``n`` normal step times; exact for 1 and 2, within 2 % of the true
    order statistic beyond (Blom, "Statistical Estimates and Transformed Beta-Variables", 1958).

    Args:
        num_ranks: Ranks that wait for each other.
        step_variation_frac: Standard deviation of one rank's step time over its mean.

    >>> straggler_factor([1, 2], 0.01).round(5).tolist()
    [1.0, 1.00564]
    """
    ranks = np.maximum(np.asarray(num_ranks, dtype=np.float64), 1.0)
    quantile = (ranks - 0.375) / (ranks + 0.25)
    largest = np.where(ranks > 2, _normal_quantile(quantile), (ranks - 1.0) / math.sqrt(math.pi))
    return np.asarray(1.0 + step_variation_frac * largest)


@cache
def usual_mtbf_s() -> float:
    """Time between interruptions of one device with its share of node and network, as published."""
    runs = shipped_rows("parallelism", "interruptions.csv")
    days = sum(int(run["num_days"]) * int(run["num_devices"]) for run in runs)
    return days * DAY_S / sum(int(run["num_interruptions"]) for run in runs)


@cache
def step_variation_frac() -> float:
    """Standard deviation of one rank's step over its mean, from ``data/synchronisation.csv``."""
    rows = shipped_rows("parallelism", "synchronisation.csv")
    return float({row["name"]: row["value"] for row in rows}["step_variation_frac"])


def _normal_quantile(probability: FloatArray) -> FloatArray:
    """Upper quantile of the standard normal (Abramowitz and Stegun 26.2.23, error below 4.5e-4)."""
    tail = np.sqrt(-2.0 * np.log(np.maximum(1.0 - probability, 1e-300)))
    upper = 2.515517 + 0.802853 * tail + 0.010328 * tail**2
    lower = 1.0 + 1.432788 * tail + 0.189269 * tail**2 + 0.001308 * tail**3
    return np.asarray(tail - upper / lower)
