"""How wide intervals must be for a source to come, from the errors of those that are known.

Each source counts as one, however many rows it has. Widths are found by the share of rows that they
cover and not by squares of errors, so that a few broken rows do not set them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from paceline.prediction.uncertainty.intervals import Z_80

LEVEL = 0.8
#: Sources of fewer rows say little of a width.
MIN_ROWS = 10


def coverage(rows: pd.DataFrame, sigma: npt.ArrayLike) -> float:
    """Share of rows inside the 80 % interval of such a log sigma.

    Args:
        rows: With ``log_error``.
        sigma: Of each row, or one for all.
    """
    return float((rows.log_error.abs() <= Z_80 * np.asarray(sigma)).mean())


def between(rows: pd.DataFrame, sigma: pd.Series) -> float:
    """Log sigma that a source to come adds to that of its rows: what the median source asks for.

    A source asks for none where 80 % of its rows are inside already.

    Args:
        rows: With ``log_error`` and ``source_name``; sources of few rows do not count.
        sigma: Of each row.
    """
    asked = rows.log_error.abs() / Z_80
    excess = np.sign(asked - sigma) * np.sqrt(np.abs(asked**2 - sigma**2))
    by_source = excess.groupby(rows.source_name)
    counted = by_source.quantile(LEVEL)[by_source.size() >= MIN_ROWS]
    return max(float(counted.median()), 0.0) if len(counted) else 0.0
