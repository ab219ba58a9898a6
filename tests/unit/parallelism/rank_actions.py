"""The actions of a rank in order, one by one, as a runtime would be told them."""

from __future__ import annotations

from typing import Literal

from paceline.parallelism.schedule.orders import orders_of
from paceline.parallelism.strategy.strategy import Schedule
from paceline.values import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """One piece of work of a rank.

    Attributes:
        kind: Forward or backward; where backward is split, ``B`` makes gradients of inputs and
            ``W`` those of weights.
        microbatch: Which microbatch, from 0.
        stage: Virtual stage, from 0; rank ``stage % num_ranks`` owns it.
    """

    kind: Literal["F", "B", "W"]
    microbatch: int
    stage: int


def actions_of_rank(schedule: Schedule, num_ranks: int, rank: int) -> tuple[Action, ...]:
    """What a rank does, in order.

    Sources:
        Huang et al., "GPipe", NeurIPS 2019; Narayanan et al., "Efficient Large-Scale Language
        Model Training on GPU Clusters Using Megatron-LM", SC 2021 (1F1B and interleaved);
        Qi, Wan, Huang, Lin, "Zero Bubble Pipeline Parallelism", ICLR 2024, section 2.2 (ZB-H1).

    >>> def order(kind, rank):
    ...     actions = actions_of_rank(Schedule(kind=kind, num_microbatches=3), 2, rank)
    ...     return " ".join(f"{action.kind}{action.microbatch}" for action in actions)
    >>> order("1f1b", 0)
    'F0 F1 B0 F2 B1 B2'
    >>> order("zbh1", 0)
    'F0 F1 B0 W0 F2 B1 W1 B2 W2'
    >>> order("zbh1", 1)
    'F0 B0 F1 B1 W0 F2 B2 W1 W2'
    """
    orders = orders_of(schedule, num_ranks)
    columns = (orders.is_backward, orders.microbatch, orders.stage, orders.num_weights)
    rows = zip(*(column[rank].tolist() for column in columns), strict=True)
    actions: list[Action] = []
    num_done = 0
    for back, microbatch, stage, num_weights in rows:
        actions.append(Action("B" if back else "F", microbatch, stage))
        actions += (Action("W", num_done + more, stage) for more in range(num_weights))
        num_done += num_weights
    return tuple(actions)
