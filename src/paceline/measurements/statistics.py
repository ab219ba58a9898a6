"""Medians with their uncertainty, from all samples and without assuming their distribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.values import dataclass

_NUM_RESAMPLES = 2000
_SEED = 20261120


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianInterval:
    """A statistic of medians and the interval in which it lies at the stated confidence.

    Attributes:
        low: Lower end.
        high: Upper end.
    """

    low: float
    mid: float
    high: float


def median_ratio(
    numerator: Sequence[float], denominator: Sequence[float], *, confidence: float = 0.9
) -> MedianInterval:
    """Ratio of two medians of independent samples, with its bootstrap interval.

    One sample on each side gives an interval of no width: it says nothing about its own spread.

    Source:
        Efron, Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13 (percentile
        interval).

    >>> median_ratio([2.0, 2.0, 2.0], [1.0, 1.0, 1.0]).mid
    2.0
    """
    generator = np.random.default_rng(_SEED)
    above = _resampled_medians(numerator, generator)
    below = _resampled_medians(denominator, generator)
    low, high = _percentiles(above / below, confidence)
    mid = float(np.median(numerator) / np.median(denominator))
    return MedianInterval(low=low, mid=mid, high=high)


def relative_spread(samples: Sequence[float]) -> float:
    """Distance of the quartiles over the median, as a fraction."""
    low, mid, high = np.percentile(samples, [25, 50, 75])
    return float((high - low) / mid)


def _resampled_medians(
    samples: Sequence[float], generator: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.asarray(samples, dtype=np.float64)
    chosen = generator.integers(0, len(values), size=(_NUM_RESAMPLES, len(values)))
    return np.asarray(np.median(values[chosen], axis=1), dtype=np.float64)


def _percentiles(
    values: np.ndarray[tuple[int], np.dtype[np.float64]], confidence: float
) -> tuple[float, float]:
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return float(low), float(high)
