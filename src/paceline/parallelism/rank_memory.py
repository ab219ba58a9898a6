"""Memory of the fullest rank of each strategy, and who owns what of the training state.

Shapes: one element per strategy unless said otherwise; ranks padded to the longest pipeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.columns import take_rows
from paceline.model.graph.block_names import is_numbered
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.collectives.communicators import communicator_bytes
from paceline.parallelism.memory.sharded_memory import (
    GATHERED_FRAC,
    KeptShares,
    accumulated,
    filled_bytes,
    live_bytes,
)
from paceline.parallelism.memory.training_state import TrainingState
from paceline.parallelism.schedule.blocks import BlockCosts
from paceline.parallelism.schedule.bubbles import chunks_in_flight
from paceline.parallelism.schedule.pipeline_timing import Pipelines, played_alike
from paceline.parallelism.schedule.table import (
    SHARDINGS,
    ClusterLinks,
    StrategyTable,
    Variant,
    VariantKind,
)
from paceline.parallelism.strategy.strategy import Sharding
from paceline.parallelism.training_profile import TrainingProfile
from paceline.prediction.memory.peak import process_bytes
from paceline.values import dataclass

#: Of what the largest block saves, what a rank holds at least when it has made that again.
_LEAST_MADE_AGAIN_FRAC = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Owned:
    """What equally many ranks hold alike, (num_strategies,) or with ranks of a pipeline.

    Attributes:
        state: Of each rank of the pipeline, (num_parts, num_strategies, num_ranks).
        copies: Ranks that hold the same and reduce its gradients.
        shards: Of them, how many split what `SHARDINGS` says; the others are replicas of these.
        stride: Ranks between neighbours of them.
    """

    state: TrainingState
    copies: IntArray
    shards: IntArray
    stride: IntArray

    def take(self, rows: IntArray) -> Owned:
        """That of some strategies."""
        return Owned(
            state=TrainingState(self.state.values[:, rows]), copies=self.copies[rows],
            shards=self.shards[rows], stride=self.stride[rows],
        )  # fmt: skip

    @property
    def most(self) -> TrainingState:
        """Each part of the rank that has most of it, (num_parts, num_strategies)."""
        return TrainingState(self.state.values.max(axis=2))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankMemory:
    """Bytes of the fullest rank, (num_strategies,), and who owns what.

    Attributes:
        state_bytes: Parameters, gradients and optimizer state.
        kept_bytes: Activations of microbatches in flight.
        allocated_bytes: Peak of its live tensors.
        last_frac: Of that, what the last stage has.
        communicator_bytes: What collectives hold beside them.
        parameter_bytes: Parameters as the rank keeps them.
        optimizer_state_bytes: Optimizer state likewise.
        process_mid_bytes: Peak of its process, median.
        process_high_bytes: The same, the bound that holds at a chance of 95 %.
        owned: What all replicas hold, and experts where expert ranks hold different ones.
    """

    state_bytes: FloatArray
    kept_bytes: FloatArray
    allocated_bytes: FloatArray
    last_frac: FloatArray
    communicator_bytes: FloatArray
    parameter_bytes: FloatArray
    optimizer_state_bytes: FloatArray
    process_mid_bytes: FloatArray
    process_high_bytes: FloatArray
    owned: tuple[Owned, ...]

    def take(self, rows: IntArray) -> RankMemory:
        """That of some strategies."""
        taken = take_rows(self, rows, alike=("owned",))
        return replace(taken, owned=tuple(one.take(rows) for one in self.owned))


def rank_memory(
    table: StrategyTable, variants: Sequence[Variant], pipelines: Pipelines,
    fabric: ClusterLinks, *,
    has_optimizer: bool = True,
) -> RankMemory:  # fmt: skip
    """Memory of every strategy.

    Args:
        table: Strategies.
        variants: What their ``variant`` points into.
        pipelines: Those of the table.
        fabric: The cluster.
        has_optimizer: Whether devices keep the optimizer, or a host does.
    """
    of_row, held = pipelines.of_row, pipelines.held()
    owned = _owned(
        table, variants, held.state.values[:, :, of_row],
        shards_experts=fabric.profile.shards_experts,
    )  # fmt: skip
    shares = [_Shares.of(table, part, has_optimizer=has_optimizer) for part in owned]
    parts = list(zip(owned, shares, strict=True))
    state_bytes = np.sum([s.keeping(one.state) for one, s in parts], axis=0)
    updating = np.sum([s.updating(one.state) for one, s in parts], axis=0)
    parameters = np.sum([one.state.weight * s.weight for one, s in parts], axis=0)
    optimizer = np.sum([one.state.optimizer * s.optimizer for one, s in parts], axis=0)
    kept_bytes = held.activation_bytes[of_row]
    running = state_bytes + kept_bytes + held.transient_bytes[of_row]
    if not fabric.profile.keeps_gradients:
        # The first gradients come as what its forward kept goes.
        gradients = np.sum([s.gradient * one.state.gradient for one, s in parts], axis=0)
        running -= np.minimum(gradients, held.first_bytes[of_row])
    bucketed = [_bucketed(table, variants, one, fabric.profile) for one in owned]
    buckets = np.sum([p.state.gradient * has for p, has in zip(owned, bucketed, strict=True)], 0)
    is_filled = fabric.profile.fills_buckets(accumulates=False) & (table.microbatches == 1)
    whole = np.maximum(running, updating) + buckets * ~is_filled[:, None]
    count = np.zeros_like(whole)
    alone = np.flatnonzero(table.pp == 1)
    whole[alone, 0], count[alone, 0] = _single_stage(
        table, variants, _kept_by_rows(parts, bucketed, alone, fabric.profile), alone,
        is_filled=is_filled, buffered=fabric.profile.keeps_gradients,
    )  # fmt: skip
    largest = held.largest_bytes[of_row]
    _, mid, high = process_bytes(whole, count, largest, platform=fabric.platform)
    fullest = (np.arange(len(table)), whole.argmax(axis=1))
    last_bytes = whole[np.arange(len(table)), table.pp - 1]
    joined = joined_bytes(table, variants, fabric)
    return RankMemory(
        state_bytes=state_bytes[fullest],
        kept_bytes=kept_bytes[fullest],
        allocated_bytes=whole[fullest],
        last_frac=last_bytes / whole[fullest],
        communicator_bytes=joined,
        parameter_bytes=parameters[fullest],
        optimizer_state_bytes=optimizer[fullest],
        process_mid_bytes=mid.max(axis=1) + joined,
        process_high_bytes=high.max(axis=1) + joined,
        owned=owned,
    )


def joined_bytes(
    table: StrategyTable, kinds: Sequence[VariantKind], fabric: ClusterLinks
) -> FloatArray:
    """What communicators hold of each rank, one for each axis of the mesh, (num_strategies,)."""
    shapes = [(one.shape.tensor, one.shape.sequence, one.shape.experts) for one in kinds]
    shards = np.maximum(table.shards, 1)
    outer = np.stack([table.dp // shards, shards, table.pp], axis=1)
    sizes = np.hstack([outer, np.array(shapes, dtype=np.int64)[table.variant]])
    each = communicator_bytes(sizes, fabric.device_link.num_channels[0])
    return np.asarray(each.sum(axis=1))


def least_rank_bytes(
    table: StrategyTable, variants: Sequence[Variant], recomputes: npt.NDArray[np.bool_],
    profile: TrainingProfile, *,
    has_optimizer: bool = True,
) -> FloatArray:  # fmt: skip
    """What the fullest rank of each strategy holds at least: the mean of all stages.

    Parameters and optimizer state are there at all times, and gradients while stages update.
    Beside them lie activations of the microbatches in flight; the gradients too, but where the
    first ones come as activations of the only microbatches go. A rank without others may have freed
    some of its gradients.

    Args:
        table: Strategies.
        variants: What their ``variant`` points into, of ranks that recompute nothing.
        recomputes: Which strategies do, (num_strategies,).
        profile: How the software behaves.
        has_optimizer: Whether devices keep the optimizer, or a host does.
    """
    owned = evenly_owned(table, variants)
    shares = [_Shares.of(table, part, has_optimizer=has_optimizer) for part in owned]
    parts = list(zip(owned, shares, strict=True))
    lasting = np.sum(
        [o.state.weight * s.weight + o.state.optimizer * s.optimizer for o, s in parts], axis=0
    )
    gradients = np.sum([o.state.gradient * s.gradient for o, s in parts], axis=0)[:, 0]
    gradients = gradients * (table.pp > 1)
    activations = np.zeros(len(table))
    for rows, repeats in ((~recomputes, False), (recomputes, True)):
        part = np.flatnonzero(rows)
        activations[part] = _least_activations(
            table.take(part), [one.costs for one in variants], profile, repeats=repeats
        )
    are_beside = profile.keeps_gradients | (table.microbatches > table.pp)
    beside = np.where(are_beside, gradients + activations, np.maximum(gradients, activations))
    return np.asarray(lasting[:, 0] + beside)


def _least_activations(
    table: StrategyTable, costs: Sequence[BlockCosts], profile: TrainingProfile, *, repeats: bool
) -> FloatArray:
    """Activations that ranks hold at least, mean over ranks, (num_strategies,).

    What layers save, or if they are made again, what blocks hand on to them, of as many
    microbatches as are in flight, and half of what the largest makes again. No stage has more of
    them than the work allows that it may have: stages of equal cost take no more than their share
    of all work and one block, as that much suffices to fill them one after the other; repeating
    adds no more than forward.

    Args:
        table: Strategies.
        costs: Of ranks that recompute nothing, for each variant.
        profile: How the software cuts stages.
        repeats: Whether layers are made again.
    """
    is_layer = np.array([is_numbered(name) for name in costs[0].names])
    is_layer |= ~is_layer.any()
    num_stages, place = table.pp * table.chunks, (table.variant, table.point)
    saved = np.stack([one.saved_bytes for one in costs])
    every = np.stack([one.handed_bytes for one in costs]) if repeats else saved
    kept = every[..., is_layer]
    whole = kept.sum(axis=2)
    if profile.cut == "layers":
        most = (kept.max(axis=2) * is_layer.sum())[place] / num_stages
    else:
        work_s = np.stack([one.work_s for one in costs])
        took_s = work_s + repeats * np.stack([one.forward_work_s for one in costs])
        share_s = took_s.sum(axis=2)[place] / num_stages + took_s.max(axis=2)[place]
        most = (kept / np.maximum(work_s[..., is_layer], 1e-300)).max(axis=2)[place] * share_s
    held = whole[place] * _least_in_flight(table, most / np.maximum(whole[place], 1e-300))
    held = np.where(num_stages > 1, held, every.sum(axis=2)[place])
    again = saved.max(axis=2)[place] / table.pp * (_LEAST_MADE_AGAIN_FRAC * repeats)
    return np.asarray(held + again)


def _least_in_flight(table: StrategyTable, most_frac: FloatArray) -> FloatArray:
    """Whole microbatches that ranks hold at least, mean over ranks, (num_strategies,).

    Stages with the fewest in flight have as much of each as they can, ``most_frac``.
    """
    found = np.zeros(len(table))
    keys = np.column_stack((table.pp, table.chunks, table.kind, table.microbatches))
    for rows, (pp, _, _, _), schedule in played_alike(keys):
        flying = np.sort(chunks_in_flight(schedule, num_ranks=pp), axis=None)
        most = np.minimum(most_frac[rows, None], 1.0)
        frac = np.clip(1.0 - most * np.arange(len(flying)), 0.0, most)
        found[rows] = (frac * flying).sum(axis=1) / pp
    return found


def evenly_owned(table: StrategyTable, variants: Sequence[Variant]) -> tuple[Owned, ...]:
    """What ranks hold alike where stages share all state evenly, which is as little as can be."""
    whole = np.stack([one.costs.state.values.sum(axis=-1) for one in variants], axis=-1)
    return _owned(table, variants, (whole[..., table.variant] / table.pp)[..., None])


def splits(table: StrategyTable, level: Sharding) -> npt.NDArray[np.bool_]:
    """Whether ranks split what that level does; each level splits what those before it do."""
    return np.asarray(table.sharding >= SHARDINGS.index(level))


def _bucketed(
    table: StrategyTable, variants: Sequence[Variant], owned: Owned, profile: TrainingProfile
) -> FloatArray:
    """Whether replicas have buckets for gradients, (num_strategies, 1).

    DDP does not take weights that tensor ranks split; they are reduced without buckets.
    """
    tensor = np.array([one.shape.tensor for one in variants])[table.variant]
    found = (owned.copies > 1) & (table.sharding == SHARDINGS.index("none")) & (tensor == 1)
    return np.asarray((found & profile.keeps_buckets)[:, None], dtype=np.float64)


def _owned(
    table: StrategyTable, variants: Sequence[Variant], state: FloatArray, *,
    shards_experts: bool = True,
) -> tuple[Owned, ...]:  # fmt: skip
    """What all replicas hold, and experts, of which expert ranks hold different ones."""
    tensor, context, expert = (
        np.array(degrees)[table.variant]
        for degrees in zip(
            *((v.shape.tensor, v.shape.sequence, v.shape.experts) for v in variants), strict=True
        )
    )
    shards = np.where(table.shards > 0, table.shards, table.dp) * context
    common, own = (TrainingState(state[:, part]) for part in range(2))
    every = Owned(
        state=common,
        copies=table.dp * context * expert,
        shards=shards * expert,
        stride=tensor,
    )
    if not own.parameters.any():
        return (every,)
    return (
        every,
        Owned(
            state=own,
            copies=table.dp * context,
            shards=shards if shards_experts else np.ones_like(shards),
            stride=tensor * expert,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Shares:
    """What a rank keeps of what it owns, by what data-parallel ranks split, (num_strategies, 1).

    Attributes:
        gathered: Of parameters while blocks run.
        weight: Of parameters while the optimizer runs.
        optimizer: Of optimizer state.
    """

    gathered: FloatArray
    weight: FloatArray
    gradient: FloatArray
    optimizer: FloatArray

    @classmethod
    def of(cls, table: StrategyTable, owned: Owned, *, has_optimizer: bool) -> _Shares:
        """What each strategy of a table has its ranks keep."""
        share = 1.0 / owned.shards
        gathered = np.minimum(1.0, share + GATHERED_FRAC)

        def kept(level: Sharding, split: FloatArray) -> FloatArray:
            return np.where(splits(table, level), split, 1.0)[:, None]

        return cls(
            gathered=kept("zero3", gathered),
            weight=kept("zero3", share),
            gradient=kept("zero2", share),
            optimizer=kept("zero1", share) * has_optimizer,
        )

    def keeping(self, state: TrainingState) -> FloatArray:
        """Bytes while microbatches pass, all gradients being there."""
        parameters = (state.weight + state.copy) * self.gathered
        return np.asarray(
            parameters + state.gradient * self.gradient + state.optimizer * self.optimizer
        )

    def updating(self, state: TrainingState) -> FloatArray:
        """Bytes while the optimizer runs.

        There are no narrow copies and nothing is gathered, but there are temporaries of what it
        updates.
        """
        optimizer = (state.optimizer + state.workspace) * self.optimizer
        return np.asarray(state.weight * self.weight + state.gradient * self.gradient + optimizer)


def _single_stage(
    table: StrategyTable, variants: Sequence[Variant], kept: KeptShares, rows: IntArray, *,
    is_filled: npt.NDArray[np.bool_], buffered: bool,
) -> tuple[FloatArray, FloatArray]:  # fmt: skip
    """Live bytes of ranks that run all blocks, at their fullest, and of how many storages.

    In the only microbatch gradients come as backward goes, while what forward kept goes; later ones
    add to those that are there, as all do where gradients lie in buffers. Gradients are split as
    soon as their block is done. At each moment experts and others are there in the shares that they
    have of the whole.

    Returns:
        (num_rows,) each.
    """
    live, count = np.zeros(len(rows)), np.zeros(len(rows))
    for number, variant in enumerate(variants):
        mine = np.flatnonzero(table.variant[rows] == number)
        if not len(mine):
            continue
        point, costs = table.point[rows[mine]], variant.costs
        moments, shares = costs.moments.at(point), kept.take(mine)
        is_first = (table.microbatches[rows[mine]] == 1) & (not buffered)
        once, again = (live_bytes(one, shares) for one in (moments, accumulated(moments)))
        in_buckets = is_filled[rows[mine]] & (shares.buckets > 0)
        filled = filled_bytes(moments, shares)
        live[mine] = np.select([in_buckets, is_first], [filled, once], again)
        count[mine] = costs.num_allocations[point]
    return live, count


def _kept_by_rows(
    parts: Sequence[tuple[Owned, _Shares]], bucketed: Sequence[FloatArray], rows: IntArray,
    profile: TrainingProfile,
) -> KeptShares:  # fmt: skip
    """Shares that ranks of one stage keep of all that they own, (num_rows,)."""

    def kept(shares: Sequence[FloatArray], values: Sequence[FloatArray]) -> FloatArray:
        """The mean share of what several parts keep, by their bytes."""
        whole = np.sum(values, axis=0)
        own = np.sum([s * value for s, value in zip(shares, values, strict=True)], axis=0)
        found = np.where(whole > 0, own / np.maximum(whole, 1e-300), shares[0])
        return np.asarray(found[rows, 0])

    gradients = [o.state.gradient for o, _ in parts]
    return KeptShares(
        parameter=kept(
            [s.weight for _, s in parts], [o.state.weight + o.state.copy for o, _ in parts]
        ),
        gradient=kept([s.gradient for _, s in parts], gradients),
        optimizer=kept(
            [s.optimizer for _, s in parts],
            [o.state.optimizer + o.state.workspace for o, _ in parts],
        ),
        buckets=kept(bucketed, gradients),
        wraps_each=profile.wraps_each,
        starts_whole=profile.starts_whole,
    )
