"""Complete strategies evaluated in arrays: step time, its parts, and memory of the fullest rank.

Shapes: one element per strategy unless said otherwise; stages padded to the longest pipeline.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from paceline.columns import take_rows
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.memory.training_state import TrainingState
from paceline.parallelism.rank_memory import Owned, RankMemory, rank_memory, splits
from paceline.parallelism.replicas.data_parallel import data_parallel_step, summed_over_replicas_s
from paceline.parallelism.schedule.pipeline_timing import (
    Pipelines,
    PipelineTimes,
    distinct_pipelines,
)
from paceline.parallelism.schedule.table import SHARDINGS, ClusterLinks, StrategyTable, Variant
from paceline.parallelism.steps import Steps
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyEvaluation:
    """What strategies cost, (num_strategies,) each.

    Attributes:
        steps: Of the busiest rank, with the memory of the fullest; how sure they are is not known
            here.
        updated: What the optimizer of the busiest rank updates, (num_parts, num_strategies).
        state_bytes: Parameters, gradients and optimizer state of the fullest rank.
        kept_bytes: Activations of microbatches in flight on that rank.
        allocated_bytes: Peak of its live tensors.
    """

    steps: Steps
    updated: TrainingState
    state_bytes: FloatArray
    kept_bytes: FloatArray
    allocated_bytes: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeighedStrategies:
    """Strategies whose memory is known, and whose schedules were not played yet.

    Attributes:
        variants: What their ``variant`` points into.
        has_optimizer: Whether devices keep and run the optimizer, or a host does.
        pipelines: Of the table.
        memory: Of each strategy.
    """

    table: StrategyTable
    variants: Sequence[Variant]
    fabric: ClusterLinks
    has_optimizer: bool
    pipelines: Pipelines
    memory: RankMemory

    def take(self, rows: IntArray) -> WeighedStrategies:
        """Some of them, in this order."""
        return take_rows(self, rows, alike=("variants", "fabric", "has_optimizer"))

    # What has no link takes for ever, and what is made of that is not known.
    @np.errstate(invalid="ignore")
    def evaluated(self) -> StrategyEvaluation:
        """What they cost, by playing their schedules."""
        table, variants, memory = self.table, self.variants, self.memory
        times = self.pipelines.times().take(self.pipelines.of_row)
        updated = TrainingState(_sum(_updated(table, part) for part in memory.owned))
        host_s = np.array([v.costs.update_host_s for v in variants])[table.variant] / table.pp
        rates = np.array([v.costs.update_bytes_per_s for v in variants])[table.variant]
        device_s = updated.update / rates * self.has_optimizer
        late_s = np.array([v.costs.update_late_s for v in variants])[table.variant] / table.pp
        update_s = device_s + np.maximum(host_s - times.ahead_s, 0.0)
        update_s = np.maximum(update_s, late_s * self.has_optimizer)
        bare_s = exposed_s(table, times, memory.owned, self.fabric)
        columns = {
            "step_s": times.all_s + update_s + bare_s,
            "bubble_s": times.bubble_s,
            "tensor_s": times.tensor_s,
            "exposed_s": bare_s,
            "communication_s": times.tensor_s + bare_s,
            "update_s": update_s,
            "backward_s": times.backward_s,
            "memory_mid_bytes": memory.process_mid_bytes,
            "memory_high_bytes": memory.process_high_bytes,
            "communicator_bytes": memory.communicator_bytes,
            "last_memory_frac": memory.last_frac,
            "parameter_bytes": memory.parameter_bytes,
            "optimizer_state_bytes": memory.optimizer_state_bytes,
        }
        return StrategyEvaluation(
            steps=Steps.of(len(table), columns),
            updated=updated,
            state_bytes=memory.state_bytes,
            kept_bytes=memory.kept_bytes,
            allocated_bytes=memory.allocated_bytes,
        )


def weighed_strategies(
    table: StrategyTable, variants: Sequence[Variant], fabric: ClusterLinks, *,
    has_optimizer: bool = True,
) -> WeighedStrategies:  # fmt: skip
    """The memory of every row of a table; arguments are those of `evaluate_strategies`."""
    pipelines = distinct_pipelines(table, variants, fabric)
    memory = rank_memory(table, variants, pipelines, fabric, has_optimizer=has_optimizer)
    return WeighedStrategies(
        table=table, variants=variants, fabric=fabric, has_optimizer=has_optimizer,
        pipelines=pipelines, memory=memory,
    )  # fmt: skip


def evaluate_strategies(
    table: StrategyTable, variants: Sequence[Variant], fabric: ClusterLinks, *,
    has_optimizer: bool = True,
) -> StrategyEvaluation:  # fmt: skip
    """Evaluate every row of a table.

    Ranks are laid out in the usual order, pipeline outermost and tensor innermost.

    Args:
        table: Strategies.
        variants: What their ``variant`` points into.
        fabric: The cluster.
        has_optimizer: Whether devices keep and run the optimizer, or a host does.
    """
    weighed = weighed_strategies(table, variants, fabric, has_optimizer=has_optimizer)
    return weighed.evaluated()


def _sum(parts: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(functools.reduce(np.add, parts))


def _updated(table: StrategyTable, owned: Owned) -> FloatArray:
    """What a rank updates, (num_parts, num_strategies)."""
    return np.asarray(owned.most.values * np.where(splits(table, "zero1"), 1.0 / owned.shards, 1.0))


def exposed_s(
    table: StrategyTable, times: PipelineTimes, owned: Sequence[Owned], fabric: ClusterLinks
) -> FloatArray:
    """Data-parallel communication that nothing hides; each part has its share of the time.

    What splits gradients exchanges them in every microbatch.
    """
    is_in_every = splits(table, "zero2")
    alone_s = np.where(is_in_every, times.forward_s + times.backward_s, times.all_s)
    everything = np.maximum(_sum(part.most.parameters for part in owned), 1.0)
    bare_s = np.zeros(len(table))
    for part in owned:
        frac = part.most.parameters / everything
        hides_s = np.where(is_in_every, times.backward_s, _passing_s(table, times.backward_s))
        hides_s = hides_s * frac * fabric.profile.overlaps_gradients
        ahead_s = _passing_s(table, times.forward_s) * frac * fabric.profile.gathers_ahead
        bare_s += _part_s(table, part, alone_s * frac, hides_s, ahead_s, fabric)[0]
        bare_s += _replicas_exposed_s(part, hides_s, fabric)
    return bare_s


def least_exposed_s(
    table: StrategyTable, times: PipelineTimes, owned: Sequence[Owned], fabric: ClusterLinks
) -> FloatArray:
    """What of all steps that take these times at least nothing hides, with no more than they take.

    Of one stage it is what `exposed_s` has but for sums over replicas of shards: a stage that takes
    longer hides no more than that. Of more stages all that is sent but for what the busiest could
    hide, which is not known where gathers hide too. Of experts nothing is said: how the time is
    shared hangs on the stages.
    """
    if len(owned) > 1:
        return np.zeros(len(table))
    is_in_every, profile = splits(table, "zero2"), fabric.profile
    alone_s = np.where(is_in_every, times.forward_s + times.backward_s, times.all_s)
    hides_s = times.backward_s * profile.overlaps_gradients
    ahead_s = times.forward_s * profile.gathers_ahead
    bare_s, sent_s = _part_s(table, owned[0], alone_s, hides_s, ahead_s, fabric)
    busiest_s = _passing_s(table, times.all_s / table.microbatches)
    left_s = np.maximum(sent_s - busiest_s, 0.0) * (not profile.gathers_ahead)
    return np.where(table.pp > 1, left_s, bare_s)


def _passing_s(table: StrategyTable, one_s: FloatArray) -> FloatArray:
    """How long the chunks of a rank take one after another in the last microbatches.

    Microbatches pass an interleaved pipeline in groups of as many as it has ranks, each group
    through one chunk after the other (Narayanan et al., arXiv 2104.04473, figure 4): the gradients
    of a chunk are whole while the group still has to pass the chunks before it, and its parameters
    are first wanted when the first group has passed those. One chunk is passed by one microbatch.

    Args:
        table: Strategies.
        one_s: One microbatch through all chunks of a rank.
    """
    group = np.minimum(table.pp, table.microbatches)
    return np.asarray(one_s * (1.0 + (group - 1.0) * (1.0 - 1.0 / table.chunks)))


def _replicas_exposed_s(owned: Owned, hides_s: FloatArray, fabric: ClusterLinks) -> FloatArray:
    """What of summing the gradients of shards over replicas nothing hides."""
    exposed_s = np.zeros(len(hides_s))
    rows = np.flatnonzero(owned.copies > owned.shards)
    if len(rows):
        one_row = np.zeros(len(rows), np.int64)
        _, exposed_s[rows] = summed_over_replicas_s(
            owned.most.reduced[rows] / owned.shards[rows],
            backward_s=hides_s[rows],
            num_replicas=owned.copies[rows] // owned.shards[rows],
            stride=owned.stride[rows] * owned.shards[rows],
            ranks_per_node=fabric.devices_per_domain,
            device_link=fabric.device_link.take(one_row),
            node_link=fabric.node_link.take(one_row),
        )
    return exposed_s


def _part_s(
    table: StrategyTable, owned: Owned, alone_s: FloatArray, hides_s: FloatArray,
    ahead_s: FloatArray, fabric: ClusterLinks,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Reducing and gathering what one kind of copies holds alike: what nothing hides, and all."""
    bare_s, sent_s = np.zeros((2, len(table)))
    most = owned.most
    width = np.maximum(most.reduced / np.maximum(most.trained, 1.0), 1.0)
    buckets = fabric.profile.bucket_size_bytes(owned.shards, width)
    for code, sharding in enumerate(SHARDINGS):
        rows = np.flatnonzero((table.sharding == code) & (owned.shards > 1))
        if not len(rows):
            continue
        one_row = np.zeros(len(rows), dtype=np.int64)
        stride = owned.stride[rows]
        gathered = most.gathered if sharding == "zero3" else most.renewed
        rounds = table.microbatches[rows] if sharding in ("zero2", "zero3") else 1
        step = data_parallel_step(
            mid_s=alone_s[rows],
            backward_s=hides_s[rows],
            gradient_bytes=most.reduced[rows],
            num_ranks=owned.shards[rows],
            ranks_per_node=np.maximum(fabric.devices_per_domain // stride, 1),
            device_link=fabric.device_link.take(one_row),
            node_link=fabric.node_link.take(one_row),
            sharding=sharding,
            parameter_bytes=gathered[rows],
            node_share_frac=1.0 / np.minimum(stride, fabric.devices_per_domain),
            bucket_bytes=buckets[rows],
            forward_s=ahead_s[rows],
            num_reductions=rounds,
        )
        bare_s[rows], sent_s[rows] = step.exposed_communication_s, step.communication_s
    return bare_s, sent_s
