"""The standard normal distribution, without the module of statistics and what that imports."""

from __future__ import annotations

import math
from functools import lru_cache


def normal_cdf(z: float) -> float:
    """Chance that a standard normal variable stays below ``z``.

    >>> round(normal_cdf(1.2815515655446004), 6)
    0.9
    """
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@lru_cache(maxsize=64)
def normal_quantile(chance: float) -> float:
    """The ``z`` below which a standard normal variable stays with ``chance``; by bisection.

    >>> round(normal_quantile(0.95), 6)
    1.644854
    """
    low, high = -40.0, 40.0
    while high - low > 1e-13:
        middle = 0.5 * (low + high)
        if normal_cdf(middle) < chance:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
