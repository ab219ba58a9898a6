"""Data parallel on one number of devices: every sharding level and number of microbatches.

Shapes: num_ways sharding levels × numbers of microbatches, flat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import get_args

import numpy as np
import numpy.typing as npt

from paceline.parallel.cluster import Cluster, check_known
from paceline.parallel.links import LinkTable
from paceline.parallel.replica_work import LoweredStep, ReplicaWork, replicated_step
from paceline.parallel.room import bound_bytes
from paceline.parallel.sharded_memory import PeakMoments, peak_moments, sharded_memory_bytes
from paceline.parallel.strategy import Schedule, Sharding, Strategy
from paceline.predict import Calibration, Points, predict_pass
from paceline.trace.graph import FloatArray

#: Powers of two up to this many microbatches are tried.
_MAX_MICROBATCHES = 4096
#: A simpler strategy wins unless another is faster by more than this.
_SAME_FRAC = 1.01


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AloneStep:
    """A step on one device, (num_points,) each.

    Attributes:
        mid_s: Median time of all its passes.
        backward_s: Of it, the backward part that communication can hide behind.
        update_s: Of it, updates.
        log_sigma: Standard deviation of log time; passes are taken to err together.
        memory_mid_bytes: Peak, median.
        memory_high_bytes: The same, the bound that holds at a chance of 95 %.
    """

    mid_s: FloatArray
    backward_s: FloatArray
    update_s: FloatArray
    log_sigma: FloatArray
    memory_mid_bytes: FloatArray
    memory_high_bytes: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training step on one kind of cluster, ready to be evaluated at any count.

    Attributes:
        step: The training step.
        cluster: On what.
        seq: Sequence length.
        calibration: Of the predictor; the built-in one if None.
    """

    step: LoweredStep
    cluster: Cluster
    seq: float
    calibration: Calibration | None

    def points(self, batches: npt.ArrayLike) -> Points:
        """Batches per device at the job's sequence length."""
        return Points.of(batches, seq=self.seq)

    def alone(self, points: Points) -> AloneStep:
        """One device alone.

        Raises:
            MissingFactError: The catalogue does not know what its times need.
        """
        devices = self.cluster.device_table
        check_known(self.step.largest, devices)
        found = [
            predict_pass(lowered, devices, points, calibration=self.calibration)
            for lowered in self.step.passes
        ]
        repeats = np.array(self.step.repeats)
        pass_s = repeats[:, None] * np.stack([one.mid_s[0] for one in found])
        mid_s = pass_s.sum(axis=0)
        return AloneStep(
            mid_s=mid_s,
            backward_s=repeats @ np.stack([one.backward_s[0] for one in found]),
            update_s=repeats @ np.stack([one.update_s[0] for one in found]),
            log_sigma=(pass_s * np.stack([one.log_sigma[0] for one in found])).sum(axis=0) / mid_s,
            memory_mid_bytes=np.max([one.memory_mid_bytes[0] for one in found], axis=0),
            memory_high_bytes=np.max([one.memory_high_bytes[0] for one in found], axis=0),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicatedSteps:
    """Ways to use one number of devices, (num_ways,) each.

    Attributes:
        sharding: What ranks split, an index into the names of `Sharding`.
        microbatches: Microbatches per step.
        step_s: Step time without its input.
        exposed_s: Of it, communication that nothing hides.
        log_sigma: Standard deviation of log time of what a device computes of it.
        communication_s: Communication, hidden or not.
        memory_mid_bytes: Peak per device, median.
        memory_bytes: The same, the bound that holds at a chance of 95 %.
    """

    sharding: npt.NDArray[np.int64]
    microbatches: npt.NDArray[np.int64]
    step_s: FloatArray
    exposed_s: FloatArray
    log_sigma: FloatArray
    communication_s: FloatArray
    memory_mid_bytes: FloatArray
    memory_bytes: FloatArray

    @property
    def needed_bytes(self) -> FloatArray:
        """Memory that a device must have, at the chance at which a job must fit."""
        return bound_bytes(self.memory_mid_bytes, self.memory_bytes)

    def fastest(self, capacity_bytes: float) -> int | None:
        """The fastest way that fits, or one as good that is simpler; None where none fits."""
        fits = self.needed_bytes <= capacity_bytes
        if not fits.any():
            return None
        step_s = np.where(fits, self.step_s, np.inf)
        return int(np.argmax(step_s <= _SAME_FRAC * step_s.min()))

    def strategy(self, way: int, count: int) -> Strategy:
        """One way on ``count`` devices."""
        return Strategy.from_degrees(
            dp=count,
            sharding=get_args(Sharding)[self.sharding[way]],
            schedule=Schedule(num_microbatches=int(self.microbatches[way])),
        )


def replicated_steps(job: Job, count: int, per_rank: int) -> ReplicatedSteps:
    """Every sharding level with every number of microbatches that divides a rank's items.

    Args:
        job: The training step and its cluster.
        count: Devices.
        per_rank: Items per device and step.
    """
    powers = 2 ** np.arange(_MAX_MICROBATCHES.bit_length())
    microbatches = powers[per_rank % powers == 0]
    points = job.points(per_rank / microbatches)
    asked = _Replicas(
        job=job,
        work=ReplicaWork.of(job.step, seq=job.seq),
        alone=job.alone(points),
        moments=peak_moments(job.step.largest, points),
        microbatches=microbatches,
        count=count,
        shards=count,
    )
    levels = get_args(Sharding) if count > 1 else ("none",)
    parts = [_sharded(asked, level) for level in range(len(levels))]
    names = [field.name for field in fields(ReplicatedSteps)]
    return ReplicatedSteps(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def is_replicated(strategy: Strategy) -> bool:
    """Whether ranks differ in nothing but their items and what they keep of the training state.

    >>> [is_replicated(Strategy.parse(text)) for text in ("dp8/mb4+zero2", "dp2.fsdp8", "dp4.tp2")]
    [True, True, False]
    """
    names = [axis.name for axis in strategy.mesh]
    splits_no_more = names in ([], ["dp"], ["fsdp"], ["dp", "fsdp"])
    is_usual = strategy.gradient_sync == "all_reduce" and not strategy.offloads_optimizer
    return splits_no_more and is_usual and not strategy.placements


def stated_steps(job: Job, strategy: Strategy, microbatches: Sequence[int]) -> ReplicatedSteps:
    """One strategy of replicas with several microbatch sizes, as `replicated_steps` has them.

    Args:
        job: The training step, with what the strategy recomputes, and its cluster.
        strategy: One for which `is_replicated`.
        microbatches: Items per device and microbatch.
    """
    points = job.points(microbatches)
    shards = strategy.size("fsdp")
    asked = _Replicas(
        job=job,
        work=ReplicaWork.of(job.step, seq=job.seq),
        alone=job.alone(points),
        moments=peak_moments(job.step.largest, points),
        microbatches=np.full(len(microbatches), strategy.schedule.num_microbatches),
        count=strategy.num_ranks,
        shards=shards if shards > 1 else strategy.num_ranks,
    )
    sharding = "zero3" if shards > 1 else strategy.sharding
    return _sharded(asked, get_args(Sharding).index(sharding))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Replicas:
    """A job on a number of devices, with one number of microbatches per point.

    Of them, ``shards`` split what is split.
    """

    job: Job
    work: ReplicaWork
    alone: AloneStep
    moments: PeakMoments
    microbatches: npt.NDArray[np.int64]
    count: int
    shards: int


def _sharded(asked: _Replicas, level: int) -> ReplicatedSteps:
    """One sharding level with every number of microbatches."""
    cluster, alone, sharding = asked.job.cluster, asked.alone, get_args(Sharding)[level]
    step = replicated_step(
        asked.work,
        alone_s=alone.mid_s,
        backward_s=alone.backward_s,
        update_s=alone.update_s,
        microbatches=asked.microbatches,
        num_ranks=np.full(len(asked.microbatches), asked.count),
        ranks_per_node=cluster.devices_per_node,
        device_link=LinkTable.from_links([cluster.device_link]),
        node_link=LinkTable.from_links([cluster.node_link]),
        sharding=sharding,
        shards=asked.shards,
    )
    return ReplicatedSteps(
        sharding=np.full_like(asked.microbatches, level),
        microbatches=asked.microbatches,
        step_s=step.step_s,
        exposed_s=step.exposed_s,
        log_sigma=alone.log_sigma,
        communication_s=step.communication_s,
        memory_mid_bytes=_memory_bytes(asked, sharding, is_bound=False),
        memory_bytes=_memory_bytes(asked, sharding, is_bound=True),
    )


def _memory_bytes(asked: _Replicas, sharding: Sharding, *, is_bound: bool) -> FloatArray:
    """Peak per device; from the second microbatch on, gradients are there already."""
    alone = asked.alone
    whole_bytes = alone.memory_high_bytes if is_bound else alone.memory_mid_bytes
    one, many = (
        sharded_memory_bytes(
            asked.moments, whole_bytes, num_ranks=asked.shards, sharding=sharding,
            is_bound=is_bound, accumulates=accumulates,
        )
        for accumulates in (False, True)
    )  # fmt: skip
    return np.where(asked.microbatches > 1, many, one)
