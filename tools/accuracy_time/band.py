"""How many sources lie in a band of coverage, and how many would if widths were right.

The share of a few rows that an 80 % interval holds is rarely near 80 %, however right its width is.
So what is found stands beside what is to be expected: where every row errs by itself, and where all
rows of one model err alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb

import numpy as np
import pandas as pd

from accuracy_time.widths import LEVEL

#: Coverage that is asked for.
BAND = (0.75, 0.85)


def chance_in_band(count: int) -> float:
    """Chance that so many independent errors, each inside at `LEVEL`, are inside in the band.

    >>> round(chance_in_band(10), 2), round(chance_in_band(100), 2), chance_in_band(3)
    (0.3, 0.83, 0.0)
    """
    low, high = BAND
    shares = [number for number in range(count + 1) if low <= number / count <= high]
    return float(sum(comb(count, n) * LEVEL**n * (1.0 - LEVEL) ** (count - n) for n in shares))


def band_lines(sources: Sequence[pd.DataFrame]) -> Iterator[str]:
    """What is found of sources, and what right widths would show.

    Args:
        sources: Rows of each, with ``model`` and whether they are ``covered``.
    """
    inside = np.array([part.covered.mean() for part in sources])
    counts = [len(part) for part in sources]
    models = [part.model.nunique() for part in sources]
    low, high = BAND
    in_band = int(((inside >= low) & (inside <= high)).sum())
    yield f"Of {len(sources)} sources {in_band} are covered at {low:.0%} to {high:.0%},"
    yield f"{int((inside > high).sum())} more often and {int((inside < low).sum())} less often."
    yield f"With widths that are right {_expected(counts):.1f} would be, if every row erred by"
    yield f"itself, and {_expected(models):.1f} if all rows of a model erred alike. All rows"
    pooled = np.average(inside, weights=counts)
    yield f"together are covered at {pooled:.0%}, the middle source at {np.median(inside):.0%}."


def _expected(counts: Sequence[int]) -> float:
    return sum(map(chance_in_band, counts))
