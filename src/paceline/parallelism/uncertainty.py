"""How sure the step of many devices is: one rule for a plan, a grid and a scaling curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.collectives.links import LinkTable
from paceline.planfile import Interval
from paceline.prediction.uncertainty.intervals import Z_80

if TYPE_CHECKING:
    from paceline.parallelism.replicas.shares import Share

#: An 80 % interval wider than half to double is rough: a figure, but no ground for a choice.
ROUGH_LOG_SIGMA = math.log(2.0) / Z_80
#: One wider than a fifth to five times is no answer.
WIDEST_LOG_SIGMA = math.log(5.0) / Z_80

#: Of exposed communication: 22 % mean error between nodes (benchmarks/accuracy_parallel.md).
_COMMUNICATION_LOG_SIGMA = 0.25
#: Of each way to share a model, beside what its device adds: the errors of 13 and 14 ways to train
#: two models on eight H100 spread by 6 and 10 % about their mean (benchmarks/accuracy_parallel.md).
STRATEGY_LOG_SIGMA = 0.1
#: Of what a host delivers: a core was 21 % slower than assumed, and calibrated on one row the
#: others were 7 % off at the median (benchmarks/input_pipeline.md).
INPUT_LOG_SIGMA = 0.2
#: Of a pipeline whose host was calibrated on a measured one, from the same 7 %.
CALIBRATED_INPUT_LOG_SIGMA = 0.1
#: Of the mean power of a device: a median error of 15 % on devices held out, of which half are
#: within 0.67 standard deviations (benchmarks/accuracy_power.md).
_POWER_LOG_SIGMA = 0.21


def step_log_sigma(
    device_log_sigma: npt.ArrayLike,
    *,
    alone_s: npt.ArrayLike,
    exposed_s: npt.ArrayLike,
    starved_s: npt.ArrayLike = 0.0,
    sharing_log_sigma: npt.ArrayLike = 0.0,
) -> FloatArray:
    """Standard deviation of log step time, of the shape of the arguments.

    The parts of a step are taken to err together, and waiting is as sure as the input.
    Communication and input have spreads of their own where theirs is the larger.

    Args:
        device_log_sigma: Of what a device computes.
        alone_s: Of the step, what devices compute.
        exposed_s: What communication and waiting for each other add to it; of a step that a missing
            link makes infinite, the spread is that of its devices.
        starved_s: What waiting for input adds to both.
        sharing_log_sigma: Of ranks of one machine, as `sharing_log_sigma` has it.

    >>> float(step_log_sigma(0.1, alone_s=1.0, exposed_s=0.0))
    0.1
    >>> float(step_log_sigma(0.1, alone_s=1.0, exposed_s=1.0))
    0.175
    """
    device, alone, exposed = (np.asarray(x) for x in (device_log_sigma, alone_s, exposed_s))
    together = np.maximum(device, _COMMUNICATION_LOG_SIGMA)
    exposed = np.where(np.isinf(exposed), 0.0, exposed)
    step = (alone * device + exposed * together) / (alone + exposed)
    step = np.hypot(step, sharing_log_sigma)
    return np.asarray(np.where(np.asarray(starved_s) > 0, np.maximum(INPUT_LOG_SIGMA, step), step))


def sharing_log_sigma(
    link: LinkTable, num_ranks: npt.ArrayLike, *, sent_s: npt.ArrayLike, step_s: npt.ArrayLike
) -> FloatArray:
    """What is not known of ranks that share a machine: its lanes, its host, who reaches whom.

    Over PCIe it is how fast they send, so that it counts as far as they do.

    Args:
        link: Between them, one row per candidate.
        num_ranks: As many of them as one machine has.
        sent_s: Of the step, how long they send, hidden or not, as `lanes_s` has it; all of it where
            that is not known.
        step_s: The step.
    """
    with np.errstate(invalid="ignore"):  # What has no link takes for ever.
        sent_frac = np.fmin(np.divide(sent_s, step_s), 1.0) * (np.asarray(num_ranks) > 1)
    doublings = np.log2(np.maximum(num_ranks, 1))
    return np.asarray(np.hypot(link.log_sigma * doublings, link.sent_log_sigma * sent_frac))


def lanes_s(
    sent_s: npt.ArrayLike, device_link: LinkTable, node_link: LinkTable, is_spread: npt.ArrayLike
) -> FloatArray:
    """How long the lanes of a machine are busy with what its ranks send.

    In one machine that is all of it. Between machines the same bytes pass lanes that are faster.

    Args:
        sent_s: How long they send.
        device_link: Lanes, one row per candidate.
        node_link: Network, likewise.
        is_spread: Whether ranks stand in several machines.
    """
    with np.errstate(invalid="ignore", divide="ignore"):  # What has no link takes for ever.
        frac = np.fmin(node_link.bytes_per_s / device_link.bytes_per_s, 1.0)
        return np.asarray(sent_s * np.where(is_spread, frac, 1.0))


def sharing_in(cluster: Cluster, count: int, *, sent_s: float, step_s: float) -> float:
    """`sharing_log_sigma` of ``count`` devices of a cluster."""
    link, shared = (
        LinkTable.from_links([cluster.device_link]),
        min(count, cluster.devices_per_domain),
    )
    return float(sharing_log_sigma(link, shared, sent_s=sent_s, step_s=step_s)[0])


def interval_of(median: float, log_sigma: float) -> Interval:
    """The 80 % interval of a log-normal quantity.

    >>> interval_of(2.0, 0.0)
    Interval(low=2.0, mid=2.0, high=2.0)
    """
    factor = math.exp(Z_80 * log_sigma)
    return Interval(low=median / factor, mid=median, high=median * factor)


def energy_interval_of(joules: float | None, log_sigma: float) -> Interval | None:
    """The 80 % interval of an energy, the power of a step over its time; None of an unknown one.

    Args:
        joules: Median.
        log_sigma: Of the step's time; power errs apart from it.
    """
    return None if joules is None else interval_of(joules, math.hypot(log_sigma, _POWER_LOG_SIGMA))


def is_rough(log_sigma: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether an interval is wider than half to double: shown, but no ground for a choice."""
    return np.asarray(log_sigma) > ROUGH_LOG_SIGMA


def is_too_wide(log_sigma: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether a quantity has no figure: its interval is wider than a fifth to five times."""
    return np.asarray(log_sigma) > WIDEST_LOG_SIGMA


def width_words(log_sigma: float, num_devices: int) -> str:
    """How wide an interval is, and why, where it `is_rough` or `is_too_wide`."""
    factor = math.exp(Z_80 * log_sigma)
    return f"known only within ×/÷ {factor:.1f}: {width_cause(num_devices)}"


def width_cause(num_devices: int) -> str:
    """Why figures of so many devices are known no better, as the end of a sentence."""
    if num_devices == 1:
        return "no measured device is like it"
    return "such devices, or the links between them, were not measured or differ"


def shared_log_sigmas(shares: Sequence[Share]) -> tuple[float, float]:
    """Spread of a step's devices, and of sharing machines: all wait for the one known least."""
    return max(s.log_sigma for s in shares), max(s.sharing_log_sigma for s in shares)
