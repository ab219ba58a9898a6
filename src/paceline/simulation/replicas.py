"""Data-parallel ranks: from the step of one to the step and memory of all.

Shapes: (num_rows,).
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np

from paceline.errors import MissingFactError
from paceline.model.graph.block_names import block_names, layers_of
from paceline.model.graph.distinct import among, distinct
from paceline.model.graph.graph import FloatArray, IntArray, Phase
from paceline.parallelism.collectives.communicators import communicator_bytes
from paceline.parallelism.memory.sharded_memory import (
    KeptShares,
    peak_moments,
    saved_process_bytes,
)
from paceline.parallelism.offload import update_bytes_per_s
from paceline.parallelism.replicas.data_parallel_work import ReplicaWork, replicated_step
from paceline.parallelism.replicas.host_shares import HostLinks
from paceline.parallelism.schedule.launches import hosted, launches_alone
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Sharding, Strategy
from paceline.parallelism.training_profile import TrainingProfile
from paceline.parallelism.uncertainty import lanes_s, sharing_log_sigma, step_log_sigma
from paceline.prediction.calibration.fitted import Calibration, builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.shipped import shipped_rows
from paceline.simulation.cases import Cases, grouped
from paceline.simulation.job import software_of
from paceline.simulation.rank import Lengths, RankPasses
from paceline.stack.engines import shipped_engine

_SHARDINGS: tuple[Sharding, ...] = get_args(Sharding)
#: Rows whose communication is computed at once, which bounds working memory.
_CHUNK = 16_384


def is_replicated(strategy: Strategy) -> bool:
    """Whether ranks differ in nothing but their items and what they keep of the training state.

    >>> [is_replicated(Strategy.parse(text)) for text in ("dp8/mb4+zero2", "dp2.fsdp8", "dp4.tp2")]
    [True, True, False]
    """
    names = [axis.name for axis in strategy.mesh]
    splits_no_more = names in ([], ["dp"], ["fsdp"], ["dp", "fsdp"])
    is_usual = strategy.gradient_sync == "all_reduce" and not strategy.offloads_optimizer
    return splits_no_more and is_usual and not strategy.placements


def replicated(
    cases: Cases, passes: RankPasses, alone: Steps, *, seq: FloatArray,
    calibration: Calibration | None = None,
) -> Steps:  # fmt: skip
    """Optimizer steps of replicas of what one rank does.

    Args:
        cases: Whose strategies all are replicas.
        passes: What every rank runs.
        alone: One microbatch with its update on one device, per row.
        seq: Tokens of a sequence, per row.
        calibration: Dispatch times; the built-in ones if None.
    """
    steps = replicated_times(cases, passes, alone, seq=seq, calibration=calibration)
    parts = [
        (rows, with_memory(cases.take(rows), passes, steps.take(rows), seq[rows], sharding))
        for sharding, rows in _by_sharding(cases)
    ]
    return Steps.joined(parts, len(cases))


def replicated_times(
    cases: Cases,
    passes: RankPasses,
    alone: Steps,
    *,
    seq: FloatArray,
    tensor_s: FloatArray | float = 0.0,
    calibration: Calibration | None = None,
) -> Steps:
    """The same with the memory of one rank alone, which a search of many knows beforehand.

    Args:
        cases: Whose strategies all are replicas, of one rank or of ranks that share every layer.
        passes: What every rank runs.
        alone: One microbatch with its update on one device, per row.
        seq: Tokens of a sequence, per row.
        tensor_s: What ranks that share layers exchange in a microbatch, per row.
        calibration: Dispatch times; the built-in ones if None.
    """
    known = calibration or builtin_calibration()
    added_s = np.broadcast_to(np.asarray(tensor_s, dtype=np.float64), len(cases))
    parts = []
    for sharding, every in _by_sharding(cases):
        for start in range(0, len(every), _CHUNK):
            rows = every[start : start + _CHUNK]
            mine = cases.take(rows)
            own = _launched(mine, passes, alone.take(rows), known)
            part = _sharded(mine, passes, own, seq[rows], added_s[rows], sharding, known)
            parts.append((rows, part))
    return Steps.joined(parts, len(cases))


def ranks_together(
    cases: Cases, passes: RankPasses, alone: Steps, asked: Lengths, *,
    calibration: Calibration | None,
) -> Steps:  # fmt: skip
    """Steps of replicas, each of one rank or of ranks that share every layer, without their memory.

    Ranks that share layers exchange between passes that are cut as a whole, which is coarser than
    the blocks of `simulate` in training.

    Args:
        cases: Whose strategies are replicas.
        passes: What every rank runs, cut for those that share layers.
        alone: A rank's own part, per row.
        asked: Of a rank, per row.
        calibration: Of the predictor; the built-in one if None.
    """
    if passes.workload.task == "train" and passes.shape.num_ranks == 1:
        return replicated_times(cases, passes, alone, seq=asked.seq, calibration=calibration)
    from paceline.simulation.shared import exchanged_s, served  # engines: only if needed

    if passes.workload.task == "infer":
        return served(cases, passes, alone, asked, calibration=calibration)
    tensor_s, _ = exchanged_s(cases, passes, asked, calibration)
    return replicated_times(cases, passes, alone, seq=asked.seq, tensor_s=tensor_s)


def _by_sharding(cases: Cases) -> list[tuple[Sharding, IntArray]]:
    """Rows that split the same, and whose software is one."""
    found = grouped([(kept_by(one.strategy), software_of(one)) for one in cases.jobs])
    parts = [(how, np.flatnonzero(np.isin(cases.job, jobs))) for (how, _), jobs in found.items()]
    return [(sharding, rows) for sharding, rows in parts if len(rows)]


def _profile(cases: Cases, passes: RankPasses) -> TrainingProfile:
    """What the software of cases that are alike does and holds beside the strategy."""
    return replace(software_of(cases.jobs[int(cases.job[0])]), host=passes.host)


def kept_by(strategy: Strategy) -> Sharding:
    """What ranks split; ``fsdp`` splits everything."""
    return "zero3" if strategy.size("fsdp") > 1 else strategy.sharding


def num_shards(cases: Cases) -> IntArray:
    """Ranks that split what is split; the others are replicas of these."""
    fsdp = cases.of_jobs([one.strategy.size("fsdp") for one in cases.jobs]).astype(np.int64)
    return np.where(fsdp > 1, fsdp, cases.replicas)


def _sharded(
    cases: Cases, passes: RankPasses, alone: Steps, seq: FloatArray, tensor_s: FloatArray,
    sharding: Sharding, calibration: Calibration,
) -> Steps:  # fmt: skip
    """Rows that split the same; ranks of a machine that share layers share its network too."""
    shards, degree = num_shards(cases), passes.shape.num_ranks
    device_link, node_link = cases.device_link, cases.node_link
    step = replicated_step(
        replica_work(passes, float(seq[0])),
        alone_s=alone.step_s,
        backward_s=alone.backward_s,
        update_s=alone.update_s,
        microbatches=cases.microbatches,
        num_ranks=cases.replicas,
        ranks_per_node=np.maximum(cases.devices_per_domain // degree, 1),
        device_link=device_link,
        node_link=node_link,
        sharding=sharding,
        shards=shards,
        node_share_frac=1.0 / np.minimum(degree, cases.devices_per_domain),
        software=_profile(cases, passes),
        host_links=_host_links(cases, calibration),
    )
    split_s = cases.microbatches * tensor_s
    host_s = _host_update_s(cases, passes, alone, shards, sharding)
    step_s = np.maximum(step.step_s, _hooked_s(cases, passes, alone, sharding)) + split_s + host_s
    shared = np.minimum(cases.replicas * degree, cases.devices_per_domain)
    is_spread = cases.replicas * degree > cases.devices_per_domain
    sent_s = lanes_s(step.communication_s + split_s, device_link, node_link, is_spread)
    sharing = sharing_log_sigma(device_link, shared, sent_s=sent_s, step_s=step_s)
    log_sigma = step_log_sigma(
        alone.device_log_sigma, alone_s=step.compute_s, exposed_s=step.exposed_s + split_s,
        sharing_log_sigma=sharing,
    )  # fmt: skip
    steps = replace(
        alone,
        step_s=step_s,
        exposed_s=step.exposed_s,
        communication_s=step.communication_s,
        tensor_s=split_s,
        per_token_s=step_s,
        sharing_log_sigma=sharing,
    ).with_spread(log_sigma, alone)
    return replace(steps, reasons=_linked(cases, steps))


def _host_links(cases: Cases, calibration: Calibration) -> HostLinks:
    """Links to the host of each row's device."""
    machines, share = cases.machines, calibration.constant("host", "link_efficiency_frac")
    links = [one.device_link for one in machines]
    return HostLinks.of([one.device for one in machines], links, share).take(cases.machine)


def _host_update_s(
    cases: Cases, passes: RankPasses, alone: Steps, shards: IntArray, sharding: Sharding
) -> FloatArray:
    """How long processors update beyond the copies of weights that come back meanwhile.

    Shares of weights that are on the host stay there.
    The ranks of a machine share its processors, and each updates what it has of the whole.
    """
    lowered = passes.step.largest
    if lowered.configuration.offload not in ("optimizer", "weights"):
        return np.zeros(len(cases))
    machines = cases.machines
    rate = np.array([update_bytes_per_s(one.device, one.num_vcpus) for one in machines])
    per_node = np.array([one.devices_per_node for one in machines], dtype=np.int64)
    ranks = np.minimum(cases.replicas * passes.shape.num_ranks, per_node[cases.machine])
    shards = np.where(sharding == "none", 1, shards)
    moved_bytes = 2.0 * (passes.optimizer_bytes + lowered.gradient_bytes) / shards
    stays = lowered.configuration.offload == "weights" and sharding == "zero3"
    copied_s = np.where(stays & (shards > 1), 0.0, alone.update_s / (2.0 * shards))
    return np.asarray(np.maximum(moved_bytes * ranks / rate[cases.machine] - copied_s, 0.0))


def replica_work(passes: RankPasses, seq: float) -> ReplicaWork:
    """What replicas exchange; of software without buckets, each tensor as soon as it is there."""
    work = ReplicaWork.of(passes.step, seq=seq)
    known = shipped_engine(passes.host)
    return work if known is None or known.buckets else replace(work, profile=None)


def _hooked_s(cases: Cases, passes: RankPasses, alone: Steps, sharding: Sharding) -> FloatArray:
    """How long the host takes whose hooks gather each unit; nothing for other software.

    Units are blocks, and of some software each tensor of an adapter besides, unless a kernel of
    its own reads them with their layer.
    """
    has_hooks = cases.of_jobs(["hooks" in one.habits for one in cases.jobs])
    if sharding != "zero3" or not has_hooks.any():
        return np.zeros(len(cases))
    (fact,) = shipped_rows("parallelism", "sharding_hosts.csv")
    lowered, how = passes.step.largest, passes.step.largest.configuration
    is_wrapped = how.lora_rank and how.adapter_inputs != "shared"
    num_adapters = len(lowered.gradient_ready) if is_wrapped else 0
    each = cases.of_jobs(["adapter-hooks" in one.habits for one in cases.jobs])
    num_units = layers_of(block_names(passes.workload.passes[0].graph)) + each * num_adapters
    one_s = alone.host_s + num_units * float(fact["block_s"])
    return has_hooks * cases.microbatches * one_s


def _launched(cases: Cases, passes: RankPasses, alone: Steps, calibration: Calibration) -> Steps:
    """Steps of one rank that its host issues kernel by kernel, where software does (0229)."""
    profile, lowered = _profile(cases, passes), passes.step.largest
    is_whole = len(passes.lowered) == 1 and passes.shape.num_ranks == 1
    if not (is_whole and (profile.launches_each or profile.loops_experts)):
        return alone
    launches = launches_alone(passes.workload.passes[0].graph, lowered.configuration)
    phase = lowered.costs.phase[lowered.costs.order]
    parts = [phase != Phase.OPTIMIZER, among(phase, (Phase.BACKWARD, Phase.RECOMPUTE))]
    host_s = np.zeros((3, len(cases.machines)))
    for row in distinct(cases.machine).tolist():
        device = DeviceTable.from_devices([cases.machines[row].device])
        seconds, _ = hosted(lowered, launches, device, calibration, profile)
        host_s[:, row] = [seconds.sum(), *(seconds[part].sum() for part in parts)]
    whole_s, passes_s, backward_s = host_s[:, cases.machine]
    return replace(
        alone,
        step_s=np.maximum(alone.step_s, np.maximum(whole_s, passes_s + alone.update_s)),
        host_s=np.maximum(alone.host_s, whole_s),
        backward_s=np.maximum(alone.backward_s, backward_s),
    )


def _linked(cases: Cases, steps: Steps) -> np.ndarray:
    """The reasons, with that of rows that lack a link."""
    reasons = np.array(steps.reasons)
    for row in np.flatnonzero(np.isinf(steps.step_s)).tolist():
        reasons[row] = MissingFactError(
            f"no known link between {cases.replicas[row]} devices",
            hint="name machines whose links are known",
        )
    return reasons


def with_memory(
    cases: Cases, passes: RankPasses, steps: Steps, seq: FloatArray, sharding: Sharding
) -> Steps:
    """Steps with the peak per device; from the second microbatch on, gradients are there already.

    Args:
        cases: How many replicas each row has.
        passes: What every rank runs.
        steps: With the peak of one device that keeps everything.
        seq: Tokens of a sequence, per row.
        sharding: What replicas split.
    """
    shards, is_alone = num_shards(cases), cases.microbatches == 1
    keeps = cases.of_jobs(["whole-gradients" in one.habits for one in cases.jobs])
    points, of_row = np.unique(
        np.stack([cases.batch, seq, shards, is_alone, keeps]), axis=1, return_inverse=True
    )
    of_row = of_row.reshape(-1)
    lowered, at = passes.step.largest, Points(batch=points[0], seq=points[1])
    moments, profile = peak_moments(lowered, at), _profile(cases, passes)

    def saved(
        *, accumulates: bool = True, keeps_gradients: bool = False
    ) -> tuple[FloatArray, FloatArray]:
        """What sharding saves at each point."""
        return saved_process_bytes(
            moments, points[2], sharding, accumulates=accumulates,
            keeps_gradients=keeps_gradients, profile=profile,
        )  # fmt: skip

    ways = zip(saved(accumulates=False), saved(keeps_gradients=True), saved(), strict=True)
    saved_mid, saved_high = (
        np.select([points[3] > 0, points[4] > 0], [alone, whole], usual)[of_row]
        for alone, whole, usual in ways
    )
    mid, joined = steps.memory_mid_bytes - saved_mid, _joined_bytes(cases)
    kept = KeptShares.of(shards, sharding)
    kept = kept.on_host() if moments.shares_on_host else kept
    return replace(
        steps,
        memory_low_bytes=steps.memory_low_bytes * mid / steps.memory_mid_bytes + joined,
        memory_mid_bytes=mid + joined,
        memory_high_bytes=steps.memory_high_bytes - saved_high + joined,
        communicator_bytes=joined,
        optimizer_state_bytes=steps.optimizer_state_bytes * kept.optimizer,
        parameter_bytes=steps.parameter_bytes * kept.parameter,
    )


def _joined_bytes(cases: Cases) -> FloatArray:
    """What communicators hold of each rank: one of replicas, one of ranks that split weights."""
    fsdp = cases.of_jobs([one.strategy.size("fsdp") for one in cases.jobs])
    sizes = np.stack([cases.replicas // fsdp, fsdp])
    return np.asarray(communicator_bytes(sizes, cases.device_link.num_channels).sum(axis=0))
