"""Memory of the fullest rank of each strategy, and who owns which parameters.

Shapes: one element per strategy unless said otherwise; ranks padded to the longest pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.parallel.data_parallel import GATHERED_FRAC
from paceline.parallel.played import HeldByPipelines, Pipelines
from paceline.parallel.rank_program import StateBytes
from paceline.parallel.strategy import Sharding
from paceline.parallel.strategy_table import SHARDINGS, Fabric, StrategyTable, Variant
from paceline.predict.memory import process_bytes
from paceline.trace.graph import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Owned:
    """Parameters that equally many ranks hold alike, (num_strategies,) or with ranks of a pipeline.

    Attributes:
        parameters: Of each rank of the pipeline, (num_strategies, num_ranks).
        copies: Ranks that hold the same and reduce its gradients.
        shards: Of them, how many split what `SHARDINGS` says; the others are replicas of these.
        stride: Ranks between neighbours of them.
    """

    parameters: FloatArray
    copies: IntArray
    shards: IntArray
    stride: IntArray

    @property
    def most(self) -> FloatArray:
        """Parameters of the rank that has most, (num_strategies,)."""
        return np.asarray(self.parameters.max(axis=1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankMemory:
    """Bytes of the fullest rank, (num_strategies,), and who owns what.

    Attributes:
        state_bytes: Parameters, gradients and optimizer state.
        kept_bytes: Activations of microbatches in flight.
        allocated_bytes: Peak of its live tensors.
        process_mid_bytes: Peak of its process, median.
        process_high_bytes: The same, the bound that holds at a chance of 95 %.
        owned: What all replicas hold, and experts where expert ranks hold different ones.
    """

    state_bytes: FloatArray
    kept_bytes: FloatArray
    allocated_bytes: FloatArray
    process_mid_bytes: FloatArray
    process_high_bytes: FloatArray
    owned: tuple[Owned, ...]


def rank_memory(
    table: StrategyTable, variants: Sequence[Variant], pipelines: Pipelines, fabric: Fabric,
    state: StateBytes,
) -> RankMemory:  # fmt: skip
    """Memory of every strategy.

    Args:
        table: Strategies.
        variants: What their ``variant`` points into.
        pipelines: Those of the table.
        fabric: The cluster.
        state: Bytes per parameter of the training recipe.
    """
    of_row, held = pipelines.of_row, pipelines.held()
    owned = _owned(table, variants, held, of_row)
    shares = [_Shares.of(table, part) for part in owned]
    parts = list(zip(owned, shares, strict=True))
    state_bytes = np.sum([one.parameters * s.keeping(state)[:, None] for one, s in parts], axis=0)
    updating = np.sum([one.parameters * s.updating(state)[:, None] for one, s in parts], axis=0)
    kept_bytes = held.activation_bytes[of_row]
    passing = state_bytes + kept_bytes + held.transient_bytes[of_row]
    alone = np.flatnonzero(table.pp == 1)
    updating[alone, 0] += _lasting_bytes(table, variants, alone)
    passing[alone, 0] = _single_stage_bytes(table, variants, parts, state, alone)
    whole = np.maximum(passing, updating)
    largest = held.largest_bytes[of_row]
    _, mid, high = process_bytes(whole, 0.0, largest, platform=fabric.platform)
    fullest = (np.arange(len(table)), whole.argmax(axis=1))
    return RankMemory(
        state_bytes=state_bytes[fullest],
        kept_bytes=kept_bytes[fullest],
        allocated_bytes=whole[fullest],
        process_mid_bytes=mid.max(axis=1),
        process_high_bytes=high.max(axis=1),
        owned=owned,
    )


def splits(table: StrategyTable, level: Sharding) -> npt.NDArray[np.bool_]:
    """Whether ranks split what that level does; each level splits what those before it do."""
    return np.asarray(table.sharding >= SHARDINGS.index(level))


def _owned(
    table: StrategyTable, variants: Sequence[Variant], held: HeldByPipelines, of_row: IntArray
) -> tuple[Owned, ...]:
    """What all replicas hold, and experts, of which expert ranks hold different ones."""
    tensor, context, expert = (
        np.array(degrees)[table.variant]
        for degrees in zip(
            *((v.shape.tensor, v.shape.sequence, v.shape.experts) for v in variants), strict=True
        )
    )
    experts = held.experts[of_row] * (expert > 1)[:, None]
    shards = np.where(table.shards > 0, table.shards, table.dp) * context
    common = Owned(
        parameters=held.parameters[of_row] - experts,
        copies=table.dp * context * expert,
        shards=shards * expert,
        stride=tensor,
    )
    if not experts.any():
        return (common,)
    own = Owned(
        parameters=experts, copies=table.dp * context, shards=shards, stride=tensor * expert
    )
    return (common, own)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shares:
    """What a rank keeps of what it owns, by what data-parallel ranks split, (num_strategies,).

    Attributes:
        gathered: Of parameters while blocks run.
        weight: Of parameters while the optimizer runs.
        gradient: Of gradients.
        optimizer: Of optimizer state.
    """

    gathered: FloatArray
    weight: FloatArray
    gradient: FloatArray
    optimizer: FloatArray

    @classmethod
    def of(cls, table: StrategyTable, owned: Owned) -> _Shares:
        """What each strategy of a table has its ranks keep."""
        share = 1.0 / owned.shards
        gathered = np.minimum(1.0, share + GATHERED_FRAC)
        return cls(
            gathered=np.where(splits(table, "zero3"), gathered, 1.0),
            weight=np.where(splits(table, "zero3"), share, 1.0),
            gradient=np.where(splits(table, "zero2"), share, 1.0),
            optimizer=np.where(splits(table, "zero1"), share, 1.0),
        )

    def keeping(self, state: StateBytes) -> FloatArray:
        """Bytes per parameter while microbatches pass, all gradients being there."""
        return self.resident(state) + (
            (state.weight - state.gathered) * self.gathered + state.gradient * self.gradient
        )

    def resident(self, state: StateBytes) -> FloatArray:
        """Of them, what neither comes nor goes: without gradients and narrow copies."""
        return np.asarray(state.gathered * self.gathered + state.optimizer * self.optimizer)

    def updating(self, state: StateBytes) -> FloatArray:
        """Bytes per parameter while the optimizer runs.

        There are no narrow copies and nothing is gathered, but there are temporaries of what it
        updates.
        """
        optimizer = (state.optimizer + state.workspace) * self.optimizer
        return state.gathered * self.weight + state.gradient * self.gradient + optimizer


def _single_stage_bytes(
    table: StrategyTable, variants: Sequence[Variant], parts: Sequence[tuple[Owned, _Shares]],
    state: StateBytes, rows: IntArray,
) -> FloatArray:  # fmt: skip
    """Live bytes of ranks that run all blocks, at their fullest, (num_rows,).

    In the only microbatch gradients come as backward goes, while what forward kept goes; later ones
    add to those that are there. Gradients are split as soon as their block is done. Of blocks with
    experts and more, all are split as they are on average.
    """
    if not len(rows):
        return np.zeros(0)
    live, gradients, copies = (
        _at_rows(table, rows, [getattr(v.costs.peaks, name) for v in variants])
        for name in ("live_bytes", "gradient_bytes", "copy_bytes")
    )
    parameters = np.stack([owned.parameters[rows, 0] for owned, _ in parts])
    total = np.maximum(parameters.sum(axis=0), 1.0)

    def kept(name: str) -> FloatArray:
        share = np.stack([getattr(shares, name)[rows] for _, shares in parts])
        return np.asarray((parameters * share).sum(axis=0) / total)[:, None]

    of_variant = np.array([v.costs.peaks.all_gradient_bytes for v in variants])
    everything = of_variant[table.variant[rows]][:, None]
    is_only = (table.microbatches[rows] == 1)[:, None]
    passing = live - gradients - copies * (1.0 - kept("gathered"))
    passing = passing + kept("gradient") * np.where(is_only, gradients, everything)
    resident = np.sum(
        [own * shares.resident(state)[rows] for own, (_, shares) in zip(parameters, parts,
                                                                       strict=True)],
        axis=0,
    )  # fmt: skip
    return np.asarray(resident + passing.max(axis=1))


def _lasting_bytes(table: StrategyTable, variants: Sequence[Variant], rows: IntArray) -> FloatArray:
    """Activations that ranks which run all blocks still hold at the update, (num_rows,)."""
    return _at_rows(table, rows, [v.costs.peaks.lasting_bytes for v in variants])


def _at_rows(table: StrategyTable, rows: IntArray, values: Sequence[FloatArray]) -> FloatArray:
    """Values by variant and point, (num_points, …) each, as rows of the table have them."""
    whole: FloatArray = np.stack(values)[table.variant[rows], table.point[rows]]
    return whole
