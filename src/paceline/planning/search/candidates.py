"""The candidate table: every (place, nodes, sharding, configuration, batch, microbatches) as a row.

The table is enumerated in arrays. A row is kept if its batch fits the memory at the stated chance
and the global batch it makes is allowed; of each place, node count, sharding and configuration only
the largest few such batches are kept in training, since smaller ones are slower per sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.columns import join_tables, take_rows
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.communicators import communicator_bytes
from paceline.parallelism.memory.memory_fit import bound_bytes, peak_log_sigma, quantile_bytes
from paceline.parallelism.memory.sharded_memory import saved_process_bytes
from paceline.parallelism.strategy.strategy import SEARCHED_SHARDINGS, Sharding
from paceline.parallelism.training_profile import find_training_profile
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.places.place_table import BoolArray, IntArray, PlaceTable
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CandidateTable:
    """Candidates, (num_candidates,) each.

    Attributes:
        place: Row of the place.
        num_nodes: Machines.
        num_devices: Devices of all machines.
        num_groups: Data-parallel ranks, each of one device or of a tensor-parallel group.
        sharding: Index into `SEARCHED_SHARDINGS`.
        configuration: Row of the configuration in the forecast.
        batch: Index into the forecast's batch sizes.
        microbatches: Gradient-accumulation steps.
        global_batch: Items per optimizer step, or in flight on all devices.
        memory_mid_bytes: Peak memory of one device, median.
        memory_high_bytes: The bound that holds at a chance of 95 %.
    """

    place: IntArray
    num_nodes: IntArray
    num_devices: IntArray
    num_groups: IntArray
    sharding: IntArray
    configuration: IntArray
    batch: IntArray
    microbatches: IntArray
    global_batch: IntArray
    memory_mid_bytes: FloatArray
    memory_high_bytes: FloatArray

    def __len__(self) -> int:
        return len(self.place)

    def take(self, rows: npt.ArrayLike) -> CandidateTable:
        """The candidates at these rows, in this order."""
        return take_rows(self, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """Which batches are candidates.

    Attributes:
        max_global_batch: Most items per optimizer step; None without a limit.
        exact_global_batch: Exactly so many, reached by accumulation; None if free.
        num_largest: Batches kept per place, nodes, sharding and configuration.
        accumulates: Whether gradients may be accumulated up to the limit.
        memory_confidence: Chance at which the memory of a device must suffice.
        shards_freely: Whether state is also sharded where it would fit unsharded.
        in_flight: So many requests on all replicas together, shared evenly (some have one less, or
            none); None if free.
        least_global_batch: Fewest items per optimizer step, where gradients may be accumulated.
    """

    max_global_batch: int | None
    exact_global_batch: int | None
    num_largest: int
    accumulates: bool
    memory_confidence: float
    shards_freely: bool = False
    in_flight: int | None = None
    least_global_batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rows:
    """(place, nodes, sharding, configuration) combinations, (num_rows,) each."""

    place: IntArray
    num_nodes: IntArray
    sharding: IntArray
    configuration: IntArray


def enumerate_candidates(
    places: PlaceTable,
    forecast: Forecast,
    rule: BatchRule,
    *,
    node_counts: Sequence[int],
    max_devices: int,
    is_training: bool,
) -> CandidateTable:
    """All candidates that fit and are allowed.

    Args:
        places: Where.
        forecast: Of one device each.
        rule: Which batches.
        node_counts: Machine counts to try, rising from 1.
        max_devices: Most devices of one candidate.
        is_training: Training shards state and reduces gradients; inference runs replicas.
    """
    rows = _rows(places, forecast, node_counts, max_devices, is_training=is_training)
    ranks = rows.num_nodes * places.devices_per_node[rows.place]
    sharing = forecast.tensor_degree[rows.configuration]
    groups = ranks // sharing
    axes = np.stack([groups, sharing]) if is_training else np.ones((2, len(ranks)))
    joined_bytes = communicator_bytes(axes, places.num_channels[rows.place]).sum(axis=0)
    chosen = _Chosen(
        rows=rows, ranks=ranks, groups=groups, joined_bytes=joined_bytes, places=places,
        forecast=forecast,
    )  # fmt: skip
    single = _candidates(chosen, rule, accumulates=False)
    may_accumulate = rule.accumulates and rule.max_global_batch is not None
    if rule.exact_global_batch is None and not may_accumulate:
        return single
    return join_tables(single, _candidates(chosen, rule, accumulates=True))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Chosen:
    """Combinations of everything but the batch, what they are made of, and their communicators."""

    rows: _Rows
    ranks: IntArray
    groups: IntArray
    joined_bytes: FloatArray
    places: PlaceTable
    forecast: Forecast


def _candidates(chosen: _Chosen, rule: BatchRule, *, accumulates: bool) -> CandidateTable:
    """Those of one microbatch per step, or those of several."""
    rows, groups, forecast = chosen.rows, chosen.groups, chosen.forecast
    global_batch = groups[:, None] * forecast.batch[None, :].astype(np.int64)
    microbatches = _microbatches(global_batch, rule) if accumulates else np.ones_like(global_batch)
    mid, high, fits = _memory(chosen, rule.memory_confidence, accumulates=accumulates)
    allowed = fits & _batch_allowed(global_batch * microbatches, rule)
    is_small = _is_small(global_batch, rule)
    if not accumulates:
        allowed &= ~is_small
    if rule.in_flight is not None:
        surplus = global_batch - rule.in_flight
        allowed &= (surplus >= 0) & (surplus < groups[:, None])
        global_batch = np.minimum(global_batch, rule.in_flight)
    if not rule.shards_freely:
        allowed &= ~_fits_unsharded(rows, allowed)
    kept = allowed & (_rank_from_largest(allowed) <= rule.num_largest)
    if accumulates:
        is_free = rule.exact_global_batch is None
        kept &= (microbatches > 1) & ((groups > 1)[:, None] | (not is_free) | is_small)
    row, batch = np.nonzero(kept)
    return CandidateTable(
        place=rows.place[row],
        num_nodes=rows.num_nodes[row],
        num_devices=chosen.ranks[row],
        num_groups=groups[row],
        sharding=rows.sharding[row],
        configuration=rows.configuration[row],
        batch=batch,
        microbatches=microbatches[row, batch],
        global_batch=(global_batch * microbatches)[row, batch],
        memory_mid_bytes=mid[row, batch],
        memory_high_bytes=high[row, batch],
    )


def _microbatches(global_batch: IntArray, rule: BatchRule) -> IntArray:
    """Microbatches that make the global batch asked for, or the largest one; a power of two."""
    if rule.exact_global_batch is not None:
        return np.maximum(rule.exact_global_batch // global_batch, 1)
    possible = (rule.max_global_batch or 1) // global_batch
    powers: IntArray = 2 ** np.floor(np.log2(np.maximum(possible, 1))).astype(np.int64)
    return powers


def _rows(
    places: PlaceTable,
    forecast: Forecast,
    node_counts: Sequence[int],
    max_devices: int,
    *,
    is_training: bool,
) -> _Rows:
    sharing = forecast.num_sharing
    is_staged = np.array([one.stages > 1 for one in forecast.configured], dtype=np.bool_)
    stages = {one.stages for one in forecast.configured if one.stages > 1}
    counts = np.array(sorted(stages.union(node_counts)), dtype=np.int64)
    is_asked = np.isin(counts, node_counts)[None, :, None]
    ranks = places.devices_per_node[:, None] * counts[None, :]
    reachable = places.can_join(np.arange(len(ranks))[:, None], counts[None, :])
    reachable &= (places.devices_per_node[:, None] == 1) | places.has_device_link[:, None]
    is_place = (ranks <= max_devices) & (reachable if is_training else np.True_)
    is_place &= ~places.is_joined[:, None] & (counts[None, :] <= places.num_machines[:, None])
    is_predicted = np.asarray(np.isfinite(forecast.steps.step_s).any(axis=2)).T[places.device]
    num_shardings = len(SEARCHED_SHARDINGS) if is_training else 1
    is_sharded = np.arange(num_shardings)[None, None, :] > 0
    is_row = is_place[:, :, None] & ((ranks[:, :, None] > 1) | ~is_sharded)
    is_runnable = is_predicted[:, None, :] & _is_divided(places, forecast, counts)
    # Machines beyond those asked for hold the stages of one replica.
    is_runnable &= np.where(is_staged, reachable[:, :, None], is_asked)
    is_alone = forecast.num_sharing <= places.devices_per_domain[:, None, None]
    is_runnable &= is_alone | reachable[:, :, None]
    is_runnable &= is_asked | (ranks[:, :, None] == sharing)
    place, node, sharding, configuration = np.nonzero(
        is_row[..., None] & is_runnable[:, :, None, :]
    )
    return _Rows(
        place=place, num_nodes=counts[node], sharding=sharding, configuration=configuration
    )


def _is_divided(places: PlaceTable, forecast: Forecast, counts: IntArray) -> BoolArray:
    """Whether ranks that share layers fill machines, or one of them, (places, counts, degrees).

    Stages have a machine each. Groups that share experts do so likewise, and in machines that a
    network joins too.
    """
    degree, sharing = forecast.tensor_degree, forecast.num_sharing
    stages, experts = (
        np.array([getattr(one, name) for one in forecast.configured], dtype=np.int64)
        for name in ("stages", "experts")
    )
    per_node, joined = places.devices_per_node[:, None, None], places.devices_per_domain
    in_one = per_node % degree == 0
    is_filled = (counts[:, None] * per_node) % degree == 0
    in_several = is_filled & (degree % per_node == 0) & (degree <= joined[:, None, None])
    is_linked = (degree == 1) | places.has_device_link[:, None, None]
    is_whole = (counts[:, None] * per_node) % sharing == 0
    in_stages = (per_node == degree * experts) & is_whole
    in_groups = (per_node % sharing == 0) | (is_whole & (sharing % per_node == 0))
    is_filled = np.select([stages > 1, experts > 1], [in_stages, in_groups], in_one | in_several)
    return np.asarray(is_filled & is_linked)


def _memory(
    chosen: _Chosen, confidence: float, *, accumulates: bool
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Peak per device, median and bound, and whether it fits at that chance, (num_rows, P)."""
    rows, places, forecast = chosen.rows, chosen.places, chosen.forecast
    cell = (rows.configuration, places.device[rows.place])
    saved_mid, saved_high = _saved(rows, chosen.groups, forecast, accumulates=accumulates)
    mid = forecast.steps.memory_mid_bytes[cell] - saved_mid
    high = forecast.steps.memory_high_bytes[cell] - saved_high
    mid, high = (bound + chosen.joined_bytes[:, None] for bound in (mid, high))
    spreads = np.array([peak_log_sigma(how.peaks) for how in forecast.configurations])
    high = bound_bytes(mid, high, spreads[rows.configuration][:, None])
    capacity = places.memory_bytes[rows.place][:, None]
    is_known = np.isfinite(forecast.steps.step_s[cell])
    return mid, high, is_known & (quantile_bytes(mid, high, confidence) <= capacity)


def _saved(
    rows: _Rows, groups: IntArray, forecast: Forecast, *, accumulates: bool
) -> tuple[FloatArray, FloatArray]:
    """What sharding saves of median and bound, (num_rows, P); each distinct way is worked out once.

    Less than nothing where gradients are accumulated and not split, or lie beside buckets.
    """
    keys = np.column_stack([rows.configuration, rows.sharding, groups])
    ways, inverse = np.unique(keys, axis=0, return_inverse=True)
    saved = np.zeros((2, len(ways), len(forecast.batch)))
    for configuration, sharding in np.unique(ways[:, :2], axis=0).tolist():
        own = (ways[:, 0] == configuration) & (ways[:, 1] == sharding)
        saved[:, own] = _saved_by_ranks(
            forecast, configuration, SEARCHED_SHARDINGS[sharding], ways[own, 2],
            accumulates=accumulates,
        )  # fmt: skip
    mid, high = saved[:, inverse.reshape(-1)]
    return mid, high


def _saved_by_ranks(
    forecast: Forecast, configuration: int, sharding: Sharding, num_ranks: IntArray, *,
    accumulates: bool,
) -> FloatArray:  # fmt: skip
    """The same of one configuration that so many ranks share, (2, len(num_ranks), P)."""
    points = np.arange(len(forecast.batch))
    saved = saved_process_bytes(
        forecast.moments[configuration].at(np.tile(points, len(num_ranks))),
        np.repeat(num_ranks, len(points)),
        sharding,
        accumulates=accumulates,
        profile=replace(find_training_profile(), host=forecast.passes[configuration].host),
    )
    return np.reshape(saved, (2, len(num_ranks), len(points)))


def _fits_unsharded(rows: _Rows, allowed: BoolArray) -> BoolArray:
    """Cells of sharded rows whose place, nodes, configuration and batch do without, (num_rows, P).

    Plain data parallel sends no more and is what people run if it fits.
    """
    keys = np.column_stack([rows.place, rows.num_nodes, rows.configuration])
    _, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    plain = np.zeros((group.max(initial=-1) + 1, allowed.shape[1]), dtype=np.bool_)
    is_plain = rows.sharding == 0
    plain[group[is_plain]] = allowed[is_plain]
    return np.asarray(plain[group] & ~is_plain[:, None])


def _is_small(global_batch: IntArray, rule: BatchRule) -> BoolArray:
    """Whether fewer items than are usual make a step, and twice as many are allowed."""
    can_be_more = 2 * global_batch <= (rule.max_global_batch or 0)
    return (global_batch < rule.least_global_batch) & can_be_more


def _batch_allowed(global_batch: IntArray, rule: BatchRule) -> BoolArray:
    if rule.exact_global_batch is not None:
        return np.asarray(global_batch == rule.exact_global_batch)
    if rule.max_global_batch is not None:
        return global_batch <= rule.max_global_batch
    return np.ones(global_batch.shape, dtype=bool)


def _rank_from_largest(allowed: BoolArray) -> IntArray:
    """1 for the largest allowed batch of a row, 2 for the next, and so on."""
    return np.cumsum(allowed[:, ::-1], axis=1, dtype=np.int64)[:, ::-1]
