"""Whether a job fits into memory: one rule, whichever verb asks.

Predicted peaks have a median and a bound that holds at a chance of 95 %, and are log-normal between
them. A job fits if the bound at the chance that counts does (docs/decisions/0051): one that is
stated, as `plan --memory-confidence` does, or else `MEMORY_CONFIDENCE`.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray

#: Chance at which a job must fit where nobody says another.
MEMORY_CONFIDENCE = 0.9
#: Standard deviations to the bound that holds in 95 of 100 cases: that of every predicted peak of
#: memory.
Z_95 = NormalDist().inv_cdf(0.95)


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
