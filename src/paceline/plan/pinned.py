"""A strategy that the goal pins: whether it can run in any of the places."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import InvalidInputError
from paceline.parallel import Cluster, Strategy, check_strategy
from paceline.parallel.legality import check_costed
from paceline.plan.candidates import SHARDINGS
from paceline.plan.goal import Goal
from paceline.plan.places import Place


def pinned_strategy(goal: Goal, places: Sequence[Place]) -> Strategy | None:
    """The pinned strategy; None if the goal pins none.

    Args:
        goal: What is wanted.
        places: Where it could run.

    Raises:
        InvalidInputError: It is no strategy that can be pinned, or can run in no place.
    """
    if "strategy" not in goal.pins:
        return None
    pinned = Strategy.parse(goal.pins["strategy"])
    check_costed(pinned)
    if pinned.num_ranks != pinned.size("dp") or pinned.sharding not in SHARDINGS:
        raise InvalidInputError(
            f"`{pinned}` is not among the strategies that can be pinned",
            hint="pin plain or sharded data parallel: dp8, dp8+zero2, dp8+zero3; "
            "`paceline scale --strategy` takes any",
        )
    if pinned.num_ranks > goal.max_devices:
        raise InvalidInputError(
            f"`{pinned}` takes {pinned.num_ranks} devices; at most {goal.max_devices} are allowed",
            hint=f"add --max-devices {pinned.num_ranks}",
        )
    _check_places(pinned, goal, places)
    return pinned


def pinned_node_counts(goal: Goal) -> tuple[int, ...]:
    """Machine counts among which the pinned ranks fill whole machines."""
    if "strategy" not in goal.pins:
        return ()
    ranks = min(Strategy.parse(goal.pins["strategy"]).num_ranks, goal.max_devices)
    return tuple(count for count in range(1, ranks + 1) if ranks % count == 0)


def _check_places(pinned: Strategy, goal: Goal, places: Sequence[Place]) -> None:
    """Raise the last place's reason unless one place takes the strategy."""
    parts = pinned.num_ranks * pinned.schedule.num_microbatches
    reason: InvalidInputError | None = None
    for place in places:
        per_node = int(place.offer.num_devices)
        if per_node < 1 or pinned.num_ranks % per_node:
            continue
        cluster = Cluster(
            device=place.device,
            devices_per_node=per_node,
            device_link=place.links.device,
            node_link=place.links.node,
        )
        try:
            check_strategy(
                pinned,
                cluster,
                num_devices=pinned.num_ranks,
                global_batch=goal.global_batch or parts,
                num_blocks=1,
            )
        except InvalidInputError as error:
            reason = error
        else:
            return
    if places:
        raise reason or _no_machine(pinned, places)


def _no_machine(pinned: Strategy, places: Sequence[Place]) -> InvalidInputError:
    sizes = sorted({int(place.offer.num_devices) for place in places})
    return InvalidInputError(
        f"`{pinned}` takes {pinned.num_ranks} devices, which no number of whole machines has",
        hint=f"machines here have {', '.join(map(str, sizes))} devices each",
    )
