"""An independent, event-driven simulation of pipelines: the judge of the array version."""

from __future__ import annotations

import heapq

from paceline.parallel.orders import Action, actions_of_rank
from paceline.parallel.strategy import Schedule


def simulate_pipeline_s(
    schedule: Schedule,
    forward_s: tuple[float, ...],
    backward_s: tuple[float, ...],
) -> float:
    """Play the schedule event by event: a rank starts its next action once its input arrived."""
    num_stages = len(forward_s)
    num_ranks = num_stages // schedule.num_chunks
    todo = [list(actions_of_rank(schedule, num_ranks, rank)) for rank in range(num_ranks)]
    arrived = {Action("F", m, 0) for m in range(schedule.num_microbatches)}
    busy: set[int] = set()
    events: list[tuple[float, int, Action]] = []
    now_s, serial = 0.0, 0

    def start_what_can() -> None:
        nonlocal serial
        for rank, queue in enumerate(todo):
            if rank not in busy and queue and queue[0] in arrived:
                action = queue.pop(0)
                work_s = (forward_s if action.kind == "F" else backward_s)[action.stage]
                busy.add(rank)
                serial += 1
                heapq.heappush(events, (now_s + work_s, serial, action))

    start_what_can()
    while events:
        now_s, _, action = heapq.heappop(events)
        busy.discard(action.stage % num_ranks)
        following = _next(action, num_stages)
        if following is not None:
            arrived.add(following)
        start_what_can()
    assert not any(todo), "deadlock"
    return now_s


def _next(action: Action, num_stages: int) -> Action | None:
    if action.kind == "F":
        if action.stage == num_stages - 1:
            return Action("B", action.microbatch, action.stage)
        return Action("F", action.microbatch, action.stage + 1)
    return Action("B", action.microbatch, action.stage - 1) if action.stage else None
