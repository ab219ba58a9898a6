"""Strategies as columns, with what their rows point into.

Shapes: one element per strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import get_args

import numpy as np
import numpy.typing as npt

from paceline.parallel.blocks import BlockCosts
from paceline.parallel.links import LinkTable
from paceline.parallel.strategy import Schedule, ScheduleKind, Sharding, Strategy
from paceline.trace.costs import Checkpointing, Platform
from paceline.trace.graph import IntArray

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

    def runs(self, strategy: Strategy) -> bool:
        """Whether its ranks are those that share a model under a strategy."""
        own = (self.tensor_degree, self.context_degree, self.expert_degree,
               self.sequence_parallel, self.checkpointing)  # fmt: skip
        return own == (strategy.size("tp"), strategy.size("cp"), strategy.size("ep"),
                       strategy.sequence_parallel, strategy.recompute)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fabric:
    """The cluster as strategies see it.

    Attributes:
        devices_per_node: Devices of a node.
        device_link: One row.
        node_link: One row.
        platform: Whose allocator and context count.
        overlaps_gradients: Whether gradients are reduced during backward.
        gathers_ahead: Whether ranks that shard an optimizer gather what it updated during the next
            forward pass, and reduce gradients in buckets that grow with their number, as
            Megatron-LM's distributed optimizer does.
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
    platform: Platform = "cuda"
    overlaps_gradients: bool = True
    gathers_ahead: bool = False
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

    variant: IntArray
    dp: IntArray
    pp: IntArray
    chunks: IntArray
    kind: IntArray
    microbatches: IntArray
    point: IntArray
    sharding: IntArray
    shards: IntArray

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
