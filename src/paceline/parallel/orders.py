"""Pipeline schedules as orders of actions, and as a dependency graph in levels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from paceline.parallel.strategy import Schedule


@dataclass(frozen=True, slots=True)
class Action:
    """One piece of work of a rank.

    Attributes:
        kind: Forward or backward.
        microbatch: Which microbatch, from 0.
        stage: Virtual stage, from 0; rank ``stage % num_ranks`` owns it.
    """

    kind: Literal["F", "B"]
    microbatch: int
    stage: int


def actions_of_rank(schedule: Schedule, num_ranks: int, rank: int) -> tuple[Action, ...]:
    """What a rank does, in order.

    Sources:
        Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "Efficient Large-Scale Language
        Model Training on GPU Clusters Using Megatron-LM", SC 2021 (1F1B and interleaved).

    >>> text = actions_of_rank(Schedule(kind="1f1b", num_microbatches=3), 2, 0)
    >>> " ".join(f"{a.kind}{a.microbatch}" for a in text)
    'F0 F1 B0 F2 B1 B2'
    """
    count, chunks = schedule.num_microbatches, schedule.num_chunks
    forward = [_unit("F", i, num_ranks, rank, schedule) for i in range(count * chunks)]
    backward = [_unit("B", i, num_ranks, rank, schedule) for i in range(count * chunks)]
    warm = _num_warm(schedule, num_ranks, rank)
    steady = [a for pair in zip(forward[warm:], backward, strict=False) for a in pair]
    return (*forward[:warm], *steady, *backward[len(forward) - warm :])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Level:
    """Actions that depend only on earlier levels. Columns index all actions; 0 is the start.

    Attributes:
        columns: Columns of these actions, consecutive.
        rank_before: Column of the action before on the same rank.
        source: Column of the action whose output is needed.
        work: Virtual stage, plus the number of virtual stages for backward.
    """

    columns: slice
    rank_before: npt.NDArray[np.int64]
    source: npt.NDArray[np.int64]
    work: npt.NDArray[np.int64]


@lru_cache(maxsize=256)
def levels_of(schedule: Schedule, num_ranks: int) -> tuple[Level, ...]:
    """The schedule as levels: once a level's inputs are known it is a single array operation."""
    queues = [list(reversed(actions_of_rank(schedule, num_ranks, r))) for r in range(num_ranks)]
    column: dict[Action, int] = {}
    last, levels = [0] * num_ranks, []
    num_stages = num_ranks * schedule.num_chunks
    while any(queues):
        heads = [
            (rank, queue[-1], source)
            for rank, queue in enumerate(queues)
            if queue and (source := _source_column(queue[-1], column, num_stages)) is not None
        ]
        assert heads, "a schedule never deadlocks"
        levels.append(_level(heads, last, len(column) + 1, num_stages))
        for position, (rank, action, _) in enumerate(heads):
            queues[rank].pop()
            last[rank] = levels[-1].columns.start + position
            column[action] = last[rank]
    return tuple(levels)


def _level(
    heads: list[tuple[int, Action, int]], last: list[int], start: int, num_stages: int
) -> Level:  # fmt: skip
    actions = [action for _, action, _ in heads]
    return Level(
        columns=slice(start, start + len(heads)),
        rank_before=np.array([last[rank] for rank, _, _ in heads]),
        source=np.array([source for _, _, source in heads]),
        work=np.array([a.stage + num_stages * (a.kind == "B") for a in actions]),
    )


def _starts_here(action: Action, num_stages: int) -> bool:
    """Whether the input comes from the rank itself: data at the start, the loss at the end."""
    return action.stage == (0 if action.kind == "F" else num_stages - 1)


def _source_column(action: Action, column: dict[Action, int], num_stages: int) -> int | None:
    """Column of what an action needs; None while that is not known."""
    if not _starts_here(action, num_stages):
        step = -1 if action.kind == "F" else 1
        return column.get(Action(action.kind, action.microbatch, action.stage + step))
    if action.kind == "F":
        return 0
    return column.get(Action("F", action.microbatch, action.stage))


def _num_warm(schedule: Schedule, num_ranks: int, rank: int) -> int:
    """Forwards before the first backward."""
    total = schedule.num_microbatches * schedule.num_chunks
    if schedule.kind == "gpipe":
        return total
    if schedule.kind == "interleaved":
        return min(total, 2 * (num_ranks - rank - 1) + (schedule.num_chunks - 1) * num_ranks)
    return min(total, num_ranks - rank - 1)


def _unit(
    kind: Literal["F", "B"], index: int, num_ranks: int, rank: int, schedule: Schedule
) -> Action:
    """The ``index``-th forward or backward of a rank.

    Interleaved: groups of ``num_ranks`` microbatches pass all chunks before the next group.
    """
    chunks = schedule.num_chunks
    group, within = divmod(index, num_ranks * chunks)
    chunk, member = divmod(within, num_ranks)
    if chunks == 1:
        return Action(kind, index, rank)
    chunk = chunk if kind == "F" else chunks - 1 - chunk
    return Action(kind, group * num_ranks + member, chunk * num_ranks + rank)
