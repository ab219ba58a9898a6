"""Distinct pipelines of a strategy table, each laid out, weighed and played once.

Shapes: num_pipelines, padded to the longest pipeline where a rank matters. Rows that differ in
replicas or sharding alone share a pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from paceline.columns import take_rows
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.collectives.times import RankGroup, send_recv_s
from paceline.parallelism.memory.training_state import Part, TrainingState
from paceline.parallelism.schedule.bubbles import (
    chunks_in_flight,
    in_flight,
    num_put_off,
    pipeline_s,
    settled_microbatches,
)
from paceline.parallelism.schedule.layouts import Layout, layout
from paceline.parallelism.schedule.table import KINDS, ClusterLinks, StrategyTable, Variant
from paceline.parallelism.strategy.strategy import Schedule
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineMemory:
    """What ranks hold, (num_pipelines, num_ranks) each.

    Attributes:
        state: Of the stages of a rank, (num_parts, 2, num_pipelines, num_ranks).
        activation_bytes: Of the microbatches in flight.
        first_bytes: Of them, those of the first one where all of a step are in flight at once, and
            so no gradients yet; else nothing.
        transient_bytes: Beyond them at the peak.
        largest_bytes: The largest single tensor that comes and goes.
    """

    state: TrainingState
    activation_bytes: FloatArray
    first_bytes: FloatArray
    transient_bytes: FloatArray
    largest_bytes: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineTimes:
    """Times of pipelines, (num_pipelines,) each.

    Attributes:
        all_s: All microbatches.
        bubble_s: Of it, waiting on the busiest rank.
        tensor_s: Of it, communication of ranks that share blocks, on the busiest rank.
        forward_s: One microbatch on the busiest rank.
        backward_s: Likewise.
        ahead_s: By how much the host is ahead of the device at the end.
    """

    all_s: FloatArray
    bubble_s: FloatArray
    tensor_s: FloatArray
    forward_s: FloatArray
    backward_s: FloatArray
    ahead_s: FloatArray

    def take(self, rows: IntArray) -> PipelineTimes:
        """Some of them, in this order."""
        return take_rows(self, rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pipelines:
    """Distinct pipelines of a table.

    Attributes:
        keys: Ranks, chunks, kind, microbatches, variant, point, whether hops leave the node,
            (num_pipelines, 7).
        layouts: How each is cut.
        of_row: Pipeline of every strategy.
    """

    keys: IntArray
    layouts: tuple[Layout, ...]
    of_row: IntArray
    fabric: ClusterLinks

    def take(self, rows: IntArray) -> Pipelines:
        """Those of some strategies."""
        used, of_row = np.unique(self.of_row[rows], return_inverse=True)
        layouts = tuple(self.layouts[number] for number in used.tolist())
        return replace(self, keys=self.keys[used], layouts=layouts, of_row=of_row)

    def held(self) -> PipelineMemory:
        """What each rank of each pipeline holds."""
        size = (len(self.keys), int(self.keys[:, 0].max(initial=1)))
        held = PipelineMemory(
            state=TrainingState(np.zeros((len(Part), 2, *size))),
            activation_bytes=np.zeros(size),
            first_bytes=np.zeros(size),
            transient_bytes=np.zeros(size),
            largest_bytes=np.zeros(size),
        )
        for rows, (pp, chunks, _, _), schedule in played_alike(self.keys):
            for name in ("transient_bytes", "largest_bytes"):
                stacked = self._stacked(rows, name).reshape(len(rows), chunks, pp)
                getattr(held, name)[rows, :pp] = stacked.max(axis=1)
            state = np.stack([self.layouts[row].state.values for row in rows.tolist()], axis=2)
            held.state.values[:, :, rows, :pp] = _per_rank(state, chunks)
            flying = chunks_in_flight(schedule, num_ranks=pp).ravel()
            saved_bytes = _per_rank(self._stacked(rows, "saved_bytes") * flying, chunks)
            held.activation_bytes[rows, :pp] = saved_bytes
            if chunks == 1:
                is_all = flying.ravel() == self.keys[rows, 3][:, None]
                held.first_bytes[rows, :pp] = self._stacked(rows, "saved_bytes") * is_all
            if schedule.kind == "zbh1":
                put_off_bytes = self._stacked(rows, "put_off_bytes")
                held.activation_bytes[rows, :pp] += put_off_bytes * num_put_off(
                    schedule, num_ranks=pp
                )
            if self.fabric.profile.keeps_messages and pp > 1:
                num_kept = _kept_messages(self.keys[rows, 3], schedule, pp)
                size_bytes = np.array([self.layouts[row].message_bytes for row in rows.tolist()])
                held.activation_bytes[rows, :pp] += chunks * size_bytes[:, None] * num_kept
        return held

    def times(self) -> PipelineTimes:
        """What each pipeline takes.

        With other chunks to run, a stage that sends goes on; its message is the slower of the two.
        """
        times = PipelineTimes(
            **{name: np.zeros(len(self.keys)) for name in PipelineTimes.__slots__}
        )
        hop_s = _hop_s(self.keys, self.layouts, self.fabric)
        for rows, (_, chunks, _, _), schedule in played_alike(self.keys):
            is_hidden = self.fabric.profile.overlaps_hops and schedule.kind == "interleaved"
            send, microbatches = np.maximum if is_hidden else np.add, self.keys[rows, 3]
            forward_s = send(self._stacked(rows, "forward_s"), hop_s[rows, None])
            backward_s = send(self._stacked(rows, "backward_s"), hop_s[rows, None])
            all_s = pipeline_s(
                schedule, forward_s, backward_s, num_microbatches=microbatches,
                weight_s=self._stacked(rows, "weight_s"),
            )  # fmt: skip
            tensor_s = _per_rank(self._stacked(rows, "tensor_s"), chunks)
            busy_s = microbatches * _per_rank(forward_s + backward_s, chunks).max(axis=1)
            start_s = self._stacked(rows, "start_s")
            times.all_s[rows] = all_s + start_s
            times.bubble_s[rows] = all_s - busy_s
            times.tensor_s[rows] = microbatches * tensor_s.max(axis=1)
            times.forward_s[rows] = _per_rank(forward_s, chunks).max(axis=1)
            times.backward_s[rows] = _per_rank(backward_s, chunks).max(axis=1)
            times.ahead_s[rows] = start_s + microbatches * self._stacked(rows, "ahead_s")
        return times

    def _stacked(self, rows: IntArray, name: str) -> FloatArray:
        return np.stack([getattr(self.layouts[row], name) for row in rows.tolist()])


def _kept_messages(microbatches: IntArray, schedule: Schedule, num_ranks: int) -> FloatArray:
    """Messages that a stage keeps beside its activations, (num_pipelines, num_ranks).

    Buffers for all that it receives, forward and backward, less those whose contents it keeps as
    activations; and what it sent of the microbatches in flight.
    """
    rank, flying = np.arange(num_ranks), in_flight(schedule, num_ranks=num_ranks)
    all_of_them = np.asarray(microbatches, dtype=np.float64)[:, None]
    received = np.maximum(all_of_them - flying, 0.0) * (rank > 0)
    return np.asarray(received + (all_of_them + flying) * (rank < num_ranks - 1))


def distinct_pipelines(
    table: StrategyTable, variants: Sequence[Variant], fabric: ClusterLinks
) -> Pipelines:
    """The pipelines of a table, laid out."""
    degree = np.array([v.num_ranks for v in variants])[table.variant]
    crosses = degree * table.dp * table.pp > fabric.devices_per_domain
    columns = (table.pp, table.chunks, table.kind, table.microbatches, table.variant, table.point)
    keys, of_row = np.unique(np.column_stack([*columns, crosses]), axis=0, return_inverse=True)
    layouts = tuple(
        layout(
            variants[variant],
            pp * chunks,
            point,
            is_even=fabric.profile.cut == "layers",
            adds_in_place=fabric.profile.keeps_gradients,
        )
        for pp, chunks, _, _, variant, point, _ in keys.tolist()
    )
    return Pipelines(
        keys=keys, layouts=layouts, of_row=np.asarray(of_row.ravel(), np.int64), fabric=fabric
    )


def played_alike(
    keys: IntArray,
) -> Iterator[tuple[IntArray, tuple[int, int, int, int], Schedule]]:
    """Pipelines that can be played together, with their shape and schedule.

    Args:
        keys: Ranks, chunks, kind and microbatches of each in the first columns.

    Yields:
        Rows that are alike; ranks, chunks, kind and microbatches that are played; the schedule.
    """
    shape, codes = keys[:, :4].copy(), keys[:, 2]
    for code in distinct(codes).tolist():
        rows = np.flatnonzero(codes == code)
        shape[rows, 3] = settled_microbatches(KINDS[code], keys[rows, 3], keys[rows, 0])
    number = np.ravel_multi_index(tuple(shape.T), tuple(shape.max(axis=0, initial=0) + 1))
    _, first, of_row = np.unique(number, return_index=True, return_inverse=True)
    for place, (pp, chunks, kind, played) in enumerate(shape[first].tolist()):
        rows = np.flatnonzero(of_row == place)
        yield rows, (pp, chunks, kind, played), _schedule(kind, played, chunks)


def _schedule(kind: int, num_microbatches: int, chunks: int) -> Schedule:
    return Schedule(kind=KINDS[kind], num_microbatches=num_microbatches, num_chunks=chunks)


def _per_rank(stages: FloatArray, chunks: int) -> FloatArray:
    """Sums over the chunks of each rank, (..., num_ranks)."""
    shape = (*stages.shape[:-1], chunks, stages.shape[-1] // chunks)
    return np.asarray(stages.reshape(shape).sum(axis=-2))


def _hop_s(keys: IntArray, layouts: Sequence[Layout], fabric: ClusterLinks) -> FloatArray:
    """Time of a message between stages, which sender and receiver both spend.

    Between nodes all ranks of a node send at once, so each has its share of the network.
    """
    size = np.array([one.message_bytes for one in layouts])
    one_row = np.zeros(len(keys), dtype=np.int64)
    crosses = keys[:, 6].astype(np.bool_)
    pair = RankGroup.of(
        2.0, np.where(crosses, 1.0, 2.0), fabric.device_link.take(one_row),
        fabric.node_link.take(one_row),
        node_share_frac=np.where(crosses, 1.0 / fabric.devices_per_domain, 1.0),
    )  # fmt: skip
    return np.where(keys[:, 0] > 1, send_recv_s(size, pair) + fabric.profile.hop_wait_s, 0.0)
