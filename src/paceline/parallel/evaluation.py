"""Complete strategies evaluated in arrays: step time, its parts, and memory of the fullest rank.

Shapes: one element per strategy unless said otherwise; stages padded to the longest pipeline.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import get_args

import numpy as np
import numpy.typing as npt

from paceline.parallel.blocks import BlockCosts
from paceline.parallel.collectives import RankGroup, all_reduce_s, send_recv_s
from paceline.parallel.data_parallel import FSDP_BLOCKS, data_parallel_step
from paceline.parallel.links import LinkTable
from paceline.parallel.pipeline import in_flight, pipeline_s, settled_microbatches
from paceline.parallel.rank_program import StateBytes
from paceline.parallel.stages import balanced_cuts, even_cuts, per_stage
from paceline.parallel.strategy import Schedule, ScheduleKind, Sharding, Strategy
from paceline.predict.memory import process_memory
from paceline.trace.costs import Checkpointing, Platform
from paceline.trace.graph import FloatArray

IndexArray = npt.NDArray[np.int64]
SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)
KINDS: tuple[ScheduleKind, ...] = get_args(ScheduleKind)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Variant:
    """One way to run the blocks, shared by many strategies.

    Attributes:
        tensor_degree: Ranks that share each block.
        sequence_parallel: Whether they split the sequence between pairs.
        checkpointing: What is recomputed.
        costs: Blocks on one rank.
        context_degree: Ranks that have a part of each sequence.
        expert_degree: Ranks that have a part of the experts, and batches of their own.
    """

    tensor_degree: int
    sequence_parallel: bool
    checkpointing: Checkpointing
    costs: BlockCosts
    context_degree: int = 1
    expert_degree: int = 1

    @property
    def num_ranks(self) -> int:
        """Ranks that share every block."""
        return self.tensor_degree * self.context_degree * self.expert_degree


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fabric:
    """The cluster as strategies see it.

    Attributes:
        devices_per_node: Devices of a node.
        device_link: One row.
        node_link: One row.
        memory_bytes_per_s: Device-memory bandwidth, for the optimizer's update.
        platform: Whose allocator and context count.
        overlaps_gradients: Whether gradients are reduced during backward.
        cuts_evenly: Whether stages get equal numbers of layers, as Megatron-LM cuts, instead of
            equal cost.
        overlaps_hops: Whether what interleaved stages send travels while they compute, as in
            PyTorch's schedules and in Megatron-LM since 2023 (``overlap_p2p_comm``).
        hop_wait_s: What both ends of a message between stages spend beside its time on the wire,
            where the host waits for it before it goes on.
    """

    devices_per_node: int
    device_link: LinkTable
    node_link: LinkTable
    memory_bytes_per_s: float
    platform: Platform = "cuda"
    overlaps_gradients: bool = True
    cuts_evenly: bool = False
    overlaps_hops: bool = True
    hop_wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyTable:
    """Strategies as columns, int64 (num_strategies,) each.

    Attributes:
        variant: Row of the variants.
        dp: Data-parallel ranks.
        pp: Pipeline ranks.
        chunks: Chunks per pipeline rank.
        kind: Index into `KINDS`.
        microbatches: Microbatches per step.
        point: Row of the variants' microbatch sizes.
        sharding: Index into `SHARDINGS`.
        shards: Data-parallel ranks that split, replicas being kept beyond them; 0 for all.
    """

    variant: IndexArray
    dp: IndexArray
    pp: IndexArray
    chunks: IndexArray
    kind: IndexArray
    microbatches: IndexArray
    point: IndexArray
    sharding: IndexArray
    shards: IndexArray

    def __len__(self) -> int:
        """Number of strategies."""
        return len(self.variant)

    def take(self, rows: npt.ArrayLike) -> StrategyTable:
        """Some rows, in this order."""
        index = np.asarray(rows)
        return StrategyTable(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    def strategy(self, row: int, variants: Sequence[Variant]) -> Strategy:
        """One row as a Strategy."""
        variant = variants[int(self.variant[row])]
        dp, kind = int(self.dp[row]), KINDS[int(self.kind[row])]
        num_copies = dp * variant.context_degree * variant.expert_degree
        shards = int(self.shards[row])
        return Strategy.from_degrees(
            dp=dp // shards if shards else dp,
            fsdp=shards or 1,
            tp=variant.tensor_degree,
            cp=variant.context_degree,
            ep=variant.expert_degree,
            pp=int(self.pp[row]),
            schedule=Schedule(
                kind=kind,
                num_microbatches=int(self.microbatches[row]),
                num_chunks=int(self.chunks[row]),
            ),
            sharding="none" if shards or num_copies == 1 else SHARDINGS[int(self.sharding[row])],
            recompute=variant.checkpointing,
            sequence_parallel=variant.sequence_parallel,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategyEvaluation:
    """What strategies cost, (num_strategies,) each.

    Attributes:
        step_s: One optimizer step.
        bubble_s: Of it, waiting in the pipeline on the busiest rank.
        tensor_s: Of it, communication of ranks that share blocks, on the busiest rank.
        exposed_s: Of it, data-parallel communication that nothing hides.
        update_s: Of it, the optimizer.
        state_bytes: Parameters, gradients and optimizer state of the fullest rank.
        kept_bytes: Activations of microbatches in flight on that rank.
        allocated_bytes: Peak of its live tensors.
        memory_bytes: Peak of its process, the bound that holds at a chance of 95 %.
    """

    step_s: FloatArray
    bubble_s: FloatArray
    tensor_s: FloatArray
    exposed_s: FloatArray
    update_s: FloatArray
    state_bytes: FloatArray
    kept_bytes: FloatArray
    allocated_bytes: FloatArray
    memory_bytes: FloatArray


def evaluate_strategies(
    table: StrategyTable, variants: Sequence[Variant], fabric: Fabric, state: StateBytes
) -> StrategyEvaluation:
    """Evaluate every row of a table.

    Ranks are laid out in the usual order, pipeline outermost and tensor innermost.

    Args:
        table: Strategies.
        variants: What their ``variant`` points into.
        fabric: The cluster.
        state: Bytes per parameter of the training recipe.
    """
    pipelines, of_row = _pipelines(table, variants, fabric)
    owned = _owned(table, variants, pipelines, of_row)
    states = _sum(part.parameters * _state_bytes(table, part, state)[:, None] for part in owned)
    kept = pipelines.activations[of_row]
    held = states + kept + pipelines.transient[of_row]
    fullest = (np.arange(len(table)), held.argmax(axis=1))
    allocated = held[fullest]
    update_s = _sum(_update_s(table, part, fabric, state) for part in owned)
    exposed_s = _exposed_s(table, pipelines, of_row, owned, fabric, state)
    step_s = pipelines.seconds[of_row] + update_s + exposed_s
    return StrategyEvaluation(
        step_s=step_s,
        bubble_s=pipelines.bubble[of_row],
        tensor_s=pipelines.tensor[of_row],
        exposed_s=exposed_s,
        update_s=update_s,
        state_bytes=states[fullest],
        kept_bytes=kept[fullest],
        allocated_bytes=allocated,
        memory_bytes=_process_bytes(allocated, fabric.platform),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pipelines:
    """Distinct pipelines of a table; (num_pipelines,) or (num_pipelines, num_ranks)."""

    seconds: FloatArray
    bubble: FloatArray
    tensor: FloatArray
    backward: FloatArray
    forward: FloatArray
    transient: FloatArray
    parameters: FloatArray
    experts: FloatArray
    activations: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layout:
    """Blocks cut into virtual stages; (num_stages,) each, and the message between them."""

    forward: FloatArray
    backward: FloatArray
    tensor: FloatArray
    parameters: FloatArray
    experts: FloatArray
    saved: FloatArray
    message_bytes: float
    transient: FloatArray


def _pipelines(
    table: StrategyTable, variants: Sequence[Variant], fabric: Fabric
) -> tuple[_Pipelines, IndexArray]:
    """Distinct pipelines, each evaluated once, and the pipeline of every row."""
    degree = np.array([v.num_ranks for v in variants])[table.variant]
    crosses = degree * table.dp * table.pp > fabric.devices_per_node
    columns = (table.pp, table.chunks, table.kind, table.microbatches, table.variant, table.point)
    keys, of_row = np.unique(np.column_stack([*columns, crosses]), axis=0, return_inverse=True)
    layouts = _layouts(keys, variants, fabric)
    hop_s = _hop_s(keys, layouts, fabric)
    width = int(table.pp.max(initial=1))
    found = _empty_pipelines(len(keys), width)
    same_shape = np.unique(_shapes(keys), axis=0, return_inverse=True)
    for group, shape in enumerate(same_shape[0]):
        rows = np.flatnonzero(same_shape[1].ravel() == group)
        _fill(
            found, rows, shape, keys[rows, 3], [layouts[row] for row in rows], hop_s[rows],
            is_overlapped=fabric.overlaps_hops,
        )  # fmt: skip
    return found, np.asarray(of_row.ravel(), dtype=np.int64)


def _shapes(keys: IndexArray) -> IndexArray:
    """What must be equal to play pipelines together: ranks, chunks, kind, microbatches played."""
    played = [
        settled_microbatches(_schedule(kind, count, chunks), ranks)
        for ranks, chunks, kind, count in keys[:, :4].tolist()
    ]
    return np.column_stack([keys[:, :3], played])


def _schedule(kind: int, num_microbatches: int, chunks: int) -> Schedule:
    return Schedule(kind=KINDS[kind], num_microbatches=num_microbatches, num_chunks=chunks)


def _empty_pipelines(count: int, width: int) -> _Pipelines:
    wide = {"parameters", "experts", "activations", "transient"}
    return _Pipelines(
        **{
            f.name: np.zeros((count, width) if f.name in wide else count)
            for f in fields(_Pipelines)
        }
    )


def _fill(
    found: _Pipelines, rows: IndexArray, shape: IndexArray, microbatches: IndexArray,
    layouts: list[_Layout], hop_s: FloatArray, *, is_overlapped: bool,
) -> None:  # fmt: skip
    """Evaluate pipelines of one shape and write them into their rows.

    With other chunks to run, a stage that sends goes on; its message is the slower of the two.
    """
    pp, chunks, kind, played = (int(x) for x in shape)
    schedule = _schedule(kind, played, chunks)
    send = np.maximum if is_overlapped and schedule.kind == "interleaved" else np.add
    forward = send(np.stack([one.forward for one in layouts]), hop_s[:, None])
    backward = send(np.stack([one.backward for one in layouts]), hop_s[:, None])
    seconds = pipeline_s(schedule, forward, backward, num_microbatches=microbatches)
    busy = microbatches * _per_rank(forward + backward, chunks).max(axis=1)
    found.seconds[rows] = seconds
    found.bubble[rows] = seconds - busy
    tensor = np.stack([one.tensor for one in layouts])
    found.tensor[rows] = microbatches * _per_rank(tensor, chunks).max(axis=1)
    found.forward[rows] = _per_rank(forward, chunks).max(axis=1)
    found.backward[rows] = _per_rank(backward, chunks).max(axis=1)
    transient = np.stack([one.transient for one in layouts])
    found.transient[rows, :pp] = transient.reshape(len(rows), chunks, pp).max(axis=1)
    parameters = np.stack([one.parameters for one in layouts])
    saved = np.stack([one.saved for one in layouts])
    found.parameters[rows, :pp] = _per_rank(parameters, chunks)
    experts = np.stack([one.experts for one in layouts])
    found.experts[rows, :pp] = _per_rank(experts, chunks)
    found.activations[rows, :pp] = _per_rank(saved, chunks) * in_flight(schedule, num_ranks=pp)


def _per_rank(stages: FloatArray, chunks: int) -> FloatArray:
    """Sums over the chunks of each rank, (num_pipelines, num_ranks)."""
    num_ranks = stages.shape[1] // chunks
    return np.asarray(stages.reshape(len(stages), chunks, num_ranks).sum(axis=1))


def _layouts(keys: IndexArray, variants: Sequence[Variant], fabric: Fabric) -> list[_Layout]:
    """The cut of each pipeline; equal cuts are made once."""
    made: dict[tuple[int, int, int], _Layout] = {}
    for pp, chunks, _, _, variant, point, _ in keys.tolist():
        key = (pp * chunks, variant, point)
        if key not in made:
            made[key] = _layout(variants[variant], pp * chunks, point, fabric)
    return [made[(k[0] * k[1], k[4], k[5])] for k in keys.tolist()]


def _layout(variant: Variant, num_stages: int, point: int, fabric: Fabric) -> _Layout:
    """One cut. Tensor ranks hold equal copies of the message: each sends its part of it.

    Source: Narayanan et al., SC 2021, section 4.1 (scatter/gather optimization).
    """
    costs = variant.costs
    copies = 1 if variant.sequence_parallel else variant.tensor_degree
    work = costs.forward_s[point] + costs.backward_s[point]
    cuts = (
        even_cuts(costs.names, num_stages)
        if fabric.cuts_evenly and num_stages > 1
        else balanced_cuts(work, num_stages)
    )
    saved_bytes = costs.saved_bytes[point]
    rows = (costs.forward_s[point], costs.backward_s[point], costs.tensor_s[point])
    forward, backward, tensor, parameters, experts, saved = per_stage(
        np.stack([*rows, costs.parameters, costs.expert_parameters, saved_bytes]), cuts
    )
    return _Layout(
        forward=forward,
        backward=backward,
        tensor=tensor,
        parameters=parameters,
        experts=experts,
        saved=saved,
        message_bytes=float(costs.boundary_bytes[point][cuts[1:] - 1].max(initial=0.0)) / copies,
        transient=_stage_transient(saved_bytes, costs.transient_bytes[point], cuts),
    )


def _stage_transient(saved: FloatArray, transient: FloatArray, cuts: IndexArray) -> FloatArray:
    """What a stage holds beyond the saved activations of all its blocks, at its peak.

    While a block runs backward, what the blocks after it had saved is free again.
    """
    held = np.cumsum(saved)
    peak = np.maximum.reduceat(held + transient, cuts)
    return np.asarray(peak - held[np.append(cuts[1:], len(saved)) - 1])


def _hop_s(keys: IndexArray, layouts: list[_Layout], fabric: Fabric) -> FloatArray:
    """Time of a message between stages, which sender and receiver both spend.

    Between nodes all ranks of a node send at once, so each has its share of the network.
    """
    size = np.array([one.message_bytes for one in layouts])
    one_row = np.zeros(len(keys), dtype=np.int64)
    crosses = keys[:, 6].astype(np.bool_)
    pair = RankGroup.of(
        2.0, np.where(crosses, 1.0, 2.0), fabric.device_link.take(one_row),
        fabric.node_link.take(one_row),
        node_share_frac=np.where(crosses, 1.0 / fabric.devices_per_node, 1.0),
    )  # fmt: skip
    return np.where(keys[:, 0] > 1, send_recv_s(size, pair) + fabric.hop_wait_s, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Owned:
    """Parameters that equally many ranks hold alike, (num_strategies,) or with ranks of a pipeline.

    Attributes:
        parameters: Of each rank of the pipeline, (num_strategies, num_ranks).
        copies: Ranks that hold the same and reduce its gradients.
        shards: Of them, how many split what `SHARDINGS` says; the others are replicas of these.
        stride: Ranks between neighbours of them.
    """

    parameters: FloatArray
    copies: IndexArray
    shards: IndexArray
    stride: IndexArray

    @property
    def most(self) -> FloatArray:
        """Parameters of the rank that has most, (num_strategies,)."""
        return np.asarray(self.parameters.max(axis=1))


def _owned(
    table: StrategyTable, variants: Sequence[Variant], pipelines: _Pipelines, of_row: IndexArray
) -> tuple[_Owned, ...]:
    """What all replicas hold, and experts, of which expert ranks hold different ones."""
    tensor, context, expert = (
        np.array([getattr(v, name) for v in variants])[table.variant]
        for name in ("tensor_degree", "context_degree", "expert_degree")
    )
    experts = pipelines.experts[of_row] * (expert > 1)[:, None]
    shards = np.where(table.shards > 0, table.shards, table.dp) * context
    common = _Owned(
        parameters=pipelines.parameters[of_row] - experts,
        copies=table.dp * context * expert,
        shards=shards * expert,
        stride=tensor,
    )
    if not experts.any():
        return (common,)
    own = _Owned(
        parameters=experts, copies=table.dp * context, shards=shards, stride=tensor * expert
    )
    return (common, own)


def _sum(parts: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(functools.reduce(np.add, parts))


def _state_bytes(table: StrategyTable, owned: _Owned, state: StateBytes) -> FloatArray:
    """Bytes a rank keeps per parameter it owns, by what data-parallel ranks split."""
    share = 1.0 / owned.shards
    gathered = np.minimum(1.0, share + 2.0 / FSDP_BLOCKS)
    weight = state.weight * np.where(table.sharding >= 3, gathered, 1.0)
    gradient = state.gradient * np.where(table.sharding >= 2, share, 1.0)
    optimizer = state.optimizer * np.where(table.sharding >= 1, share, 1.0)
    return np.asarray(weight + gradient + optimizer)


def _update_s(table: StrategyTable, owned: _Owned, fabric: Fabric, state: StateBytes) -> FloatArray:
    share = np.where(table.sharding >= 1, 1.0 / owned.shards, 1.0)
    return np.asarray(owned.most * share * state.update / fabric.memory_bytes_per_s)


def _exposed_s(
    table: StrategyTable, pipelines: _Pipelines, of_row: IndexArray, owned: Sequence[_Owned],
    fabric: Fabric, state: StateBytes,
) -> FloatArray:  # fmt: skip
    """Data-parallel communication that nothing hides; each part has its share of the time."""
    forward, backward = pipelines.forward[of_row], pipelines.backward[of_row]
    is_gathered = table.sharding == SHARDINGS.index("zero3")
    alone_s = np.where(is_gathered, forward + backward, pipelines.seconds[of_row])
    everything = np.maximum(_sum(part.most for part in owned), 1.0)
    exposed_s = np.zeros(len(table))
    for part in owned:
        frac = part.most / everything
        hides = backward * frac * fabric.overlaps_gradients
        exposed_s += _part_exposed_s(table, part, alone_s * frac, hides, fabric, state)
        exposed_s += _replicas_exposed_s(part, hides, fabric, state)
    return exposed_s


def _replicas_exposed_s(
    owned: _Owned, hides: FloatArray, fabric: Fabric, state: StateBytes
) -> FloatArray:
    """Summing the gradients of shards over replicas, which hides behind backward but for a block.

    It happens once per step, on other links than what shards exchange.
    """
    exposed_s = np.zeros(len(hides))
    rows = np.flatnonzero(owned.copies > owned.shards)
    if len(rows):
        stride, one_row = owned.stride[rows] * owned.shards[rows], np.zeros(len(rows), np.int64)
        group = RankGroup.of(
            owned.copies[rows] // owned.shards[rows],
            np.maximum(fabric.devices_per_node // stride, 1),
            fabric.device_link.take(one_row), fabric.node_link.take(one_row),
            node_share_frac=1.0 / np.minimum(stride, fabric.devices_per_node),
        )  # fmt: skip
        reduce_s = all_reduce_s(owned.most[rows] * state.reduced / owned.shards[rows], group)
        exposed_s[rows] = np.maximum(reduce_s - hides[rows], reduce_s / FSDP_BLOCKS)
    return exposed_s


def _part_exposed_s(
    table: StrategyTable, owned: _Owned, alone_s: FloatArray, hides: FloatArray, fabric: Fabric,
    state: StateBytes,
) -> FloatArray:  # fmt: skip
    exposed_s = np.zeros(len(table))
    for code, sharding in enumerate(SHARDINGS):
        rows = np.flatnonzero((table.sharding == code) & (owned.shards > 1))
        if not len(rows):
            continue
        one_row = np.zeros(len(rows), dtype=np.int64)
        stride, most = owned.stride[rows], owned.most[rows]
        rounds = table.microbatches[rows] if sharding == "zero3" else 1
        exposed_s[rows] = (
            rounds
            * data_parallel_step(
                mid_s=alone_s[rows],
                backward_s=hides[rows],
                gradient_bytes=most * state.reduced,
                num_ranks=owned.shards[rows],
                ranks_per_node=np.maximum(fabric.devices_per_node // stride, 1),
                device_link=fabric.device_link.take(one_row),
                node_link=fabric.node_link.take(one_row),
                sharding=sharding,
                parameter_bytes=most * state.gathered,
                node_share_frac=1.0 / np.minimum(stride, fabric.devices_per_node),
            ).exposed_communication_s
        )
    return exposed_s


def _process_bytes(allocated: FloatArray, platform: Platform) -> FloatArray:
    """Upper bound of the process, from its live tensors."""
    added = process_memory(platform)
    reserved = allocated * (1.0 + added.fragmentation_high_frac)
    return np.asarray(reserved + added.workspace_bytes + added.context_high_bytes)
