"""What interruptions cost: restarts, lost work and checkpoints of a job on spot machines.

Interruptions are a Poisson process. A job saves its state after every ``interval_s`` of work; when
a machine is taken back, the work since the last save is lost, and a restart (booting, fetching
data, loading the state) is paid before work goes on. The model is exact for that process.

Source:
    J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
    Future Generation Computer Systems 22(3), 2006: equation 13 for the expected time, equation 37
    for the interval.
"""

from __future__ import annotations

import math

from paceline.units import DAY_S
from paceline.values import dataclass

MONTH_S = 365.25 / 12 * DAY_S
#: Chance that a machine is taken back within a month, low, middle and high, where its cloud
#: publishes none; assumed.
UNPUBLISHED_FRAC_PER_MONTH = (0.0, 0.2, 0.4)
#: Less than once in the age of the universe; the formulas divide by the rate.
_NEVER_PER_S = 1e-18


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """How a job saves its state.

    Attributes:
        save_s: Work stops for so long at each save.
        restart_s: Paid time from a new machine to work going on.
        interval_s: Work between two saves; None takes the best for the interruption rate.
    """

    save_s: float
    restart_s: float
    interval_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedRun:
    """Expected course of a job that may be interrupted; times in expectation.

    Attributes:
        paid_s: Time for which machines are paid.
        useful_s: Of that, work that counts.
        save_s: Of that, saving the state.
        restart_s: Of that, restarts, failed ones included.
        lost_s: Of that, work done twice.
        num_interruptions: How often machines are taken back.
        interval_s: Work between two saves.
    """

    paid_s: float
    useful_s: float
    save_s: float
    restart_s: float
    lost_s: float
    num_interruptions: float
    interval_s: float


def interruptions_per_s(frac_per_month: float, num_nodes: int = 1) -> float:
    """Rate of interruptions of a job whose machines are each taken back with a monthly chance.

    Args:
        frac_per_month: Chance that one machine is taken back within a month.
        num_nodes: Machines of the job; losing one interrupts all.

    >>> round(interruptions_per_s(0.2, 8) * MONTH_S, 3)
    1.785
    """
    return num_nodes * -math.log1p(-frac_per_month) / MONTH_S


def best_interval_s(save_s: float, rate_per_s: float) -> float:
    """Work between two saves that keeps the expected time least (Daly 2006, equation 37).

    Args:
        save_s: Cost of one save; must be above zero where interruptions happen.
        rate_per_s: Interruptions per second; zero means that no save is worth it.
    """
    if rate_per_s < _NEVER_PER_S:
        return math.inf
    mean_s = 1 / rate_per_s
    if save_s >= 2 * mean_s:
        return mean_s
    share = save_s / (2 * mean_s)
    series = 1 + math.sqrt(share) / 3 + share / 9
    return max(math.sqrt(2 * save_s * mean_s) * series - save_s, save_s, 1.0)


def interrupted_run(
    work_s: float, checkpointing: Checkpointing, rate_per_s: float
) -> InterruptedRun:
    """Expected course of ``work_s`` seconds of work under interruptions.

    A segment of work and save of length ``s`` takes ``M exp(R/M) (exp(s/M) - 1)`` in expectation,
    with ``M`` the mean time between interruptions and ``R`` the restart. The first start is the
    caller's business; the last segment ends with a save, as the others do.

    Args:
        work_s: Work without any interruption.
        checkpointing: Cost and frequency of saves.
        rate_per_s: Interruptions per second of paid time.
    """
    interval_s = checkpointing.interval_s or best_interval_s(checkpointing.save_s, rate_per_s)
    num_segments = max(1, math.ceil(work_s / interval_s))
    saving_s = num_segments * checkpointing.save_s
    if rate_per_s < _NEVER_PER_S:
        paid_s, attempts_lost, restarting_s = work_s + saving_s, 0.0, 0.0
    else:
        segment = rate_per_s * (work_s / num_segments + checkpointing.save_s)
        restart = rate_per_s * checkpointing.restart_s
        running_s = num_segments * math.expm1(segment) / rate_per_s
        attempts_lost = running_s - work_s - saving_s
        restarting_s = num_segments * math.expm1(segment) * math.expm1(restart) / rate_per_s
        paid_s = running_s + restarting_s
    return InterruptedRun(
        paid_s=paid_s,
        useful_s=work_s,
        save_s=saving_s,
        restart_s=restarting_s,
        lost_s=attempts_lost,
        num_interruptions=paid_s * rate_per_s,
        interval_s=min(interval_s, work_s) if work_s else interval_s,
    )
