"""Complete strategies evaluated in arrays: step time, its parts, and memory of the fullest rank.

Shapes: one element per strategy unless said otherwise; stages padded to the longest pipeline.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np

from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.memory.training_state import TrainingState
from paceline.parallelism.rank_memory import Owned, rank_memory, splits
from paceline.parallelism.replicas.data_parallel import data_parallel_step, summed_over_replicas_s
from paceline.parallelism.schedule.pipeline_timing import PipelineTimes, distinct_pipelines
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


#: What has no link takes for ever, and what is made of that is not known.
@np.errstate(invalid="ignore")
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
    pipelines = distinct_pipelines(table, variants, fabric)
    memory = rank_memory(table, variants, pipelines, fabric, has_optimizer=has_optimizer)
    times, of_row = pipelines.times(), pipelines.of_row
    updated = TrainingState(_sum(_updated(table, part) for part in memory.owned))
    host_s = np.array([v.costs.update_host_s for v in variants])[table.variant] / table.pp
    rates = np.array([v.costs.update_bytes_per_s for v in variants])[table.variant]
    device_s = updated.update / rates * has_optimizer
    late_s = np.array([v.costs.update_late_s for v in variants])[table.variant] / table.pp
    update_s = device_s + np.maximum(host_s - times.ahead_s[of_row], 0.0)
    update_s = np.maximum(update_s, late_s * has_optimizer)
    exposed_s = _exposed_s(table, times, of_row, memory.owned, fabric)
    columns = {
        "step_s": times.all_s[of_row] + update_s + exposed_s,
        "bubble_s": times.bubble_s[of_row],
        "tensor_s": times.tensor_s[of_row],
        "exposed_s": exposed_s,
        "update_s": update_s,
        "backward_s": times.backward_s[of_row],
        "memory_mid_bytes": memory.process_mid_bytes,
        "memory_high_bytes": memory.process_high_bytes,
    }
    return StrategyEvaluation(
        steps=Steps.of(len(table), columns),
        updated=updated,
        state_bytes=memory.state_bytes,
        kept_bytes=memory.kept_bytes,
        allocated_bytes=memory.allocated_bytes,
    )


def strategy_memory_bytes(
    table: StrategyTable, variants: Sequence[Variant], fabric: ClusterLinks, *,
    has_optimizer: bool = True,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Memory alone, median and bound, as `evaluate_strategies` has it, without playing a schedule.

    Args:
        table: Strategies.
        variants: What their ``variant`` points into.
        fabric: The cluster.
        has_optimizer: Whether devices keep the optimizer, or a host does.
    """
    pipelines = distinct_pipelines(table, variants, fabric)
    memory = rank_memory(table, variants, pipelines, fabric, has_optimizer=has_optimizer)
    return memory.process_mid_bytes, memory.process_high_bytes


def _sum(parts: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(functools.reduce(np.add, parts))


def _updated(table: StrategyTable, owned: Owned) -> FloatArray:
    """What a rank updates, (num_parts, num_strategies)."""
    return np.asarray(owned.most.values * np.where(splits(table, "zero1"), 1.0 / owned.shards, 1.0))


def _exposed_s(
    table: StrategyTable, times: PipelineTimes, of_row: IntArray, owned: Sequence[Owned],
    fabric: ClusterLinks,
) -> FloatArray:  # fmt: skip
    """Data-parallel communication that nothing hides; each part has its share of the time.

    What splits gradients exchanges them in every microbatch.
    """
    forward_s, backward_s = times.forward_s[of_row], times.backward_s[of_row]
    last_s, first_s = (_passing_s(table, one_s) for one_s in (backward_s, forward_s))
    is_in_every = splits(table, "zero2")
    alone_s = np.where(is_in_every, forward_s + backward_s, times.all_s[of_row])
    everything = np.maximum(_sum(part.most.parameters for part in owned), 1.0)
    exposed_s = np.zeros(len(table))
    for part in owned:
        frac = part.most.parameters / everything
        hides_s = (
            np.where(is_in_every, backward_s, last_s) * frac * fabric.profile.overlaps_gradients
        )
        ahead_s = first_s * frac * fabric.profile.gathers_ahead
        exposed_s += _part_exposed_s(table, part, alone_s * frac, hides_s, ahead_s, fabric)
        exposed_s += _replicas_exposed_s(part, hides_s, fabric)
    return exposed_s


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
            ranks_per_node=fabric.devices_per_node,
            device_link=fabric.device_link.take(one_row),
            node_link=fabric.node_link.take(one_row),
        )
    return exposed_s


def _part_exposed_s(
    table: StrategyTable, owned: Owned, alone_s: FloatArray, hides_s: FloatArray,
    ahead_s: FloatArray, fabric: ClusterLinks,
) -> FloatArray:  # fmt: skip
    """What nothing hides of reducing and gathering what one kind of copies holds alike."""
    exposed_s = np.zeros(len(table))
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
        exposed_s[rows] = data_parallel_step(
            mid_s=alone_s[rows],
            backward_s=hides_s[rows],
            gradient_bytes=most.reduced[rows],
            num_ranks=owned.shards[rows],
            ranks_per_node=np.maximum(fabric.devices_per_node // stride, 1),
            device_link=fabric.device_link.take(one_row),
            node_link=fabric.node_link.take(one_row),
            sharding=sharding,
            parameter_bytes=gathered[rows],
            node_share_frac=1.0 / np.minimum(stride, fabric.devices_per_node),
            bucket_bytes=buckets[rows],
            forward_s=ahead_s[rows],
            num_reductions=rounds,
        ).exposed_communication_s
    return exposed_s
