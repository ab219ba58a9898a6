"""Whether a job fits into memory: one rule, whichever verb asks.

Predicted peaks have a median and a bound that holds at a chance of 95 %, and are log-normal between
them; those of trainers that nobody measured are skewed (`STRANGERS`). A job
fits if the bound at the chance that counts does (docs/decisions/0051): one that is stated, as `plan
--memory-confidence` does, or else `MEMORY_CONFIDENCE`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray

#: Chance at which a job must fit where nobody says another.
MEMORY_CONFIDENCE = 0.9
#: Standard deviations to the bound that holds in 95 of 100 cases: that of every predicted peak of
#: memory.
Z_95 = NormalDist().inv_cdf(0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """How peaks spread about their told median, in units of the log-normal's own spread.

    Attributes:
        shift: By how much their most likely value is below it.
        lower: How wide they spread below that value.
        upper: The same above it.
    """

    shift: float
    lower: float
    upper: float


SYMMETRIC = Skew(shift=0.0, lower=1.0, upper=1.0)
#: Of trainers that nobody measured; the bound at 95 % is that of the log-normal. Jobs that are told
#: too large run more often than a symmetric law has it: a length that is a maximum is seldom
#: reached, and an allocator that runs short gives back what it keeps. Of 1,981 published trainings,
#: those with a told chance of 2, 22, 41, 60, 78, 91 and 97 % in the mean ran in 26, 53, 46, 87, 85,
#: 93 and 96 % (benchmarks/strangers.md, 2026-11-24); this has them at 25, 46, 58, 72, 84, 92, 97 %.
STRANGERS = Skew(shift=0.5, lower=2.4, upper=1.3)


def chance_to_fit(
    limit_bytes: float, mid_bytes: float, high_bytes: float, *, skew: Skew = SYMMETRIC
) -> float:
    """Chance that a peak stays within a limit.

    Args:
        limit_bytes: What is there.
        mid_bytes: Median of the peak, as told.
        high_bytes: Bound that holds at a chance of 95 %.
        skew: How peaks spread about that median.

    >>> [round(chance_to_fit(limit, 8.0, 10.0), 2) for limit in (6.4, 8.0, 10.0)]
    [0.05, 0.5, 0.95]
    >>> [round(chance_to_fit(limit, 8.0, 10.0, skew=STRANGERS), 2) for limit in (6.4, 8.0, 10.0)]
    [0.32, 0.65, 0.95]
    """
    spread = math.log(high_bytes / mid_bytes) / Z_95 if mid_bytes > 0.0 else 0.0
    if spread <= 0.0:
        return 1.0 if mid_bytes <= limit_bytes else 0.0
    margin = math.log(limit_bytes / mid_bytes) / spread + skew.shift
    return NormalDist().cdf(margin / (skew.upper if margin > 0.0 else skew.lower))


def quantile_bytes(
    mid_bytes: npt.ArrayLike, high_bytes: npt.ArrayLike, confidence: float = MEMORY_CONFIDENCE
) -> FloatArray:
    """Memory that suffices with a chance of ``confidence``.

    Args:
        mid_bytes: Median of the peak.
        high_bytes: Bound that holds at a chance of 95 %, same shape.
        confidence: Between 0 and 1.

    >>> float(quantile_bytes(8e9, 10e9, 0.95)), float(quantile_bytes(8e9, 10e9, 0.5))
    (10000000000.0, 8000000000.0)
    """
    mid = np.asarray(mid_bytes, dtype=np.float64)
    spread = np.asarray(high_bytes, dtype=np.float64) / mid
    return np.asarray(mid * spread ** (NormalDist().inv_cdf(confidence) / Z_95))
