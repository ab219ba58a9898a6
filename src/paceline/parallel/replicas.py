"""Data parallel on one number of devices: every sharding level and number of microbatches.

Shapes: num_ways sharding levels × numbers of microbatches, flat.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import get_args

import numpy as np
import numpy.typing as npt

from paceline.parallel.cluster import Cluster
from paceline.parallel.data_parallel import data_parallel_step
from paceline.parallel.links import LinkTable
from paceline.parallel.profile import gradient_profile, update_bytes
from paceline.parallel.sharded_memory import PeakMoments, peak_moments, sharded_memory_bytes
from paceline.parallel.strategy import Schedule, Sharding, Strategy
from paceline.predict import Calibration, DeviceTable, Points, StepPrediction, predict_pass
from paceline.trace.costs import LoweredPass
from paceline.trace.graph import FloatArray

#: Powers of two up to this many microbatches are tried.
_MAX_MICROBATCHES = 4096
#: A simpler strategy wins unless another is faster by more than this.
_SAME_FRAC = 1.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training step on one kind of cluster, ready to be evaluated at any count.

    Attributes:
        lowered: The training step.
        cluster: On what.
        seq: Sequence length.
        calibration: Of the predictor; the built-in one if None.
    """

    lowered: LoweredPass
    cluster: Cluster
    seq: float
    calibration: Calibration | None

    def points(self, batches: FloatArray) -> Points:
        """Batches per device at the job's sequence length."""
        return Points(batch=batches, seq=np.full(len(batches), float(self.seq)))

    def predicted(self, points: Points) -> StepPrediction:
        """One device alone, (1, num_points)."""
        devices = DeviceTable.from_devices([self.cluster.device])
        return predict_pass(self.lowered, devices, points, calibration=self.calibration)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicatedSteps:
    """Ways to use one number of devices, (num_ways,) each.

    Attributes:
        sharding: What ranks split, an index into the names of `Sharding`.
        microbatches: Microbatches per step.
        step_s: Step time without its input.
        exposed_s: Of it, communication that nothing hides.
        communication_s: Communication, hidden or not.
        memory_bytes: Peak per device, the bound that holds at a chance of 95 %.
    """

    sharding: npt.NDArray[np.int64]
    microbatches: npt.NDArray[np.int64]
    step_s: FloatArray
    exposed_s: FloatArray
    communication_s: FloatArray
    memory_bytes: FloatArray

    def fastest(self, capacity_bytes: float) -> int | None:
        """The fastest way that fits, or one as good that is simpler; None where none fits."""
        fits = self.memory_bytes <= capacity_bytes
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
    step, moments = job.predicted(points), peak_moments(job.lowered, points)
    levels = get_args(Sharding) if count > 1 else ("none",)
    parts = [
        _sharded(job, count, microbatches, step, moments, level) for level in range(len(levels))
    ]
    names = [field.name for field in fields(ReplicatedSteps)]
    return ReplicatedSteps(
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    )


def _sharded(
    job: Job, count: int, microbatches: npt.NDArray[np.int64], step: StepPrediction,
    moments: PeakMoments, level: int,
) -> ReplicatedSteps:  # fmt: skip
    """One sharding level with every number of microbatches."""
    lowered, cluster, sharding = job.lowered, job.cluster, get_args(Sharding)[level]
    update_s = update_bytes(lowered) / cluster.memory_bytes_per_s
    kept_s = update_s if sharding == "none" else update_s / count
    rounds = microbatches if sharding == "zero3" else np.ones_like(microbatches)
    compute_s = microbatches * (step.mid_s[0] - update_s) + kept_s
    parallel = data_parallel_step(
        mid_s=compute_s / rounds,
        backward_s=step.backward_s[0],
        gradient_bytes=lowered.gradient_bytes,
        num_ranks=np.full(len(microbatches), count),
        ranks_per_node=cluster.devices_per_node,
        device_link=LinkTable.from_links([cluster.device_link]),
        node_link=LinkTable.from_links([cluster.node_link]),
        sharding=sharding,
        parameter_bytes=lowered.parameter_bytes,
        profile=gradient_profile(lowered, batch=1.0, seq=job.seq),
    )
    exposed_s = rounds * parallel.exposed_communication_s
    return ReplicatedSteps(
        sharding=np.full_like(microbatches, level),
        microbatches=microbatches,
        step_s=compute_s + exposed_s,
        exposed_s=exposed_s,
        communication_s=rounds * parallel.communication_s,
        memory_bytes=sharded_memory_bytes(
            moments, step.memory_high_bytes[0], num_ranks=count, sharding=sharding
        ),
    )
