"""Seconds of pipeline schedules, bubbles included, one array element per candidate.

Shapes: (num_candidates, num_stages) with virtual stages, ranks × chunks, in the order data flows.

Sources:
    Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "Efficient Large-Scale Language Model
    Training on GPU Clusters Using Megatron-LM", SC 2021, section 2.2; Qi et al., "Zero Bubble
    Pipeline Parallelism", ICLR 2024.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.schedule.orders import Level, levels_of
from paceline.parallelism.strategy.strategy import Schedule, ScheduleKind

#: Rounds of one microbatch per rank after which a schedule has settled into its pace.
_SETTLED_ROUNDS: dict[ScheduleKind, int] = {"plain": 1, "1f1b": 3, "interleaved": 4, "zbh1": 3}


def pipeline_s(
    schedule: Schedule,
    forward_s: FloatArray,
    backward_s: FloatArray,
    *,
    num_microbatches: npt.ArrayLike | None = None,
    weight_s: FloatArray | None = None,
) -> FloatArray:
    """Time of all microbatches through the pipeline, (num_candidates,).

    The schedule is played level by level over all candidates at once. Once the pipeline has
    settled, every further round of one microbatch per rank takes the same time: under 1F1B and
    ZB-H1 the busiest rank's work, interleaved what the last round took.

    Args:
        schedule: Order of microbatches.
        forward_s: Forward of one microbatch per virtual stage, with the time in which its result
            is sent, (num_candidates, num_stages).
        backward_s: Backward likewise, same shape.
        num_microbatches: Microbatches of each candidate where they differ, (num_candidates,); the
            schedule's by default, which must then be the smallest of them.
        weight_s: Of backward, what ZB-H1 puts off: gradients of weights, which no other stage
            waits for, same shape.

    Raises:
        InvalidInputError: Interleaved, and the microbatches are no multiple of the ranks.
    """
    least, num_ranks = schedule.num_microbatches, forward_s.shape[-1] // schedule.num_chunks
    count = np.asarray(least if num_microbatches is None else num_microbatches, dtype=np.float64)
    work = np.concatenate([forward_s, backward_s], axis=-1)
    if schedule.kind == "plain":
        return np.asarray(count * work.sum(axis=-1))
    if schedule.kind == "gpipe":
        return _flow_s(forward_s, count) + _flow_s(backward_s, count)
    if schedule.kind == "interleaved":
        check_interleaving(num_ranks, least)
    played = int(settled_microbatches(schedule.kind, least, num_ranks))
    if schedule.kind == "zbh1":
        assert weight_s is not None, "what is put off is known"
        work = np.concatenate([forward_s, backward_s - weight_s], axis=-1)
    seconds = _played_s(replace(schedule, num_microbatches=played), num_ranks, work, weight_s)
    if np.all(count == played):
        return seconds
    if schedule.kind in ("1f1b", "zbh1"):
        return np.asarray(seconds + (count - played) * (forward_s + backward_s).max(axis=-1))
    longer = replace(schedule, num_microbatches=played + num_ranks)
    round_s = _played_s(longer, num_ranks, work) - seconds
    return np.asarray(seconds + (count - played) / num_ranks * round_s)


def settled_microbatches(
    kind: ScheduleKind, num_microbatches: npt.ArrayLike, num_ranks: npt.ArrayLike
) -> IntArray:
    """Microbatches that must be played to know the time of whole schedules of a kind.

    >>> settled_microbatches("1f1b", [100, 7], 4).tolist()
    [12, 7]
    >>> int(settled_microbatches("gpipe", 100, 4))
    100
    """
    rounds, count = _SETTLED_ROUNDS.get(kind), np.asarray(num_microbatches, dtype=np.int64)
    return count if rounds is None else np.minimum(count, rounds * np.asarray(num_ranks))


def _played_s(
    schedule: Schedule, num_ranks: int, work_s: FloatArray, weight_s: FloatArray | None = None
) -> FloatArray:
    """End of the last action, by playing every level of the schedule."""
    levels = levels_of(schedule, num_ranks)
    if schedule.kind == "zbh1" and weight_s is not None:
        return _played_split_s(levels, num_ranks, work_s, weight_s)
    work = np.ascontiguousarray(work_s.T)
    end_s = np.zeros((levels[-1].columns.stop, len(work_s)))
    for level in levels:
        start_s = end_s.take(level.rank_before, axis=0)
        np.maximum(start_s, end_s.take(level.source, axis=0), out=start_s)
        np.add(start_s, work.take(level.work, axis=0), out=end_s[level.columns])
    return np.asarray(end_s.max(axis=0))


def _played_split_s(
    levels: tuple[Level, ...], num_ranks: int, work_s: FloatArray, weight_s: FloatArray
) -> FloatArray:
    """The same where a rank makes gradients of weights after it has passed those of inputs on."""
    work, weight = np.ascontiguousarray(work_s.T), np.ascontiguousarray(weight_s.T)
    end_s = np.zeros((levels[-1].columns.stop, len(work_s)))
    free_s = np.zeros((num_ranks, len(work_s)))
    for level in levels:
        done_s = free_s.take(level.rank, axis=0)
        np.maximum(done_s, end_s.take(level.source, axis=0), out=done_s)
        done_s += work.take(level.work, axis=0)
        end_s[level.columns] = done_s
        done_s += level.num_weights[:, None] * weight.take(level.rank, axis=0)
        free_s[level.rank] = done_s
    return np.asarray(free_s.max(axis=0))


def _flow_s(stage_s: FloatArray, count: FloatArray) -> FloatArray:
    """Items that pass machines in line: once through all, then one per slowest machine."""
    return np.asarray(stage_s.sum(axis=-1) + (count - 1.0) * stage_s.max(axis=-1))


def in_flight(schedule: Schedule, *, num_ranks: int) -> FloatArray:
    """Microbatches whose activations each rank holds at its peak, in whole stages, (num_ranks,).

    Interleaved schedules hold chunks: ``num_chunks`` of them count as one stage. ZB-H1 holds on
    every rank as many as 1F1B on the first: a microbatch is kept whole until its gradients of
    weights are made, and with it what `num_put_off` counts.
    """
    rank, count, chunks = np.arange(num_ranks), schedule.num_microbatches, schedule.num_chunks
    if schedule.kind == "plain":
        return np.ones(num_ranks)
    if schedule.kind == "gpipe":
        return np.full(num_ranks, float(count))
    if schedule.kind == "1f1b":
        return np.minimum(float(count), num_ranks - rank)
    if schedule.kind == "zbh1":
        return np.full(num_ranks, float(min(count, num_ranks)))
    return np.asarray(_num_warm(schedule, num_ranks) / chunks)


def chunks_in_flight(schedule: Schedule, *, num_ranks: int) -> FloatArray:
    """The same for each chunk by itself, (num_chunks, num_ranks).

    What a rank runs forward before its first backward: groups of ``num_ranks`` microbatches pass
    all chunks, so that of the last chunk, with head and loss, few are ever held.

    >>> schedule = Schedule(kind="interleaved", num_microbatches=8, num_chunks=3)
    >>> chunks_in_flight(schedule, num_ranks=4)[:, 3].tolist()
    [4.0, 4.0, 1.0]
    """
    if schedule.kind != "interleaved":
        return in_flight(schedule, num_ranks=num_ranks)[None]
    groups, rest = np.divmod(_num_warm(schedule, num_ranks), num_ranks * schedule.num_chunks)
    before = num_ranks * np.arange(schedule.num_chunks)[:, None]
    return np.asarray(groups * num_ranks + np.clip(rest - before, 0.0, num_ranks))


def _num_warm(schedule: Schedule, num_ranks: int) -> FloatArray:
    """Forward passes of chunks before the first backward of each rank, interleaved."""
    rank, chunks = np.arange(num_ranks), schedule.num_chunks
    warm = 2.0 * (num_ranks - rank - 1.0) + (chunks - 1.0) * num_ranks + 1.0
    return np.asarray(np.minimum(schedule.num_microbatches * chunks, warm))


def num_put_off(schedule: Schedule, *, num_ranks: int) -> FloatArray:
    """Microbatches whose gradients of weights each rank still owes at its peak, (num_ranks,).

    Under ZB-H1 rank ``r`` is ``r`` microbatches late. The first makes all gradients at once.
    """
    rank = np.arange(num_ranks)
    late = np.minimum(float(schedule.num_microbatches), rank + 1.0)
    return np.where((rank > 0) & (schedule.kind == "zbh1"), late, 0.0)


def check_interleaving(num_ranks: int, num_microbatches: int) -> None:
    """Raise unless an interleaved schedule can run.

    Raises:
        InvalidInputError: Microbatches are no multiple of the ranks.
    """
    if num_microbatches % num_ranks:
        enough = -(-num_microbatches // num_ranks) * num_ranks
        raise InvalidInputError(
            f"interleaved schedules need a multiple of {num_ranks} microbatches, "
            f"not {num_microbatches}",
            hint=f"take {enough}, or the 1f1b schedule",
        )
