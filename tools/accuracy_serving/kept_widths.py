"""How wide times at a kept rate are told: refitted with each submitter left out, and its coverage.

What a queue's own interval leaves is one standard deviation per quantity and percentile
(``KEPT_LOG_SIGMAS`` of `paceline.scoring.services.kept_rates`). All rows are of one benchmark, so
the organisation that submitted a row is the source that is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accuracy_serving.asked import stated
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.scoring.services.kept_rates import KEPT_LOG_SIGMAS

_COVERED = 0.8
_SUBMITTER = re.compile(r"\borg=([^;]+)")
#: Quantity and percentile with the place of its width.
_PLACES = {
    ("ttft", "p50"): (0, 0),
    ("ttft", "p99"): (0, 1),
    ("tpot", "p50"): (1, 0),
    ("tpot", "p99"): (1, 1),
}


@dataclass(frozen=True, slots=True)
class _Time:
    """A time of a row.

    Attributes:
        submitter: Whose row it is.
        log_error: Measured over predicted, as a logarithm.
        log_queue: Half the interval that the queue gives by itself, on the side of the error.
    """

    submitter: str
    log_error: float
    log_queue: float

    @property
    def needed_sigma(self) -> float:
        """The least width whose interval holds it."""
        return math.sqrt(max(self.log_error**2 - self.log_queue**2, 0.0)) / Z_80

    def is_inside(self, sigma: float) -> bool:
        """Whether the interval of such a width holds it."""
        return abs(self.log_error) <= math.hypot(self.log_queue, Z_80 * sigma)


def page(pairs: Sequence[tuple[Mapping[str, str], Mapping[str, str]]]) -> Iterator[str]:
    """The table."""
    yield (
        "| time | rows | submitters | shipped width | refitted | without one | shipped covers "
        "| left out covers |\n|---|--:|--:|--:|--:|---|--:|--:|"
    )
    for (quantity, percentile), (first, second) in _PLACES.items():
        sigma = KEPT_LOG_SIGMAS[first][second]
        times = [one for pair in pairs if (one := _time(*pair, quantity, percentile, sigma))]
        if not times:
            continue
        without = {
            name: _fitted([one for one in times if one.submitter != name])
            for name in sorted({one.submitter for one in times})
        }
        shipped = np.mean([one.is_inside(sigma) for one in times])
        left_out = np.mean([one.is_inside(without[one.submitter]) for one in times])
        yield (
            f"| {quantity} {percentile} | {len(times)} | {len(without)} | {sigma:.2f} "
            f"| {_fitted(times):.2f} | {min(without.values()):.2f} to {max(without.values()):.2f} "
            f"| {shipped:.0%} | {left_out:.0%} |"
        )


def _fitted(times: Sequence[_Time]) -> float:
    return float(np.quantile([one.needed_sigma for one in times], _COVERED))


def _time(
    row: Mapping[str, str], answer: Mapping[str, str], quantity: str, percentile: str, sigma: float
) -> _Time | None:
    extra = stated(dict(row))
    measured = extra.get(f"{quantity}_ms_{percentile}", "")
    told = [answer[f"{quantity}_{percentile}_{bound}_s"] for bound in ("low", "mid", "high")]
    if "ttft_p99_limit_ms" not in extra or "rate_per_s" not in extra:
        return None
    if not measured or not all(told):
        return None
    low, mid, high = map(float, told)
    log_error = math.log(float(measured) / 1e3 / mid)
    log_told = math.log(high / mid) if log_error > 0.0 else math.log(mid / low)
    log_queue = math.sqrt(max(log_told**2 - (Z_80 * sigma) ** 2, 0.0))
    submitter = _SUBMITTER.search(row["notes"])
    return _Time(submitter[1] if submitter else "", log_error, log_queue)
