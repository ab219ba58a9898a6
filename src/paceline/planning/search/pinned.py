"""A strategy that the goal pins: whether it can be pinned, and what it does in each place.

Plain and sharded data parallel, and what inference runs, are among the candidates of the usual
search, which is narrowed to them. Everything else is evaluated as stated, on every kind of machine
whose whole number has its ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.parallelism.legality import check_costed, check_strategy
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import SEARCHED_SHARDINGS, Strategy
from paceline.planning.forecast.forecast_choice import pinned_count
from paceline.planning.forecast.forecasts import Forecast
from paceline.planning.forecast.question import Question
from paceline.planning.goal.goal import Goal
from paceline.planning.places.place_table import num_devices
from paceline.planning.places.places import Place
from paceline.planning.search.candidates import CandidateTable
from paceline.planning.search.whole_strategies import (
    SearchContext,
    WholeStrategies,
    batch_limit,
    cluster_of,
    job_of,
    known_configuration,
    machine_kinds,
    machine_of,
    placed,
)
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate
from paceline.values import dataclass

#: Sizes kept of each kind of machine.
_NUM_BEST = 2


def pinned_strategy(goal: Goal, places: Sequence[Place]) -> Strategy | None:
    """The pinned strategy; None if the goal pins none.

    Raises:
        InvalidInputError: It is no strategy, or can run in no place.
    """
    if "strategy" not in goal.pins:
        return None
    pinned = Strategy.parse(goal.pins["strategy"])
    check_costed(pinned)
    if pinned.num_ranks > goal.most_devices:
        raise InvalidInputError(
            f"`{pinned}` takes {pinned.num_ranks} devices; at most {goal.most_devices} are allowed",
            hint=f"add --max-devices {pinned.num_ranks}",
        )
    if is_searched(pinned):
        _check_places(pinned, goal, places)
    return pinned


def is_searched(pinned: Strategy) -> bool:
    """Whether a strategy is data parallel as the usual search has it.

    >>> [is_searched(Strategy.parse(text)) for text in ("dp8+zero2", "dp4.tp2", "dp8/mb4")]
    [True, False, False]
    """
    plain = Strategy.from_degrees(dp=pinned.size("dp"), sharding=pinned.sharding)
    return pinned == plain and pinned.sharding in SEARCHED_SHARDINGS


def pinned_node_counts(goal: Goal) -> tuple[int, ...]:
    """Machine counts among which the pinned ranks fill whole machines."""
    if "strategy" not in goal.pins:
        return ()
    ranks = min(Strategy.parse(goal.pins["strategy"]).num_ranks, goal.most_devices)
    return tuple(count for count in range(1, ranks + 1) if ranks % count == 0)


def narrowed(candidates: CandidateTable, forecast: Forecast, pinned: Strategy) -> CandidateTable:
    """The candidates that run the pinned strategy.

    Args:
        candidates: Of the usual search.
        forecast: What they are made of.
        pinned: Replicas, sharded or not, perhaps of tensor groups.

    Raises:
        InvalidInputError: It names an axis or option that the usual search does not have.
    """
    tensor, stages, experts = pinned.size("tp"), pinned.size("pp"), pinned.size("ep")
    known = Strategy.from_degrees(
        dp=pinned.size("dp"), tp=tensor, pp=stages, ep=experts, sharding=pinned.sharding,
        schedule=pinned.schedule if stages > 1 else None,
    )  # fmt: skip
    is_alone = stages > 1 and tensor * experts == 1
    if is_alone or pinned != known or pinned.sharding not in SEARCHED_SHARDINGS:
        raise InvalidInputError(
            f"`{pinned}` is for training; inference runs replicas of tensor groups, of stages of "
            "those with a machine each, or of groups that share experts",
            hint="pin dp, pp, ep and tp alone, such as dp4.tp2, pp2.tp8 or ep8",
        )
    kept = candidates.num_devices == pinned.num_ranks
    kept &= candidates.sharding == SEARCHED_SHARDINGS.index(pinned.sharding)
    kept &= forecast.tensor_degree[candidates.configuration] == tensor
    kept &= forecast.num_sharing[candidates.configuration] == tensor * stages * experts
    of_stages = np.array([one.stages for one in forecast.configured], dtype=np.int64)
    kept &= of_stages[candidates.configuration] == stages
    return candidates.take(np.flatnonzero(kept))


def evaluate_pinned(ground: SearchContext, pinned: Strategy) -> WholeStrategies:
    """The pinned strategy on every kind of machine, with the fastest microbatch sizes that fit.

    Args:
        ground: What is asked, and where it could run.
        pinned: The strategy.

    Raises:
        InvalidInputError: It can run on no kind of machine, or the job has several passes.
        DoesNotFitError: It can run, but fits on none.
    """
    if len(ground.question.workload.passes) > 1:
        raise InvalidInputError(
            f"`{pinned}` splits one pass, and a step of this job has several",
            hint="pin data parallel, such as strategy=dp8 or strategy=dp8+zero2",
        )
    kinds = _pinned_kinds(ground, pinned)
    jobs = [job for kind in kinds for job in kind.jobs]
    machines = [kind.machine for kind in kinds for _ in kind.jobs]
    steps = simulate(jobs, machines, calibration=ground.question.calibration)
    rows: list[WholeStrategies] = []
    failures: list[DoesNotFitError | InvalidInputError] = []
    for number, kind in enumerate(kinds):
        first = number * len(kind.jobs)
        part = steps.take(np.arange(first, first + len(kind.jobs)))
        try:
            rows.append(_placed(ground, kind, part))
        except (DoesNotFitError, InvalidInputError) as error:
            failures.append(error)
    if not rows:
        raise _told(failures) or _no_machine(pinned, ground.places)
    return WholeStrategies.of(rows)


def _microbatches(question: Question, pinned: Strategy) -> list[int]:
    """Items per replica and microbatch: as asked, or powers of two up to the largest batch."""
    goal, parts = question.goal, pinned.num_parts
    if "batch" in goal.pins:
        return [pinned_count(goal.pins["batch"])]
    limit = batch_limit(question)
    most = min(limit // parts, question.options.max_batch)
    if most < 1 or (goal.global_batch and limit % parts):
        kind = "the global batch asked for" if goal.global_batch else "the recipe's largest batch"
        raise InvalidInputError(
            f"`{pinned}` takes a multiple of {parts} items per step; {kind} is {limit}",
            hint=f"add --global-batch {-(-limit // parts) * parts}, or pin fewer replicas or "
            "microbatches",
        )
    return [most] if goal.global_batch else [2**power for power in range(most.bit_length())]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PinnedKind:
    """A pinned strategy on one kind of machine, with several microbatches.

    Attributes:
        members: Rows of its places.
        num_nodes: Machines.
        configuration: Row of the forecast.
        machine: All of them.
        jobs: One per microbatch.
    """

    members: Sequence[int]
    num_nodes: int
    configuration: int
    machine: Machine
    jobs: Sequence[Job]


def _pinned_kinds(ground: SearchContext, pinned: Strategy) -> list[_PinnedKind]:
    """Kinds of machine of which a whole number has the ranks, most memory first."""
    microbatches = _microbatches(ground.question, pinned)
    goal, memory_bytes = ground.question.goal, ground.table.memory_bytes
    precisions = [how.precision for how in ground.forecast.configurations]
    kinds = machine_kinds(ground, with_processors=True)
    found = []
    for members in sorted(kinds, key=lambda kind: -float(memory_bytes[kind[0]])):
        num_nodes, left = divmod(pinned.num_ranks, int(ground.table.devices_per_node[members[0]]))
        known = known_configuration(ground, members[0], precisions)
        if left or known is None or goal.pins.get("nodes", str(num_nodes)) != str(num_nodes):
            continue
        plain = replace(job_of(ground, known, members[0]), strategy=pinned)
        found.append(
            _PinnedKind(
                members=members, num_nodes=num_nodes, configuration=known,
                machine=machine_of(ground, members[0]).with_count(pinned.num_ranks),
                jobs=[replace(plain, batch=size) for size in microbatches],
            )
        )  # fmt: skip
    return found


def _placed(ground: SearchContext, kind: _PinnedKind, steps: Steps) -> WholeStrategies:
    """The fastest microbatches that fit at the goal's chance, in all places of a kind.

    Raises:
        InvalidInputError: The strategy cannot run there.
        DoesNotFitError: No microbatch fits.
    """
    from paceline.parallelism.fixed_strategy import does_not_fit

    steps.check()
    capacity_bytes = float(ground.table.memory_bytes[kind.members[0]])
    needed_bytes = steps.needed_bytes(ground.question.goal.memory_confidence)
    fits = np.flatnonzero(needed_bytes <= capacity_bytes)
    if not len(fits):
        raise does_not_fit(
            kind.jobs[0].strategy, float(needed_bytes.min()), kind.machine.device.name,
            capacity_bytes,
        )  # fmt: skip
    items = np.array([kind.jobs[row].batch for row in fits.tolist()])
    best = fits[np.argsort(steps.step_s[fits] / items, kind="stable")[:_NUM_BEST]]
    jobs = [kind.jobs[row] for row in best.tolist()]
    return placed(ground, kind.members, kind.num_nodes, kind.configuration, jobs, steps.take(best))


def _told(
    failures: Sequence[DoesNotFitError | InvalidInputError],
) -> DoesNotFitError | InvalidInputError | None:
    """The failure to tell: the largest memory that is too small, which comes first, or any."""
    too_large = (error for error in failures if isinstance(error, DoesNotFitError))
    return next(too_large, failures[0] if failures else None)


def _check_places(pinned: Strategy, goal: Goal, places: Sequence[Place]) -> None:
    """Raise the last place's reason unless one place takes the strategy."""
    reason: InvalidInputError | None = None
    for place in places:
        per_node = num_devices(place)
        if pinned.num_ranks % per_node:
            continue
        try:
            check_strategy(
                pinned,
                cluster_of(place, per_node),
                num_devices=pinned.num_ranks,
                global_batch=goal.global_batch or pinned.num_ranks,
                num_blocks=1,
            )
        except InvalidInputError as error:
            reason = error
        else:
            return
    if places:
        raise reason or _no_machine(pinned, places)


def _no_machine(pinned: Strategy, places: Sequence[Place]) -> InvalidInputError:
    sizes = sorted({num_devices(place) for place in places})
    return InvalidInputError(
        f"`{pinned}` takes {pinned.num_ranks} devices, which no number of whole machines has",
        hint=f"machines here have {', '.join(map(str, sizes))} devices each",
    )
