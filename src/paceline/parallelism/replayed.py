"""Tier two of a rank's memory: its pass replayed allocation by allocation.

Tier one (`rank_memory`, `sharded_memory`) is arithmetic on sums for every candidate; this follows
one rank for finalists. What ranks split is replayed in tensors of a part of the size.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from paceline.model.belonging import is_weight_copy, parameter_of
from paceline.model.graph.costs import Configuration
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, Graph, Owner, Phase
from paceline.model.graph.program import BoolArray, Program
from paceline.model.lowering import Lifetimes, lifetimes_of, rewritten
from paceline.model.rewrite.master_weights import with_weight_format
from paceline.parallelism.memory.last_stage import stores_of_last_stage
from paceline.parallelism.memory.passing_weights import passing_weights
from paceline.parallelism.memory.sharded_memory import KeptShares
from paceline.parallelism.split import SplitShape, split
from paceline.parallelism.strategy.strategy import Sharding, Strategy
from paceline.prediction.memory.allocator import ReplayedPeak, replay
from paceline.prediction.memory.peak import process_memory
from paceline.values import dataclass

#: Platforms whose memory PyTorch's caching allocator hands out.
_CACHING = ("cuda", "rocm")
#: Ranks whose replay is kept: finalists come back as a goal moves.
_MOST_KEPT = 256
#: Ranks whose storages are kept, some hundred kilobytes each: one is asked for several batches.
_MOST_LIVED = 8


def can_replay(configuration: Configuration, strategy: Strategy) -> bool:
    """Whether one pass stands for every rank: stages hold several microbatches at once.

    What an optimizer on the host takes of a device in passing is not in the pass either, however
    that is said.
    """
    return strategy.size("pp") == 1 and _is_followed(configuration, strategy)


def can_replay_last_stage(configuration: Configuration, strategy: Strategy) -> bool:
    """Whether one pass stands for the last stage of a pipeline, and for no other.

    With 1F1B it runs each microbatch forward and backward before the next; with a single
    microbatch whatever the schedule is.
    """
    schedule = strategy.schedule
    is_alone = schedule.kind == "1f1b" or (
        schedule.num_microbatches == 1 and schedule.num_chunks == 1
    )
    is_whole = strategy.sharding != "zero3" and strategy.size("fsdp") == 1
    is_stage = strategy.size("pp") > 1 and is_alone and is_whole
    return is_stage and _is_followed(configuration, strategy)


def _is_followed(configuration: Configuration, strategy: Strategy) -> bool:
    """Whether PyTorch's allocator hands out all that a rank holds."""
    offloads = strategy.offloads_optimizer or configuration.offload == "optimizer"
    return configuration.platform in _CACHING and not offloads


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRank:
    """The process of one rank, replayed.

    Attributes:
        peak_bytes: Segments, library workspaces and the driver's context, where there is room.
        fits: Whether the pass runs through in the memory that is there; segments that are free are
            given back first.
        held_bytes: Segments in the memory that is there.
        beside_bytes: Of those, what they have beside the most that is live.
    """

    peak_bytes: float
    fits: bool
    held_bytes: float
    beside_bytes: float


def replayed_rank(
    graph: Graph, configuration: Configuration, strategy: Strategy, *, batch: float, seq: float,
    capacity_bytes: float = math.inf, varies: bool = False, wraps_each: bool = False,
    flat_states: bool = False, starts_whole: bool = False,
) -> ReplayedRank:  # fmt: skip
    """One pass of one rank, allocation by allocation; of a pipeline, of a rank of its last stage.

    Args:
        graph: One pass.
        configuration: How a rank runs it.
        strategy: One that `can_replay`, or of which that is so of the last stage.
        batch: Items per rank and microbatch.
        seq: Sequence length.
        capacity_bytes: Memory of a device.
        varies: Whether shorter sequences come before one of that length.
        wraps_each: Whether ranks that split weights gather what lies beside repeated blocks module
            by module.
        flat_states: Whether a rank has one tensor for each optimizer state of all its weights.
        starts_whole: Whether a rank that splits weights has all of them before.

    Raises:
        InvalidInputError: The graph cannot be split so many ways.
    """
    # Replicas hold what a rank alone holds.
    if strategy.sharding == "none" and strategy.num_ranks == strategy.size("dp"):
        strategy = Strategy(schedule=strategy.schedule, recompute=strategy.recompute)
    asked = (
        graph, configuration, strategy, wraps_each, starts_whole, batch, seq, varies, flat_states,
    )  # fmt: skip
    added = process_memory(configuration.platform)
    around_bytes = added.workspace_bytes + added.context_mid_bytes
    held = free = _replay(*asked, math.inf)
    peak_bytes = free.reserved_bytes + around_bytes
    if peak_bytes > capacity_bytes:
        held = _replay(*asked, capacity_bytes - around_bytes)
    return ReplayedRank(
        peak_bytes=peak_bytes, fits=held.fits, held_bytes=held.reserved_bytes,
        beside_bytes=held.reserved_bytes - held.allocated_bytes,
    )  # fmt: skip


@lru_cache(maxsize=_MOST_KEPT)
def _replay(
    graph: Graph, configuration: Configuration, strategy: Strategy, wraps_each: bool,
    starts_whole: bool, batch: float, seq: float, varies: bool, flat_states: bool,
    room_bytes: float,
) -> ReplayedPeak:  # fmt: skip
    """What a rank takes of so much room; how much makes no difference where it fits."""
    lived, streams, weights = _lived(graph, configuration, strategy, wraps_each)
    return replay(
        lived, batch=batch, seq=seq, varies=varies, streams=streams, flat_states=flat_states,
        capacity_bytes=room_bytes, first_bytes=weights if starts_whole else (),
        keeps_first=configuration.offload == "weights",
    )  # fmt: skip


@lru_cache(maxsize=_MOST_LIVED)
def _lived(
    graph: Graph, configuration: Configuration, strategy: Strategy, wraps_each: bool
) -> tuple[Lifetimes, list[int], FloatArray]:
    """Storages of a rank, the stream that allocates each, and weights that ranks split, whole."""
    how = configuration
    if strategy.recompute != "none":
        how = replace(how, checkpointing=strategy.recompute)
    if strategy.schedule.num_microbatches > 1:
        how = replace(how, accumulates=True)
    fsdp, context = strategy.size("fsdp"), strategy.size("cp")
    sharding: Sharding = "zero3" if fsdp > 1 else strategy.sharding
    shards = (fsdp if fsdp > 1 else strategy.size("dp")) * context
    rank = split(graph, SplitShape.of(strategy))
    program = rewritten(rank.graph, with_weight_format(graph, how))
    ranks = np.where(_of_experts(program, rank.is_expert), shards, shards * strategy.size("ep"))
    kept = KeptShares.of(ranks, sharding)
    lived = _shared(program, kept.on_host() if how.offload == "weights" else kept)
    is_split = (program.stores.owner == Owner.PARAMETER) & (kept.parameter < 1.0)
    weights: FloatArray = program.stores.num_bytes()[is_split, 0]
    streams = _streams(program, sharding)
    if sharding == "zero3":
        passing = passing_weights(program, how, wraps_each=wraps_each)
        lived, streams = passing.beside(lived, streams)
    if strategy.size("pp") > 1:
        rows = stores_of_last_stage(program, strategy.size("pp"))
        lived, streams = lived.take(rows), [streams[row] for row in rows.tolist()]
    return lived, streams, weights


def _streams(program: Program, sharding: Sharding) -> list[int]:
    """Stream that allocates each storage: gradients of ranks that split them have one of their own.

    What a reduce-scatter leaves is made on the stream that it runs on, so that the memory of
    gradients serves no activation once an update has freed them.

    Source: torch/distributed/fsdp, ``_runtime_utils.py`` (``_post_backward_hook``: the sharded
        gradient is made under ``state._post_backward_stream``) and, of ``fully_shard``,
        ``_fsdp_collectives.py`` (``foreach_reduce``, ``reduce_scatter_stream``); read 2026-11-27.
    """
    is_apart = (program.stores.owner == Owner.GRADIENT) & (sharding == "zero3")
    streams: list[int] = is_apart.astype(int).tolist()
    return streams


def _of_experts(program: Program, is_expert: BoolArray) -> BoolArray:
    """Storages of experts, which ranks of an expert group do not have alike."""
    parameter = parameter_of(program)
    held = np.pad(is_expert, (0, len(program.stores) - len(is_expert)))
    return np.asarray((parameter >= 0) & held[parameter])


def _shared(program: Program, kept: KeptShares) -> Lifetimes:
    """Storages of which a rank keeps its share; shares are of each storage."""
    owner, lived = program.stores.owner, lifetimes_of(program)
    birth = np.maximum(program.stores.birth, 0)
    of_update = (owner == Owner.WORKSPACE) & (program.ops.phase[birth] == Phase.OPTIMIZER)
    is_state = among(owner, (Owner.OPTIMIZER_STATE, Owner.MASTER_WEIGHT))
    share: FloatArray = np.ones(len(owner))
    is_weight = (owner == Owner.PARAMETER) | is_weight_copy(program)
    for rows, part in (
        (is_weight, kept.parameter), (owner == Owner.GRADIENT, kept.gradient),
        (is_state | of_update, kept.optimizer),
    ):  # fmt: skip
        share[rows] = part[rows]
    return replace(lived, num_bytes=lived.num_bytes * share[:, None])
