"""Strategies as columns, with what their rows point into.

Shapes: one element per strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import get_args

import numpy as np
import numpy.typing as npt

from paceline.columns import take_rows
from paceline.model.graph.costs import Checkpointing, Platform
from paceline.model.graph.graph import IntArray
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.schedule.blocks import BlockCosts
from paceline.parallelism.split import SplitShape
from paceline.parallelism.strategy.complexity import complexity, kinds_of
from paceline.parallelism.strategy.strategy import Schedule, ScheduleKind, Sharding, Strategy
from paceline.parallelism.training_profile import TrainingProfile, find_training_profile
from paceline.values import dataclass

SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)
KINDS: tuple[ScheduleKind, ...] = get_args(ScheduleKind)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VariantKind:
    """One way to run the blocks, shared by many strategies.

    Attributes:
        shape: How ranks share each block.
        checkpointing: What is recomputed.
    """

    shape: SplitShape
    checkpointing: Checkpointing

    @property
    def num_ranks(self) -> int:
        """Ranks that share every block."""
        return self.shape.num_ranks

    def runs(self, strategy: Strategy) -> bool:
        """Whether its ranks are those that share a model under a strategy."""
        shape = SplitShape.of(
            strategy, whole_experts=self.shape.whole_experts, splits_words=self.shape.splits_words
        )
        return (self.shape, self.checkpointing) == (shape, strategy.recompute)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Variant(VariantKind):
    """The same with what it costs."""

    costs: BlockCosts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterLinks:
    """The cluster as strategies see it.

    Attributes:
        device_link: One row.
        node_link: One row: between domains, with the networks of all nodes of one.
        platform: Whose allocator and context count.
        profile: How the software that runs there behaves.
        nodes_per_domain: Nodes that ``device_link`` joins.
    """

    devices_per_node: int
    device_link: LinkTable
    node_link: LinkTable
    platform: Platform = "cuda"
    profile: TrainingProfile = field(default_factory=find_training_profile)
    nodes_per_domain: int = 1

    @property
    def devices_per_domain(self) -> int:
        """Devices that ``device_link`` joins."""
        return self.devices_per_node * self.nodes_per_domain

    @property
    def even_domain(self) -> int:
        """Devices of a domain that degrees divide: its nodes in a power of two."""
        return self.devices_per_node << (self.nodes_per_domain.bit_length() - 1)


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
        return take_rows(self, rows)

    def complexity(self, variants: Sequence[VariantKind]) -> IntArray:
        """Rank of each row by what it asks of a script; simpler ones are lower."""
        how = [self.variant, self.dp > 1, self.pp > 1, self.kind, self.sharding, self.shards > 0]
        _, first, of_row = np.unique(np.stack(how), axis=1, return_index=True, return_inverse=True)
        masks = [kinds_of(self.strategy(row, variants)) for row in first.tolist()]
        return np.asarray(complexity(masks)[of_row.ravel()])

    def strategy(self, row: int, variants: Sequence[VariantKind]) -> Strategy:
        """One row as a Strategy."""
        variant = variants[int(self.variant[row])]
        dp, kind = int(self.dp[row]), KINDS[int(self.kind[row])]
        num_copies = dp * variant.shape.sequence * variant.shape.experts
        shards = int(self.shards[row])
        return Strategy.from_degrees(
            dp=dp // shards if shards else dp,
            fsdp=shards or 1,
            tp=variant.shape.tensor,
            cp=variant.shape.sequence,
            ep=variant.shape.experts,
            pp=int(self.pp[row]),
            schedule=Schedule(
                kind=kind,
                num_microbatches=int(self.microbatches[row]),
                num_chunks=int(self.chunks[row]),
            ),
            sharding="none" if shards or num_copies == 1 else SHARDINGS[int(self.sharding[row])],
            recompute=variant.checkpointing,
            sequence_parallel=variant.shape.sequence_parallel,
            ulysses=variant.shape.ulysses,
            gathers_keys=variant.shape.gathers_keys,
        )
