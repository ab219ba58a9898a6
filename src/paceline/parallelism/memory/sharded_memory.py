"""Peak memory of a rank that runs a whole pass, plain and sharded, moment by moment.

Sharding moves the peak: once optimizer state is shared, the end of forward may be the fullest
moment instead of the update. So the live bytes at every moment that can be the peak are shared
first, and their maximum is taken afterwards.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
SC 2020, section 5; Zhao et al., "PyTorch FSDP", VLDB 16(12), 2023: two blocks of parameters are
gathered at a time (one computing, one prefetched), and casts are made of the gathered block; its
gradients are whole until they are scattered. Li et al., "PyTorch Distributed", VLDB 13(12), 2020,
and torch/csrc/distributed/c10d/reducer.cpp (read 2026-11-26): DDP's reducer makes buckets for all
gradients with the model, and gradients lie beside them unless ``gradient_as_bucket_view`` is set.
Then the first ones of a step that are not yet reduced (``no_sync``) still do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.columns import take_rows
from paceline.model.graph.costs import GatheredShares, LoweredPass, Platform
from paceline.model.graph.graph import FloatArray, IntArray, Owner, Phase, monomials
from paceline.parallelism.strategy.strategy import Sharding
from paceline.parallelism.training_profile import TrainingProfile
from paceline.prediction.memory.peak import process_memory
from paceline.prediction.prediction import Points
from paceline.values import dataclass

#: Blocks that FSDP gathers one by one: a transformer's layers, or as many groups of modules.
FSDP_BLOCKS = 32
#: Share of the parameters that FSDP keeps gathered where nobody says of which block: that which
#: computes and the next one.
GATHERED_FRAC = 2.0 / FSDP_BLOCKS

_STATE = (Owner.OPTIMIZER_STATE, Owner.MASTER_WEIGHT)


#: Bytes of a weight that is gathered, in 16 bits.
_NARROW_BYTES = 2.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PeakMoments:
    """Live bytes at M moments that can be the peak, for P batch sizes; (M, P) each.

    Attributes:
        whole: Everything.
        states: Optimizer state and master weights.
        update: Workspace of the optimizer's update.
        parameters: Parameters and, in autocast, their narrow copies.
        platform: Whose allocator holds them.
        all_gradients: Of every parameter, which no moment need have at once.
        is_update: Which moments are the optimizer's, (M,); None where nobody says.
        gathered: What is whole at each of them where ranks split weights; None where nobody says.
        shares_on_host: Whether shares of weights and gradients that ranks split are on the host.
    """

    whole: FloatArray
    states: FloatArray
    update: FloatArray
    gradients: FloatArray
    parameters: FloatArray
    platform: Platform = "cuda"
    all_gradients: float = 0.0
    is_update: npt.NDArray[np.bool_] | None = None
    gathered: GatheredShares | None = None
    shares_on_host: bool = False

    def at(self, points: IntArray) -> PeakMoments:
        """The same at some points, (M, len(points)) each."""
        names = ("whole", "states", "update", "gradients", "parameters")
        return replace(self, **{name: getattr(self, name)[:, points] for name in names})

    def before_update(self) -> PeakMoments:
        """The moments of the passes alone; all of them where none is known to be the update."""
        if self.is_update is None or self.is_update.all():
            return self
        rows = np.flatnonzero(~self.is_update).astype(np.int64)
        names = ("whole", "states", "update", "gradients", "parameters")
        taken = {name: getattr(self, name)[rows] for name in names}
        gathered = None if self.gathered is None else self.gathered.take(rows)
        return replace(self, **taken, is_update=None, gathered=gathered)

    def staying_frac(self, stays_bytes: float) -> FloatArray:
        """Share of weights that so many bytes are, at moments that are no update, (M, 1)."""
        frac = stays_bytes / max(float(self.parameters.max(initial=0.0)), 1.0)
        is_pass = np.ones(len(self.whole)) if self.is_update is None else ~self.is_update
        return np.asarray(frac * is_pass[:, None])

    def whole_shares(self, *, wraps_each: bool) -> tuple[FloatArray, FloatArray]:
        """Shares of weights and of gradients that ranks hold whole beside their own, (M, 1) each.

        Args:
            wraps_each: Whether what lies beside the repeated blocks is gathered module by module.
        """
        if self.gathered is None:
            shape = (len(self.whole), 1)
            return np.full(shape, GATHERED_FRAC), np.zeros(shape)
        row = 0 if wraps_each else 1
        return self.gathered.weights[row][:, None], self.gathered.gradients[row][:, None]


def peak_moments(lowered: LoweredPass, points: Points) -> PeakMoments:
    """Evaluate the moments of one pass.

    ``points``: batch sizes and lengths, P of them.
    """
    powers = monomials(points.batch, points.seq).T
    by_owner = np.einsum("moc,cp->omp", lowered.memory.by_owner, powers)
    is_update, goes = _is_update(lowered), lowered.configuration.update == "in-backward"
    copies = lowered.memory.weight_copies @ powers
    return PeakMoments(
        whole=by_owner.sum(axis=0),
        states=by_owner[list(_STATE)].sum(axis=0),
        update=by_owner[Owner.WORKSPACE] * is_update[:, None],
        gradients=by_owner[Owner.GRADIENT],
        parameters=by_owner[Owner.PARAMETER] + copies,
        platform=lowered.configuration.platform,
        all_gradients=0.0 if goes else float(lowered.gradient_ready[:, 1].sum()),
        is_update=is_update,
        gathered=lowered.memory.gathered,
        shares_on_host=lowered.configuration.offload == "weights",
    )


def accumulated(moments: PeakMoments) -> PeakMoments:
    """The moments of any microbatch but the first: gradients of those before are there already.

    PyTorch adds to ``.grad`` until the optimizer has run; ranks that split gradients keep the sums
    of their shards.
    """
    most = np.maximum(moments.gradients.max(axis=0), moments.all_gradients)
    gradients = np.broadcast_to(most, moments.gradients.shape)
    whole = moments.whole - moments.gradients + gradients
    return replace(moments, whole=whole, gradients=gradients)


def saved_bytes(
    moments: PeakMoments,
    num_ranks: npt.ArrayLike,
    sharding: Sharding,
    *,
    accumulates: bool = False,
    keeps_gradients: bool = False,
    profile: TrainingProfile | None = None,
) -> FloatArray:
    """Live bytes that one rank's peak is below that of a device that keeps everything, (P,).

    Args:
        moments: Live bytes of one device.
        num_ranks: Ranks that share the state, one number or (P,).
        sharding: What they split.
        accumulates: Whether a rank runs several microbatches per step, and the one device that is
            compared runs one: what it saves is below zero where it splits little.
        keeps_gradients: Whether gradients of microbatches stay whole until they are reduced with
            those of the last.
        profile: Of the software, which may keep buckets; nothing beside the strategy without.
    """
    kept = KeptShares.of(num_ranks, sharding, profile)
    fills_buckets = profile is not None and profile.fills_buckets(accumulates=accumulates)
    keeps_all = profile is not None and profile.keeps_gradients
    has_views = (fills_buckets & (kept.buckets > 0)) | keeps_all
    of_rank = accumulated(moments) if accumulates else moments
    live = live_bytes(of_rank, kept)
    if np.any(has_views):
        live = np.where(has_views, filled_bytes(moments, kept), live)
    if accumulates and keeps_gradients:
        whole = replace(kept, gradient=np.ones_like(kept.gradient))
        live = np.maximum(live, live_bytes(of_rank.before_update(), whole))
    return np.asarray(moments.whole.max(axis=0) - live)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeptShares:
    """What a rank keeps of each part of the state that it has, of any shape.

    Attributes:
        parameter: Of parameters; what is gathered while blocks run comes on top.
        optimizer: Of optimizer state and of what the update needs.
        buckets: Of gradients, once more as buckets that are there from the start.
        wraps_each: Whether what lies beside the repeated blocks is gathered module by module.
        stays_bytes: Of gathered weights, what stays between forward and backward at most.
        starts_whole: Whether all parameters are there before ranks that split them keep shares.
    """

    parameter: FloatArray
    gradient: FloatArray
    optimizer: FloatArray
    buckets: FloatArray
    wraps_each: bool = False
    stays_bytes: float = 0.0
    starts_whole: bool = False

    def take(self, rows: IntArray) -> KeptShares:
        """Those of some ranks."""
        return take_rows(self, rows, alike=("wraps_each", "stays_bytes", "starts_whole"))

    def on_host(self) -> KeptShares:
        """With shares of weights and gradients in host memory, of what ranks split.

        Source: deepspeedai/DeepSpeed 0.18.2, runtime/zero/partition_parameters.py (``ds_tensor`` is
            made on ``remote_device``, the host's, and gathered from there) and stage3.py
            (``__param_id_to_grad_partition`` on the device of ``offload_optimizer``; read
            2026-11-28).
        """
        weights, gradients = (
            np.where(share < 1.0, 0.0, share) for share in (self.parameter, self.gradient)
        )
        return replace(self, parameter=weights, gradient=gradients)

    @classmethod
    def of(
        cls, num_ranks: npt.ArrayLike, sharding: Sharding, profile: TrainingProfile | None = None
    ) -> KeptShares:
        """Where so many ranks share what a level of sharding splits."""
        share = 1.0 / np.asarray(num_ranks, dtype=np.float64)
        whole = np.ones_like(share)
        has_buckets = profile is not None and profile.keeps_buckets and sharding == "none"
        return cls(
            parameter=share if sharding == "zero3" else whole,
            gradient=share if sharding in ("zero2", "zero3") else whole,
            optimizer=whole if sharding == "none" else share,
            buckets=np.where(has_buckets & (share < 1.0), 1.0, 0.0),
            wraps_each=profile is not None and profile.wraps_each,
            stays_bytes=0.0 if profile is None else _NARROW_BYTES * profile.live_parameters,
            starts_whole=profile is not None and profile.starts_whole,
        )


def live_bytes(moments: PeakMoments, kept: KeptShares) -> FloatArray:
    """Most live bytes of a rank that keeps shares of its state, (P,).

    Args:
        moments: Of a rank that keeps all of it.
        kept: Its shares, of one or of P ranks.
    """
    kept = kept.on_host() if moments.shares_on_host else kept
    weights, gradients = moments.whole_shares(wraps_each=kept.wraps_each)
    weights = np.maximum(weights, moments.staying_frac(kept.stays_bytes))
    parameter = np.minimum(1.0, kept.parameter + weights)
    live = moments.whole - (moments.states + moments.update) * (1.0 - kept.optimizer)
    live = live - moments.parameters * (1.0 - parameter)
    split_bytes = moments.gradients * (1.0 - kept.gradient)
    whole_bytes = moments.all_gradients * gradients * (kept.parameter < 1.0)
    live = live - np.maximum(split_bytes - whole_bytes, 0.0)
    live = live + moments.all_gradients * kept.buckets
    first = moments.parameters.max(axis=0) * (kept.parameter < 1.0) * kept.starts_whole
    return np.asarray(np.maximum(live.max(axis=0), first))


def filled_bytes(moments: PeakMoments, kept: KeptShares) -> FloatArray:
    """The same where gradients lie in buckets, and nowhere else, (P,)."""
    return live_bytes(accumulated(moments), replace(kept, buckets=np.zeros_like(kept.buckets)))


def saved_process_bytes(
    moments: PeakMoments,
    num_ranks: npt.ArrayLike,
    sharding: Sharding,
    *,
    accumulates: bool = False,
    keeps_gradients: bool = False,
    profile: TrainingProfile | None = None,
) -> tuple[FloatArray, FloatArray]:
    """The same of the peak of the process, median and bound, (P,) each.

    Fewer live bytes leave fewer gaps between them.

    Args:
        moments: Live bytes of one device.
        num_ranks: Ranks that share the state.
        sharding: What they split.
        accumulates: Whether a rank runs several microbatches per step, as `saved_bytes` has it.
        keeps_gradients: Whether it keeps their gradients whole, the same.
        profile: Of the software, the same.
    """
    added = process_memory(moments.platform)
    saved = saved_bytes(
        moments, num_ranks, sharding, accumulates=accumulates, keeps_gradients=keeps_gradients,
        profile=profile,
    )  # fmt: skip
    fracs = (added.fragmentation_mid_frac, added.fragmentation_high_frac)
    mid, high = (saved * (1.0 + frac) for frac in fracs)
    return mid, high


def _is_update(lowered: LoweredPass) -> npt.NDArray[np.bool_]:
    costs = lowered.costs
    if not len(costs.order):
        return np.zeros(len(lowered.memory.op), dtype=np.bool_)
    op = np.clip(lowered.memory.op, 0, len(costs.order) - 1)
    return np.asarray(costs.phase[costs.order[op]] == Phase.OPTIMIZER)
