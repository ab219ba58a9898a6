"""A training step run by replicas: what its passes ask for, and how long a step of them takes.

Every number of data parallel is one of `replicated_step`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import FloatArray
from paceline.model.graph.workload import Workload
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.replicas.data_parallel import (
    GradientProfile,
    data_parallel_step,
    summed_over_replicas_s,
)
from paceline.parallelism.replicas.gradient_profile import gradient_profile
from paceline.parallelism.replicas.host_shares import HostLinks, HostTraffic
from paceline.parallelism.strategy.strategy import Sharding
from paceline.parallelism.training_profile import TrainingProfile, find_training_profile
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoweredStep:
    """The passes of one training step, in order.

    Attributes:
        passes: What runs on a device; at least one.
        repeats: How often each runs in a step.
    """

    passes: tuple[LoweredPass, ...]
    repeats: tuple[float, ...]

    @classmethod
    def of_passes(cls, workload: Workload, lowered: Mapping[str, LoweredPass]) -> LoweredStep:
        """The same of passes that are lowered already, by name."""
        on_device = [p for p in workload.passes if p.runs_on == "device"]
        return cls(
            passes=tuple(lowered[p.name] for p in on_device),
            repeats=tuple(p.repeats for p in on_device),
        )

    @property
    def configuration(self) -> Configuration:
        """How its passes run."""
        return self.passes[0].configuration

    @property
    def gradient_bytes(self) -> float:
        """Gradients of all its updates together."""
        return sum(n * p.gradient_bytes for n, p in zip(self.repeats, self.passes, strict=True))

    @property
    def largest(self) -> LoweredPass:
        """The pass that keeps most: its parameters, state and moments stand for the step."""
        return max(self.passes, key=lambda p: float(p.memory.by_owner.sum(axis=(1, 2)).max()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicaWork:
    """What a step asks of replicas beside the step of one device.

    Attributes:
        gradient_bytes: Gradients as they are reduced, of all updates together.
        gathered_bytes: Parameters as ranks that split them gather them: in the format of
            activations, since a shard is cast before it is sent.
        renewed_bytes: Of them, those that are updated, which ranks gather that split the optimizer
            alone.
        profile: When gradients are ready; None, for evenly, where a step has several passes.
        num_trained: Parameters that have gradients.
        on_host: The pass whose shares of weights and gradients are on the host, if they are.
    """

    gradient_bytes: float
    gathered_bytes: float
    renewed_bytes: float
    profile: GradientProfile | None
    num_trained: float
    on_host: LoweredPass | None = None

    @classmethod
    def of(cls, step: LoweredStep, *, seq: float) -> ReplicaWork:
        """What a step asks, at one sequence length."""
        only = step.passes[0] if len(step.passes) == 1 else None
        largest = step.largest
        gathered_bytes = _gathered_bytes(largest)
        trained_frac = largest.num_trainable_parameters / max(largest.num_parameters, 1)
        return cls(
            gradient_bytes=step.gradient_bytes,
            gathered_bytes=gathered_bytes,
            renewed_bytes=gathered_bytes * trained_frac,
            profile=None if only is None else gradient_profile(only, batch=1.0, seq=seq),
            num_trained=float(largest.num_trainable_parameters),
            on_host=largest if largest.configuration.offload == "weights" else None,
        )

    def host_traffic(
        self, num_ranks: FloatArray, num_sums: FloatArray, links: HostLinks | None,
        software: TrainingProfile,
    ) -> HostTraffic | None:  # fmt: skip
        """What shares on the host move where so many ranks split all; None if none are there."""
        if self.on_host is None or links is None:
            return None
        return HostTraffic.of(
            self.on_host, links, num_ranks=num_ranks, num_sums=num_sums,
            returns_gradients=software.returns_gradients,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicatedStep:
    """Optimizer steps of replicas, (num_candidates,) each.

    Attributes:
        exposed_s: What communication that nothing hides, and waiting for the slowest, add.
        communication_s: All communication, hidden or not, and that waiting.
    """

    compute_s: FloatArray
    exposed_s: FloatArray
    communication_s: FloatArray

    @property
    def step_s(self) -> FloatArray:
        """The whole step; for ever where a link is missing."""
        return self.compute_s + self.exposed_s


def replicated_step(
    work: ReplicaWork,
    *,
    alone_s: npt.ArrayLike,
    backward_s: npt.ArrayLike,
    update_s: npt.ArrayLike,
    microbatches: npt.ArrayLike,
    num_ranks: npt.ArrayLike,
    ranks_per_node: npt.ArrayLike,
    device_link: LinkTable,
    node_link: LinkTable,
    sharding: Sharding = "none",
    shards: npt.ArrayLike | None = None,
    node_share_frac: npt.ArrayLike = 1.0,
    software: TrainingProfile | None = None,
    host_links: HostLinks | None = None,
) -> ReplicatedStep:
    """Optimizer steps of replicas, one array element per candidate.

    Parameters are updated once a step, by ranks that split the optimizer's state each its own. In
    plain data parallel and ZeRO-1, microbatches before the last exchange nothing; ranks that keep a
    part of the gradients, or of the parameters too, exchange them in every one.

    Args:
        work: What the step asks.
        alone_s: One microbatch with its update on one device.
        backward_s: Of it, what communication hides behind.
        update_s: Of it, the update.
        microbatches: Microbatches per step.
        num_ranks: Replicas.
        ranks_per_node: Of them, in one node.
        device_link: Link inside the node, one row per candidate.
        node_link: Link between nodes, one row per candidate.
        sharding: What ranks split.
        shards: Ranks that split it among them, neighbours of each other, where the others are
            replicas of these; all by default.
        node_share_frac: Share of the node's network that these ranks have for themselves.
        software: Whose buckets they are, and when it gathers; PyTorch's if None.
        host_links: Of the ranks; None where nothing is on the host.
    """
    software = software or find_training_profile()
    count, ranks = (np.asarray(x, dtype=np.float64) for x in (microbatches, num_ranks))
    parts = np.broadcast_to(ranks if shards is None else np.asarray(shards, float), ranks.shape)
    once_s = np.minimum(update_s, alone_s)
    kept_s = once_s if sharding == "none" else once_s / parts
    rounds = count if sharding in ("zero2", "zero3") else np.ones_like(count)
    host = work.host_traffic(parts, rounds, host_links, software)
    if sharding == "zero3" and host is not None:
        # What an update would copy down and up is down already, and stays there.
        kept_s = np.where(parts > 1, 0.0, kept_s)
    compute_s = count * (alone_s - once_s) + kept_s
    width_bytes = work.gradient_bytes / max(work.num_trained, 1.0)
    forward_s = np.subtract(np.subtract(alone_s, once_s), backward_s)
    one = data_parallel_step(
        mid_s=compute_s / rounds,
        backward_s=backward_s,
        gradient_bytes=work.gradient_bytes,
        num_ranks=parts,
        ranks_per_node=ranks_per_node,
        device_link=device_link,
        node_link=node_link,
        sharding=sharding,
        parameter_bytes=work.gathered_bytes if sharding == "zero3" else work.renewed_bytes,
        # Buckets of other sizes are filled evenly.
        profile=None if software.bucket_parameters else work.profile,
        node_share_frac=node_share_frac,
        bucket_bytes=software.bucket_size_bytes(parts, width_bytes),
        forward_s=np.maximum(forward_s, 0.0) * software.gathers_ahead,
        host=host,
    )
    summed_s, left_s = summed_over_replicas_s(
        work.gradient_bytes / parts, backward_s=backward_s, num_replicas=ranks / parts,
        stride=parts, ranks_per_node=ranks_per_node, device_link=device_link, node_link=node_link,
    )  # fmt: skip
    return ReplicatedStep(
        compute_s=compute_s,
        exposed_s=rounds * one.exposed_communication_s + left_s,
        communication_s=rounds * one.communication_s + summed_s,
    )


def _gathered_bytes(lowered: LoweredPass) -> float:
    """Autocast under FSDP casts the shard before it is gathered; what is narrow stays as it is."""
    precision = find_precision(lowered.configuration.precision)
    narrow_bytes = ELEMENT_BYTES[precision.activation_dtype] * float(lowered.num_parameters)
    return min(lowered.parameter_bytes, narrow_bytes)
