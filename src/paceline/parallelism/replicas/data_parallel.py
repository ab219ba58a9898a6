"""Data parallel, plain and sharded: the planner's hot path, one array element per candidate.

Gradients become ready while backward runs; they are sent in buckets as soon as a bucket is full,
and what is still on the wire when backward ends is exposed. See ``docs/explanation/scaling.md``.

Sources:
    Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
    VLDB 13(12), 2020 (buckets, overlap); Rajbhandari et al., "ZeRO: Memory Optimizations Toward
    Training Trillion Parameter Models", SC 2020 (what is gathered and scattered); Zhao et al.,
    "PyTorch FSDP", VLDB 16(12), 2023 (prefetch).
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import numpy.typing as npt

from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.failures import step_variation_frac, straggler_factor
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.collectives.times import (
    RankGroup,
    all_gather_s,
    all_reduce_s,
    reduce_scatter_s,
    send_recv_s,
)
from paceline.parallelism.memory.sharded_memory import FSDP_BLOCKS
from paceline.parallelism.replicas.host_shares import HostTraffic
from paceline.parallelism.strategy.strategy import GradientSync, Sharding
from paceline.values import dataclass

#: PyTorch's default bucket (``bucket_cap_mb=25``, binary) and its first, smaller one.
BUCKET_BYTES = 25 * 2**20
FIRST_BUCKET_BYTES = 2**20


#: Moments of backward at which a profile keeps the timeline.
_MAX_MOMENTS = 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GradientProfile:
    """When buckets of gradients become ready during backward.

    Attributes:
        time_frac: Share of backward that has passed when a bucket is full, (num_moments,).
        left_frac: Share of all gradient bytes in that bucket and the later ones, (num_moments,).
        last_frac: Share of all gradient bytes in the last bucket.
    """

    time_frac: FloatArray
    left_frac: FloatArray
    num_buckets: int
    last_frac: float

    @classmethod
    def from_tensors(cls, ready_frac: FloatArray, tensor_bytes: FloatArray) -> GradientProfile:
        """Fill buckets as DDP does: in order of readiness, closed once the cap is reached.

        Args:
            ready_frac: Share of backward passed when each gradient is ready, rising,
                (num_tensors,).
            tensor_bytes: Its bytes, (num_tensors,).
        """
        ends = bucket_ends(tensor_bytes)
        filled = np.cumsum(tensor_bytes)[ends]
        starts = np.concatenate([[0.0], filled[:-1]])
        kept = distinct(np.linspace(0, len(ends) - 1, _MAX_MOMENTS).round().astype(int))
        # Gradients of rows alone have no tensor of their own.
        whole = filled[-1] or 1.0
        return cls(
            time_frac=ready_frac[ends][kept],
            left_frac=1.0 - starts[kept] / whole,
            num_buckets=len(ends),
            last_frac=float(1.0 - starts[-1] / whole),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DataParallelStep:
    """Steps of many candidates; every array is (num_candidates,).

    Attributes:
        mid_s: Step time with communication.
        exposed_communication_s: Of it, communication that nothing hides, and waiting for the
            slowest rank, which shows up inside the collectives.
        communication_s: All communication, hidden or not, and that waiting.
    """

    mid_s: FloatArray
    exposed_communication_s: FloatArray
    communication_s: FloatArray


def data_parallel_step(
    *,
    mid_s: npt.ArrayLike,
    backward_s: npt.ArrayLike,
    gradient_bytes: npt.ArrayLike,
    num_ranks: npt.ArrayLike,
    ranks_per_node: npt.ArrayLike,
    device_link: LinkTable,
    node_link: LinkTable,
    sharding: Sharding = "none",
    parameter_bytes: npt.ArrayLike = 0.0,
    gradient_sync: GradientSync = "all_reduce",
    profile: GradientProfile | None = None,
    node_share_frac: npt.ArrayLike = 1.0,
    bucket_bytes: npt.ArrayLike = BUCKET_BYTES,
    forward_s: npt.ArrayLike = 0.0,
    num_reductions: npt.ArrayLike = 1.0,
    host: HostTraffic | None = None,
) -> DataParallelStep:
    """Step time of data-parallel training at a constant batch per device.

    Candidates whose ranks must cross a missing link take for ever (``inf``, efficiency 0).
    With gradient accumulation, pass the whole step and the backward of the last microbatch.

    Args:
        mid_s: Step time of one device alone.
        backward_s: Of it, the backward part that communication can hide behind.
        gradient_bytes: Gradients as they are reduced.
        num_ranks: Devices in all.
        ranks_per_node: Devices used per node; a group smaller than that stays in one node.
        device_link: Link inside the node, one row per candidate.
        node_link: Link between nodes, one row per candidate.
        sharding: What the ranks split.
        parameter_bytes: Parameters as they are gathered (ZeRO-1 to 3) or broadcast
            (single-process).
        gradient_sync: How gradients meet.
        profile: When gradients become ready; uniform by default.
        node_share_frac: Share of the node's network that these ranks have for themselves.
        bucket_bytes: Gradients that are reduced at a time.
        forward_s: Forward that the closing gather of ZeRO 1 and 2 hides behind; 0 hides nothing.
        num_reductions: How often in a step gradients are reduced, and blocks of ZeRO-3 gathered;
            ``mid_s`` and ``backward_s`` are then those of one of them.
        host: What shares of ZeRO-3 take on the host link, each time; None if they are on devices.
    """
    group = RankGroup.of(
        num_ranks, ranks_per_node, device_link, node_link, node_share_frac=node_share_frac
    )
    work = _Work.of(
        group, mid_s, backward_s, gradient_bytes, parameter_bytes, bucket_bytes, forward_s,
        num_reductions,
    )  # fmt: skip
    if gradient_sync != "all_reduce":
        exposed_s = communication_s = _central_s(work, gradient_sync)
    elif sharding == "zero3":
        exposed_s, communication_s = _fully_sharded(work, host)
    else:
        exposed_s, communication_s = _bucketed(work, sharding, profile)
    alone_s = work.alone_s * work.num_reductions
    waiting_s = alone_s * (straggler_factor(group.num_ranks, step_variation_frac()) - 1.0)
    step_s = alone_s + exposed_s + waiting_s
    return DataParallelStep(
        mid_s=step_s,
        exposed_communication_s=exposed_s + waiting_s,
        communication_s=communication_s + waiting_s,
    )


def summed_over_replicas_s(
    shard_bytes: npt.ArrayLike,
    *,
    backward_s: npt.ArrayLike,
    num_replicas: npt.ArrayLike,
    stride: npt.ArrayLike,
    ranks_per_node: npt.ArrayLike,
    device_link: LinkTable,
    node_link: LinkTable,
) -> tuple[FloatArray, FloatArray]:
    """Summing the gradients of shards over replicas of them: all of it, and what nothing hides.

    It happens once per step, on other links than what shards exchange, and hides behind backward
    but for the last block. One replica has nothing to sum.

    Args:
        shard_bytes: Gradients of one shard, as they are reduced.
        backward_s: Backward that it hides behind.
        num_replicas: Copies of each shard.
        stride: Ranks between copies of one shard, which use the node's network at the same time.
        ranks_per_node: Ranks in one node.
        device_link: Link inside the node, one row per candidate.
        node_link: Link between nodes, one row per candidate.
    """
    apart, per_node = np.asarray(stride), np.asarray(ranks_per_node)
    group = RankGroup.of(
        num_replicas, np.maximum(per_node // apart, 1), device_link, node_link,
        node_share_frac=1.0 / np.minimum(apart, per_node),
    )  # fmt: skip
    size = np.broadcast_to(np.asarray(shard_bytes, dtype=np.float64), group.num_ranks.shape)
    reduce_s = all_reduce_s(size, group)
    left_s = np.maximum(reduce_s - np.asarray(backward_s), reduce_s / FSDP_BLOCKS)
    return reduce_s, np.where(group.num_ranks > 1, left_s, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """What ranks compute and have to send each other, (num_candidates,) each.

    Attributes:
        alone_s: Step of one device alone.
        backward_s: Of it, the backward part that communication can hide behind.
        gradient_bytes: Gradients as they are reduced.
        parameter_bytes: Parameters as they are gathered or broadcast.
        bucket_bytes: Gradients that are reduced at a time.
        forward_s: Forward that the closing gather hides behind.
        num_reductions: How often in a step gradients are reduced.
    """

    group: RankGroup
    alone_s: FloatArray
    backward_s: FloatArray
    gradient_bytes: FloatArray
    parameter_bytes: FloatArray
    bucket_bytes: FloatArray
    forward_s: FloatArray
    num_reductions: FloatArray

    @classmethod
    def of(cls, group: RankGroup, *columns: npt.ArrayLike) -> _Work:
        """The columns in the order of the attributes, broadcast to one element per candidate."""
        same = (
            np.broadcast_to(np.asarray(column, dtype=np.float64), group.num_ranks.shape)
            for column in columns
        )
        names = (field.name for field in fields(cls) if field.name != "group")
        return cls(group=group, **dict(zip(names, same, strict=True)))


def _bucketed(
    work: _Work, sharding: Sharding, profile: GradientProfile | None
) -> tuple[FloatArray, FloatArray]:
    """Exposed and whole communication of DDP, or of ZeRO 1 and 2 with their closing gather.

    Gradients may be reduced several times in a step; what was updated is gathered once.
    """
    reduce = all_reduce_s if sharding == "none" else reduce_scatter_s
    if profile is None:
        num_buckets = np.maximum(np.ceil(work.gradient_bytes / work.bucket_bytes), 1.0)
    else:
        num_buckets = np.full_like(work.gradient_bytes, profile.num_buckets)
    if sharding == "zero2":  # FSDP scatters the gradients of a block at once
        num_buckets = np.minimum(num_buckets, float(FSDP_BLOCKS))
    bucket_s = reduce(work.gradient_bytes / num_buckets, work.group)
    total_s = num_buckets * bucket_s
    if profile is None:
        first_full_s = work.backward_s / num_buckets
        finish_s = np.maximum(first_full_s + total_s, work.backward_s + bucket_s)
    else:
        last_s = reduce(work.gradient_bytes * profile.last_frac, work.group)
        finish_s = _queue_end_s(work.backward_s, total_s, last_s, profile)
    reduced_s = (finish_s - work.backward_s) * work.num_reductions
    total_s = total_s * work.num_reductions
    if sharding == "none":
        return reduced_s, total_s
    gather_s = all_gather_s(work.parameter_bytes, work.group)
    # What the first layers compute with has nothing to hide behind.
    left_s = np.maximum(gather_s - work.forward_s, gather_s / num_buckets)
    return reduced_s + np.where(work.forward_s > 0, left_s, gather_s), total_s + gather_s


def _queue_end_s(
    backward_s: FloatArray, total_s: FloatArray, last_s: FloatArray, profile: GradientProfile
) -> FloatArray:
    """When the last bucket has been reduced, counted from the start of backward.

    Buckets queue on one stream, so the end is the latest of *ready now, and this bucket and all
    later ones still to send*, over all buckets.
    """
    finish_s = profile.time_frac[-1] * backward_s + last_s
    for time_frac, left_frac in zip(profile.time_frac[:-1], profile.left_frac[:-1], strict=True):
        finish_s = np.maximum(finish_s, time_frac * backward_s + left_frac * total_s)
    return np.asarray(np.maximum(finish_s, backward_s))


def _fully_sharded(work: _Work, host: HostTraffic | None) -> tuple[FloatArray, FloatArray]:
    """Exposed and whole communication of FSDP with prefetch of one block.

    Each block is gathered for forward, gathered again for backward, and its gradients are
    scattered. The first gather and the last scatter have nothing to hide behind; in between a
    block's communication hides behind the compute of its neighbour, as far as that lasts. Shares on
    the host are copied before a gather and after a scatter, while neighbours use the network.
    """
    blocks, forward_s = float(FSDP_BLOCKS), work.alone_s - work.backward_s
    gather_s = all_gather_s(work.parameter_bytes / blocks, work.group)
    scatter_s = reduce_scatter_s(work.gradient_bytes / blocks, work.group)
    sent_s, bare_s = gather_s + scatter_s, gather_s + scatter_s
    before_s, behind_s, every_s = gather_s, sent_s, sent_s + gather_s
    if host is not None:
        block = host.per_block(blocks)
        before_s, behind_s = block.forward_s(gather_s), block.backward_s(sent_s)
        bare_s, every_s = bare_s + block.every_s - block.weights_up_s, every_s + block.every_s
    forward_gap_s = np.maximum(before_s - forward_s / blocks, 0.0)
    backward_gap_s = np.maximum(behind_s - work.backward_s / blocks, 0.0)
    exposed_s = bare_s + (blocks - 1.0) * (forward_gap_s + backward_gap_s)
    num_rounds = work.num_reductions
    return num_rounds * exposed_s, num_rounds * blocks * every_s


def _central_s(work: _Work, gradient_sync: GradientSync) -> FloatArray:
    """What everybody exchanges with one place, none of it hidden.

    ``DataParallel`` sends the parameters to every device before forward and sums all gradients on
    the first device after backward, in one process and hence in one node. A parameter server takes
    every node's gradients in and hands parameters out through its one network link.
    """
    group, is_spread = work.group, work.group.num_nodes > 1
    if gradient_sync == "single_process":
        parameters_s = all_gather_s(work.parameter_bytes, group)
        total_s = parameters_s + reduce_scatter_s(work.gradient_bytes, group)
        return np.where(is_spread, np.inf, total_s)
    pair = RankGroup.of(2.0, np.where(is_spread, 1.0, 2.0), group.device, group.node)
    callers = np.where(is_spread, group.num_nodes, group.num_ranks)
    exchange_s = sum(send_recv_s(b, pair) for b in (work.gradient_bytes, work.parameter_bytes))
    return np.where(group.num_ranks > 1, callers * exchange_s, 0.0)


def bucket_ends(
    tensor_bytes: FloatArray, bucket_bytes: float = BUCKET_BYTES
) -> npt.NDArray[np.int64]:
    """Index of the last tensor of each of DDP's buckets: a short loop over tensors, once per model.

    Args:
        tensor_bytes: Gradients in the order they become ready, (num_tensors,).
        bucket_bytes: Size at which a bucket is closed (``bucket_cap_mb``); the first one closes
            at 1 MiB.
    """
    ends, filled, cap = [], 0.0, float(FIRST_BUCKET_BYTES)
    for index, num_bytes in enumerate(tensor_bytes.tolist()):
        filled += num_bytes
        if filled >= cap:
            ends.append(index)
            filled, cap = 0.0, bucket_bytes
    if filled > 0.0 or not ends:
        ends.append(len(tensor_bytes) - 1)
    return np.array(ends, dtype=np.int64)
