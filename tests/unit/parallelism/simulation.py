"""An independent, event-driven simulation of pipelines: the judge of the array version."""

from __future__ import annotations

import heapq

from rank_actions import Action, actions_of_rank

from paceline.parallelism.strategy.strategy import Schedule


def simulate_pipeline_s(
    schedule: Schedule,
    forward_s: tuple[float, ...],
    backward_s: tuple[float, ...],
    weight_s: tuple[float, ...] | None = None,
) -> float:
    """Play the schedule event by event: a rank starts its next action once its input arrived.

    With ``weight_s`` backward is without gradients of weights, which are actions of their own.
    """
    num_stages = len(forward_s)
    num_ranks = num_stages // schedule.num_chunks
    todo = [list(actions_of_rank(schedule, num_ranks, rank)) for rank in range(num_ranks)]
    arrived = {Action("F", m, 0) for m in range(schedule.num_microbatches)}
    took = {"F": forward_s, "B": backward_s, "W": weight_s or ()}
    busy: set[int] = set()
    events: list[tuple[float, int, Action]] = []
    now_s, serial = 0.0, 0

    def start_what_can() -> None:
        nonlocal serial
        for rank, queue in enumerate(todo):
            if rank not in busy and queue and queue[0] in arrived:
                action = queue.pop(0)
                work_s = took[action.kind][action.stage]
                busy.add(rank)
                serial += 1
                heapq.heappush(events, (now_s + work_s, serial, action))

    start_what_can()
    while events:
        now_s, _, action = heapq.heappop(events)
        busy.discard(action.stage % num_ranks)
        arrived.update(_next(action, num_stages))
        start_what_can()
    assert not any(todo), "deadlock"
    return now_s


def _next(action: Action, num_stages: int) -> list[Action]:
    """What an action's end makes possible."""
    kind, microbatch, stage = action.kind, action.microbatch, action.stage
    if kind == "F":
        is_last = stage == num_stages - 1
        return [Action("B", microbatch, stage) if is_last else Action("F", microbatch, stage + 1)]
    own = [Action("W", microbatch, stage)] if kind == "B" else []
    return own + ([Action("B", microbatch, stage - 1)] if kind == "B" and stage else [])
