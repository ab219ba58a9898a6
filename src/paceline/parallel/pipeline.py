"""Seconds of pipeline schedules, bubbles included, one array element per candidate.

Shapes: (num_candidates, num_stages) with virtual stages, ranks × chunks, in the order data flows.

Sources:
    Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "Efficient Large-Scale Language Model
    Training on GPU Clusters Using Megatron-LM", SC 2021, section 2.2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.parallel.orders import levels_of
from paceline.parallel.strategy import Schedule
from paceline.trace.graph import FloatArray

#: Microbatches per rank after which a pipeline repeats itself; the rest is extrapolated.
_SETTLED_ROUNDS = 4


def pipeline_s(
    schedule: Schedule,
    forward_s: FloatArray,
    backward_s: FloatArray,
    *,
    transfer_s: npt.ArrayLike = 0.0,
) -> FloatArray:
    """Time of all microbatches through the pipeline, (num_candidates,).

    The schedule is played level by level over all candidates at once. Once the pipeline has
    settled, every further round of microbatches takes the same time.

    Args:
        schedule: Order of microbatches; all candidates share it.
        forward_s: Forward of one microbatch per virtual stage, (num_candidates, num_stages).
        backward_s: Backward of one microbatch per virtual stage, same shape.
        transfer_s: Time of a message between neighbouring stages, (num_candidates,) or scalar.

    Raises:
        InvalidInputError: Interleaved, and the microbatches are no multiple of the ranks.
    """
    count, num_ranks = schedule.num_microbatches, forward_s.shape[-1] // schedule.num_chunks
    if schedule.kind == "plain":
        return np.asarray(count * (forward_s + backward_s).sum(axis=-1))
    if schedule.kind == "interleaved":
        check_interleaving(num_ranks, count)
    work = np.concatenate([forward_s, backward_s], axis=-1)
    hop = np.broadcast_to(np.asarray(transfer_s, dtype=np.float64), work.shape[:1])
    if schedule.kind == "gpipe":
        fill_s = 2.0 * (num_ranks - 1.0) * hop
        return np.asarray(_flow_s(forward_s, count) + _flow_s(backward_s, count) + fill_s)
    settled = _SETTLED_ROUNDS * num_ranks
    if count <= settled + num_ranks:
        return _played_s(schedule, num_ranks, work, hop)
    rest = (count - settled) % num_ranks
    short, long = (
        _played_s(replace(schedule, num_microbatches=settled + rest + more), num_ranks, work, hop)
        for more in (0, num_ranks)
    )
    return np.asarray(short + (long - short) * ((count - settled - rest) / num_ranks))


def _played_s(
    schedule: Schedule, num_ranks: int, work_s: FloatArray, hop_s: FloatArray
) -> FloatArray:
    """End of the last action, by playing every level of the schedule."""
    levels = levels_of(schedule, num_ranks)
    end_s = np.zeros((len(work_s), levels[-1].columns.stop))
    for level in levels:
        ready_s = end_s[:, level.source] + hop_s[:, None] * level.crosses
        start_s = np.maximum(end_s[:, level.rank_before], ready_s)
        end_s[:, level.columns] = start_s + work_s[:, level.work]
    return np.asarray(end_s.max(axis=1))


def _flow_s(stage_s: FloatArray, count: int) -> FloatArray:
    """Items that pass machines in line: once through all, then one per slowest machine."""
    return np.asarray(stage_s.sum(axis=-1) + (count - 1.0) * stage_s.max(axis=-1))


def bubble_frac(
    num_ranks: npt.ArrayLike, num_microbatches: npt.ArrayLike, num_chunks: int = 1
) -> FloatArray:
    """Share of the ideal time that equal stages lose to filling and draining.

    Source: Narayanan et al. 2021: ``(p - 1) / (v m)``.

    >>> float(bubble_frac(4, 12))
    0.25
    """
    ranks, count = np.asarray(num_ranks, float), np.asarray(num_microbatches, float)
    return np.asarray((ranks - 1.0) / (count * num_chunks))


def in_flight(schedule: Schedule, *, num_ranks: int) -> FloatArray:
    """Microbatches whose activations each rank holds at its peak, in whole stages, (num_ranks,).

    Interleaved schedules hold chunks: ``num_chunks`` of them count as one stage.
    """
    rank, count, chunks = np.arange(num_ranks), schedule.num_microbatches, schedule.num_chunks
    if schedule.kind == "plain":
        return np.ones(num_ranks)
    if schedule.kind == "gpipe":
        return np.full(num_ranks, float(count))
    if schedule.kind == "1f1b":
        return np.minimum(float(count), num_ranks - rank)
    warm = 2.0 * (num_ranks - rank - 1.0) + (chunks - 1.0) * num_ranks + 1.0
    return np.asarray(np.minimum(count * chunks, warm) / chunks)


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
