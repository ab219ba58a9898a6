"""What failures and stragglers cost at scale: time between failures, checkpoints, goodput.

Sources:
    Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974;
    Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS
    22(3), 2006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.shipped import shipped_rows
from paceline.trace.graph import FloatArray
from paceline.units import DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Resilience:
    """A long job among failures.

    Attributes:
        mtbf_s: Mean time between failures of the whole job.
        checkpoint_interval_s: Time between checkpoints that loses least.
        goodput_frac: Share of the wall time that moves the job forward.
    """

    mtbf_s: float
    checkpoint_interval_s: float
    goodput_frac: float


def resilience(
    num_devices: int,
    *,
    checkpoint_s: float,
    restart_s: float,
    device_mtbf_s: float | None = None,
) -> Resilience:
    """Best checkpoint interval and the goodput it gives.

    With failures as a Poisson process of mean time ``M``, each interval of work ``T`` and
    checkpoint ``d`` is repeated until it gets through, so its expected wall time is
    ``M exp(R / M) (exp((T + d) / M) - 1)`` with restart time ``R`` (Daly 2006, equation 13).

    Args:
        num_devices: Devices of which any failure stops the job.
        checkpoint_s: Time that training stands still for one checkpoint; above 0.
        restart_s: Time from a failure until training goes on from the last checkpoint.
        device_mtbf_s: Mean time between failures that one device causes; as published by default.

    Raises:
        InvalidInputError: A time or count is not above zero (a restart may be free).

    >>> found = resilience(16384, checkpoint_s=60.0, restart_s=600.0)
    >>> round(found.mtbf_s / 3600, 1), 0.8 < found.goodput_frac < 0.95
    (3.1, True)
    """
    lone_s = usual_mtbf_s() if device_mtbf_s is None else device_mtbf_s
    if num_devices < 1 or checkpoint_s <= 0 or restart_s < 0 or lone_s <= 0:
        raise InvalidInputError(
            "devices, checkpoint time and time between failures must be above zero",
            hint="give times in seconds, such as 60 for a checkpoint",
        )
    mtbf_s = lone_s / num_devices
    interval_s = _best_interval_s(checkpoint_s, mtbf_s)
    return Resilience(
        mtbf_s=mtbf_s,
        checkpoint_interval_s=interval_s,
        goodput_frac=_goodput_frac(interval_s, checkpoint_s, restart_s, mtbf_s),
    )


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
    runs = shipped_rows("parallel", "interruptions.csv")
    days = sum(int(run["num_days"]) * int(run["num_devices"]) for run in runs)
    return days * DAY_S / sum(int(run["num_interruptions"]) for run in runs)


@cache
def step_variation_frac() -> float:
    """Standard deviation of one rank's step over its mean, from ``data/synchronisation.csv``."""
    rows = shipped_rows("parallel", "synchronisation.csv")
    return float({row["name"]: row["value"] for row in rows}["step_variation_frac"])


def _best_interval_s(checkpoint_s: float, mtbf_s: float) -> float:
    """Daly's optimum; where a checkpoint takes as long as two failures, one per failure."""
    if checkpoint_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = math.sqrt(checkpoint_s / (2 * mtbf_s))
    return math.sqrt(2 * checkpoint_s * mtbf_s) * (1 + ratio / 3 + ratio**2 / 9) - checkpoint_s


def _goodput_frac(interval_s: float, checkpoint_s: float, restart_s: float, mtbf_s: float) -> float:
    wall = math.exp(restart_s / mtbf_s) * math.expm1((interval_s + checkpoint_s) / mtbf_s)
    return interval_s / mtbf_s / wall


def _normal_quantile(probability: FloatArray) -> FloatArray:
    """Upper quantile of the standard normal (Abramowitz and Stegun 26.2.23, error below 4.5e-4)."""
    tail = np.sqrt(-2.0 * np.log(np.maximum(1.0 - probability, 1e-300)))
    upper = 2.515517 + 0.802853 * tail + 0.010328 * tail**2
    lower = 1.0 + 1.432788 * tail + 0.189269 * tail**2 + 0.001308 * tail**3
    return np.asarray(tail - upper / lower)
