"""Which runs to measure first, so that the choice between strategies is sure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.errors import DoesNotFitError
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.fixed_strategy import stated_traits
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planning.decisions.replica_ways import replica_ways
from paceline.planning.decisions.trial_worth import (
    better_chances,
    doubts,
    once_measured,
    saved_frac,
    worth_of_trials,
)
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.calibration.gaussian_process import Spreads
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.simulation.blocks import traced
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.replicas import is_replicated
from paceline.simulation.search import StrategySearch
from paceline.simulation.simulator import simulate
from paceline.values import dataclass

#: A run that is worth less of the step, over all its rivals, is not asked for.
_LEAST_WORTH = 0.002
#: So many of the fastest strategies compete.
_NUM_RIVALS = 64
#: Microbatch sizes that are tried, as far as a device has so many items.
_MICROBATCHES = tuple(2**n for n in range(11))
#: Ranks that share a model take more items each: sizes up to this are always tried.
_LEAST_LARGEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run that is worth measuring.

    Attributes:
        strategy: How ranks share the job.
        microbatch: Items of each, on a rank with items of its own.
        step_s: Predicted time of a step.
        memory_bytes: Predicted peak of the fullest rank, the bound at a chance of 95 %.
        step: What measurements know it by.
        log_shift: What measurements have moved its predicted time by already, as a logarithm.
        better_chance: That it is faster than the strategy predicted best; of that one itself, that
            the strongest rival is not.
    """

    strategy: Strategy
    microbatch: int
    step_s: float
    memory_bytes: float
    step: StepFeatures
    log_shift: float
    better_chance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSet:
    """Runs that are worth measuring together.

    Attributes:
        trials: Most worth first; none where the choice is sure.
        saved_frac: Share of the step's time that is lost less on average once all are measured.
    """

    trials: tuple[Trial, ...]
    saved_frac: float


def worthwhile_trials(
    job: Job,
    cluster: Cluster,
    *,
    num_devices: int,
    global_batch: int,
    num_trials: int,
    calibration: Calibration,
) -> TrialSet:
    """The runs to measure, the most worth first; each knows that those before it are measured.

    Fewer where none is left that is worth it.

    Args:
        job: What is trained, in one pass; its strategy and batch are what is tried.
        cluster: On what.
        num_devices: World size.
        global_batch: Items per optimizer step.
        num_trials: How many at most.
        calibration: Of the predictor.

    Raises:
        InvalidInputError: No combination of degrees uses exactly so many devices and items.
        DoesNotFitError: None fits into memory.
    """
    jobs, found, steps = rivals(
        job, cluster, num_devices=num_devices, global_batch=global_batch, calibration=calibration
    )
    lessons = calibration.lessons.get(cluster.device.name)
    covariance = doubts(steps, Spreads.of(calibration.constants["calibrate"]), lessons)
    shifts = np.zeros(len(steps)) if lessons is None else lessons.log_shift(steps)
    log_s = np.log(found.step_s)
    chances = better_chances(log_s, covariance)
    places = _chosen(log_s, covariance, num_trials)
    return TrialSet(
        trials=tuple(
            Trial(
                strategy=jobs[place].strategy, microbatch=int(jobs[place].batch),
                step_s=float(found.step_s[place]),
                memory_bytes=float(found.memory_high_bytes[place]),
                step=steps[place], log_shift=float(shifts[place]),
                better_chance=float(chances[place]),
            )
            for place in places
        ),
        saved_frac=saved_frac(log_s, covariance, places),
    )  # fmt: skip


def _chosen(log_s: FloatArray, covariance: FloatArray, num_trials: int) -> list[int]:
    """Places of runs to measure, one after the other."""
    contest, places = np.zeros(len(log_s), dtype=np.int64), list[int]()
    for _ in range(min(num_trials, len(log_s))):
        worth = worth_of_trials(log_s, contest, covariance)
        place = int(np.argmax(worth))
        if worth[place] < _LEAST_WORTH:
            break
        places.append(place)
        covariance = once_measured(covariance, place)
    return places


def rivals(
    job: Job, cluster: Cluster, *, num_devices: int, global_batch: int, calibration: Calibration
) -> tuple[list[Job], Steps, list[StepFeatures]]:
    """The fastest strategies that fit, their steps, and what measurements know their ranks by.

    Raises:
        InvalidInputError: No combination of degrees uses exactly so many devices and items.
        DoesNotFitError: None fits into memory.
    """
    replicas, plain = _replicas(job, cluster, num_devices, global_batch, calibration)
    search = StrategySearch.of(
        job, Machine.of_cluster(cluster, 1), capacity_bytes=cluster.capacity_bytes,
        microbatches=_microbatches(global_batch // num_devices), calibration=calibration,
    )  # fmt: skip
    try:
        searched, found = search.found(
            num_devices=num_devices, global_batch=global_batch, num_best=_NUM_RIVALS
        )
    except DoesNotFitError:
        if not replicas:
            raise
        searched, found = (), Steps.of(0, {})
    rows = [row for row, one in enumerate(searched) if not is_replicated(one.strategy)]
    split = [searched[row] for row in rows]
    count = len(replicas)
    parts = [(np.arange(count), plain), (np.arange(len(rows)) + count, found.take(rows))]
    traits = _traits(job, cluster, replicas, calibration)
    traits += [search.space.traits(one.strategy, int(one.batch)) for one in split]
    return [*replicas, *split], Steps.joined(parts, count + len(rows)), traits


def _microbatches(per_device: int) -> list[int]:
    return [size for size in _MICROBATCHES if size <= max(per_device, _LEAST_LARGEST)]


def _replicas(
    job: Job, cluster: Cluster, num_devices: int, global_batch: int, calibration: Calibration
) -> tuple[list[Job], Steps]:
    """All ways to use replicas that fit and have links."""
    per_rank, left = divmod(global_batch, num_devices)
    if left:
        return [], Steps.of(0, {})
    ways = replica_ways(job, Machine.of_cluster(cluster, num_devices), {num_devices: per_rank})
    steps = simulate(ways, calibration=calibration)
    steps.check_known()
    fits = (steps.needed_bytes() <= cluster.capacity_bytes) & np.isfinite(steps.step_s)
    rows = np.flatnonzero(fits)
    return [ways.job_at(row) for row in rows.tolist()], steps.take(rows)


def _traits(
    job: Job, cluster: Cluster, replicas: Sequence[Job], calibration: Calibration
) -> list[StepFeatures]:
    if not replicas:
        return []
    sizes = sorted({int(one.batch) for one in replicas})
    whole = traced(job, Machine.of_cluster(cluster, 1), calibration)
    known = dict(zip(sizes, stated_traits(whole, Strategy(), sizes), strict=True))
    return [known[int(one.batch)] for one in replicas]
