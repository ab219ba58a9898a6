"""Where a cheaper, slower place is enough: a CPU, the machine one owns, a smaller card.

Two questions. A service: below which request rate does the cheap place cost less than the fast
one? A job: below which amount of work is the near place done sooner, counting set-up?
"""

from __future__ import annotations

import math

import numpy as np

from paceline.values import dataclass

_MAX_MACHINES = 10_000
#: A rate just above what some machines sustain needs one more; rounding of floats does not.
_JUST_ABOVE, _ROUNDING = 1e-6, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPlace:
    """A machine that answers requests.

    Attributes:
        name: As printed.
        requests_per_s: What one machine sustains within the latency limit.
        usd_per_hour: Of one machine, always on; for an owned one what it costs per hour.
    """

    name: str
    requests_per_s: float
    usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlace:
    """A machine that does a job.

    Attributes:
        name: As printed.
        s_per_sample: Time of one sample.
        setup_s: Before the first sample: renting, booting, copying the data.
    """

    name: str
    s_per_sample: float
    setup_s: float


def serving_usd_per_month(place: ServingPlace, requests_per_s: float) -> float:
    """Monthly cost of the machines needed for a rate; at least one is always on."""
    num_machines = max(1, math.ceil(requests_per_s / place.requests_per_s - _ROUNDING))
    return num_machines * place.usd_per_hour * 365.25 * 24 / 12


def serving_crossover_requests_per_s(first: ServingPlace, second: ServingPlace) -> float | None:
    """Largest rate up to which ``first`` costs no more than ``second``, machines being whole.

    Below it the first place is enough. The cost of either is a staircase, so the answer is a step
    of one of them: the last rate before ``first`` becomes dearer for the first time.

    Returns:
        Requests per second; None if ``first`` is dearer from the start, infinity if it is not
        dearer for any number of machines up to ten thousand.
    """
    if first.usd_per_hour > second.usd_per_hour:
        return None
    steps = np.arange(1, _MAX_MACHINES)
    rates = steps * first.requests_per_s * (1 + _JUST_ABOVE)
    first_usd = (steps + 1) * first.usd_per_hour
    second_usd = np.ceil(rates / second.requests_per_s - _ROUNDING) * second.usd_per_hour
    dearer = np.flatnonzero(first_usd > second_usd)
    return float(steps[dearer[0]] * first.requests_per_s) if dearer.size else math.inf


def job_crossover_samples(near: JobPlace, far: JobPlace) -> float | None:
    """Amount of work up to which the near place is done at least as soon.

    Returns:
        Samples; zero if the far place is sooner from the start, None if it never is.
    """
    start = far.setup_s - near.setup_s
    slope = near.s_per_sample - far.s_per_sample
    if slope <= 0:
        return None if start >= 0 else 0.0
    return max(0.0, start / slope)
