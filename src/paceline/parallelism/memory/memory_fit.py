"""Whether a job fits into memory: one rule, whichever verb asks.

Predicted peaks have a median and a bound that holds at a chance of 95 %, and are log-normal between
them. How far apart these are follows from what is known of the software that runs the step
(``data/peak_spreads.csv``, docs/decisions/0175). A job fits if the bound at the chance that counts
does (docs/decisions/0051): one that is stated, as `plan --memory-confidence` does, or else
`MEMORY_CONFIDENCE`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray
from paceline.prediction.uncertainty.normal import normal_cdf, normal_quantile
from paceline.shipped import shipped_rows

#: Chance at which a job must fit where nobody says another.
MEMORY_CONFIDENCE = 0.9
#: Chance at which the bound of every predicted peak of memory holds, and standard deviations to it.
BOUND_CONFIDENCE = 0.95
Z_95 = 1.6448536269514722
_SPREADS = "peak_spreads.csv"


def peak_log_sigma(peaks: str, lasting_frac: float = 1.0) -> float:
    """Standard deviation that the log of a predicted peak has at least, by what is known of it.

    Segments that nobody needs, which a driver shows, are left by what comes and goes
    (docs/decisions/0313).

    Args:
        peaks: As `Configuration.peaks` has it, or ``driver`` where a driver's figure is meant.
        lasting_frac: Of that figure, parameters and optimizer state, which are there at all times;
            not a number where it is not known, which counts as none.

    >>> sorted(("lengths", "measured", "derived"), key=peak_log_sigma)
    ['measured', 'derived', 'lengths']
    >>> [round(peak_log_sigma("driver", frac), 2) for frac in (1.0, 0.5, 0.0, math.nan)]
    [0.09, 0.15, 0.26, 0.26]
    """
    row = next(one for one in shipped_rows("parallelism", _SPREADS) if one["peaks"] == peaks)
    rest_frac = 1.0 if math.isnan(lasting_frac) else min(max(1.0 - lasting_frac, 0.0), 1.0)
    return math.hypot(float(row["log_sigma"]), float(row["rest_log_sigma"]) * rest_frac)


def bound_bytes(
    mid_bytes: npt.ArrayLike, high_bytes: npt.ArrayLike, log_sigma: npt.ArrayLike
) -> FloatArray:
    """The bound at a chance of 95 %, where peaks spread so much at least.

    Args:
        mid_bytes: Median of the peak.
        high_bytes: The bound from what the allocator and the driver may add, same shape.
        log_sigma: `peak_log_sigma` of each.
    """
    spread = np.exp(Z_95 * np.asarray(log_sigma, dtype=np.float64))
    bound: FloatArray = np.maximum(high_bytes, np.asarray(mid_bytes, dtype=np.float64) * spread)
    return bound


def chance_to_fit(limit_bytes: float, mid_bytes: float, high_bytes: float) -> float:
    """Chance that a peak stays within a limit.

    Args:
        limit_bytes: What is there.
        mid_bytes: Median of the peak.
        high_bytes: Bound that holds at a chance of 95 %.

    >>> [round(chance_to_fit(limit, 8.0, 10.0), 2) for limit in (6.4, 8.0, 10.0)]
    [0.05, 0.5, 0.95]
    """
    spread = math.log(high_bytes / mid_bytes) / Z_95 if mid_bytes > 0.0 else 0.0
    if spread <= 0.0:
        return 1.0 if mid_bytes <= limit_bytes else 0.0
    return normal_cdf(math.log(limit_bytes / mid_bytes) / spread)


def quantile_bytes(
    mid_bytes: npt.ArrayLike, high_bytes: npt.ArrayLike, confidence: float = MEMORY_CONFIDENCE
) -> FloatArray:
    """Memory that suffices with a chance of ``confidence``: the inverse of `chance_to_fit`.

    Args:
        mid_bytes: Median of the peak.
        high_bytes: Bound that holds at a chance of 95 %, same shape.
        confidence: Between 0 and 1.

    >>> [round(float(quantile_bytes(8e9, 10e9, chance)), 3) for chance in (0.95, 0.5)]
    [10000000000.0, 8000000000.0]
    """
    mid = np.asarray(mid_bytes, dtype=np.float64)
    spread = np.asarray(high_bytes, dtype=np.float64) / mid
    return np.asarray(mid * spread ** (normal_quantile(confidence) / Z_95))
