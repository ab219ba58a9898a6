"""Pipeline schedules as orders of actions, and as a dependency graph in levels."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import IntArray
from paceline.parallelism.strategy.strategy import Schedule
from paceline.values import dataclass

#: Column of an action that no level has placed yet.
_UNPLACED = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """Actions that depend only on earlier levels. Columns index all actions; 0 is the start.

    Attributes:
        columns: Columns of these actions, consecutive.
        rank_before: Column of the action before on the same rank.
        source: Column of the action whose output is needed.
        work: Virtual stage, plus the number of virtual stages for backward.
        num_weights: Gradients of weights that the rank makes right after it.
    """

    columns: slice
    rank_before: IntArray
    source: IntArray
    work: IntArray
    rank: IntArray
    num_weights: IntArray


@lru_cache(maxsize=256)
def levels_of(schedule: Schedule, num_ranks: int) -> tuple[Level, ...]:
    """The schedule as levels: once a level's inputs are known it is a single array operation.

    A microbatch passes all stages forward and then backward: along this way each action needs
    the one before it.
    """
    orders, num_stages = orders_of(schedule, num_ranks), num_ranks * schedule.num_chunks
    way = np.where(orders.is_backward, 2 * num_stages - orders.stage, orders.stage + 1)
    work = orders.stage + num_stages * orders.is_backward
    column = np.full((schedule.num_microbatches, 2 * num_stages + 1), _UNPLACED)
    column[:, 0] = 0
    done, last = np.zeros((2, num_ranks), dtype=np.int64)
    levels: list[Level] = []
    start, num_actions = 1, way.shape[1]
    while start <= way.size:
        rank = np.flatnonzero(done < num_actions)
        item, place = orders.microbatch[rank, done[rank]], way[rank, done[rank]]
        source = column[item, place - 1]
        ready = source != _UNPLACED
        rank, item, place, source = rank[ready], item[ready], place[ready], source[ready]
        assert len(rank), "a schedule never deadlocks"
        columns = slice(start, start + len(rank))
        levels.append(
            Level(
                columns=columns, rank_before=last[rank], source=source,
                work=work[rank, done[rank]], rank=rank,
                num_weights=orders.num_weights[rank, done[rank]],
            )
        )  # fmt: skip
        column[item, place] = last[rank] = np.arange(columns.start, columns.stop)
        done[rank] += 1
        start = columns.stop
    return tuple(levels)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Orders:
    """What every rank does, (num_ranks, num_actions)."""

    is_backward: npt.NDArray[np.bool_]
    microbatch: IntArray
    stage: IntArray
    num_weights: IntArray


def orders_of(schedule: Schedule, num_ranks: int) -> Orders:
    """Some forwards, then one forward and one backward in turn, then the other backwards.

    Interleaved: groups of ``num_ranks`` microbatches pass all chunks before the next group.
    """
    chunks, rank = schedule.num_chunks, np.arange(num_ranks)[:, None]
    total = schedule.num_microbatches * chunks
    action = np.arange(2 * total)[None, :]
    num_warm = _num_warm(schedule, num_ranks, rank)
    pair, second = np.divmod(action - num_warm, 2)
    is_steady = (action >= num_warm) & (action < 2 * total - num_warm)
    is_backward = np.where(is_steady, second == 1, action >= num_warm)
    in_turn = np.where(is_backward, pair, num_warm + pair)
    in_a_row = np.where(is_backward, action - total, action)
    index = np.where(is_steady, in_turn, in_a_row)
    if chunks == 1:
        return Orders(
            is_backward=is_backward, microbatch=index, stage=rank + 0 * index,
            num_weights=_num_weights(schedule, rank, is_backward, index),
        )  # fmt: skip
    group, within = np.divmod(index, num_ranks * chunks)
    chunk, member = np.divmod(within, num_ranks)
    chunk = np.where(is_backward, chunks - 1 - chunk, chunk)
    return Orders(
        is_backward=is_backward,
        microbatch=group * num_ranks + member,
        stage=chunk * num_ranks + rank,
        num_weights=np.zeros_like(index),
    )


def _num_weights(
    schedule: Schedule, rank: IntArray, is_backward: npt.NDArray[np.bool_], index: IntArray
) -> IntArray:
    """Gradients of weights made right after each action, where they are made apart.

    Rank ``r`` is ``r`` microbatches late with them, so that all ranks hold equally many, and makes
    those that are left after its last backward.
    """
    if schedule.kind != "zbh1":
        return np.zeros_like(index)
    total = schedule.num_microbatches
    in_turn = (is_backward & (index >= rank)).astype(np.int64)
    left = np.where(is_backward & (index == total - 1), np.minimum(rank, total), 0)
    return np.asarray(in_turn + left)


def _num_warm(schedule: Schedule, num_ranks: int, rank: IntArray) -> IntArray:
    """Forwards of each rank before its first backward."""
    total = schedule.num_microbatches * schedule.num_chunks
    if schedule.kind == "gpipe":
        return np.full_like(rank, total)
    if schedule.kind == "interleaved":
        ahead = 2 * (num_ranks - rank - 1) + (schedule.num_chunks - 1) * num_ranks
        return np.minimum(total, ahead)
    return np.minimum(total, num_ranks - rank - 1)
