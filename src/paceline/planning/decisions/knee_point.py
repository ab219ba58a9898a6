"""Where a scaling curve stops paying."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.values import dataclass

#: A further device pays while it adds at least this share of what the first one gave.
KNEE_MARGINAL_FRAC = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The last count worth going to.

    Attributes:
        count: Devices at the knee.
        efficiency_frac: Throughput per device there, against the pace of a single one.
        next_marginal_frac: What each device of the next larger count adds, as a share of that
            pace; None where the curve ends at the knee.
    """

    count: int
    efficiency_frac: float
    next_marginal_frac: float | None


def knee(
    counts: npt.ArrayLike,
    throughput: npt.ArrayLike,
    *,
    marginal_frac: float = KNEE_MARGINAL_FRAC,
    single: float | None = None,
) -> Knee:
    """The largest count up to which every further device adds enough throughput.

    Walking up the counts, the knee is the last one before the added throughput per added device
    falls below ``marginal_frac`` of the pace of a single one. Small counts that are slower than
    that themselves, since the job hardly fits them, are passed over.

    Args:
        counts: Devices, strictly rising.
        throughput: Samples per second of all of them; 0 where a count does not work.
        marginal_frac: What a further device must add.
        single: Pace of a single device; by default the throughput per device at the smallest count.

    Raises:
        InvalidInputError: Counts do not rise, or the first count gives nothing.

    >>> knee([1, 2, 4, 8], [100, 195, 370, 500]).count
    4
    >>> knee([2, 4, 8, 16], [20, 50, 800, 1000], single=100.0).count
    8
    """
    n, rate = (np.asarray(x, dtype=np.float64) for x in (counts, throughput))
    if n.ndim != 1 or n.shape != rate.shape or not np.all(np.diff(n) > 0) or n[0] < 1:
        raise InvalidInputError("device counts must rise", hint="write them like 1,2,4,8")
    if not rate[0] > 0:
        raise InvalidInputError(
            f"{n[0]:.0f} devices give no throughput", hint="start at a count that fits the job"
        )
    single = rate[0] / n[0] if single is None else single
    marginal = np.diff(rate) / np.diff(n) / single
    settled = rate[:-1] / n[:-1] >= marginal_frac * single
    below = np.flatnonzero(~(marginal >= marginal_frac) & np.maximum.accumulate(settled))
    at = int(below[0]) if below.size else len(n) - 1
    return Knee(
        count=int(n[at]),
        efficiency_frac=float(rate[at] / n[at] / single),
        next_marginal_frac=float(marginal[at]) if at < len(marginal) else None,
    )
