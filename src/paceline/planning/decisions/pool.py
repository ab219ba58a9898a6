"""Several jobs on one pool: give one job all devices, or each job its own?

A pool has groups of equal devices. A job knows its time on any number of devices of each group;
it keeps its devices from start to finish. The best schedule is searched by branch and bound, which
is exact within its limit, and says so; beyond it the best of the usual policies is returned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.planfile import Interval
from paceline.planning.goal.chance import Z_80
from paceline.values import dataclass

PoolObjective = Literal["makespan", "mean-finish"]
#: Branches looked at before the search stops and returns the best found.
MAX_BRANCHES = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Equal devices of a pool."""

    name: str
    num_devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolJob:
    """A job and how long it takes.

    Attributes:
        name: As printed.
        time_s: Per group, the time on one, two, three … devices; infinite where impossible.
        log_sigma: Standard deviation of the logarithm of each of these; certain where left out.
    """

    name: str
    time_s: Mapping[str, tuple[float, ...]]
    log_sigma: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """A job with its devices and its time; the interval is that of ``finish_s``."""

    job: str
    group: str
    num_devices: int
    start_s: float
    finish_s: float
    finish_interval_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSchedule:
    """When each job runs where.

    Attributes:
        policy: ``gang`` (one job after the other on as many devices as help), ``share`` (as many
            jobs at once as devices allow, one each) or ``mixed``.
        placements: In order of their start.
        makespan_s: Until the last job is done.
        makespan_interval_s: Of that, at a chance of 80 %, all jobs erring together.
        mean_finish_s: Mean over the jobs.
        is_optimal: Whether no better schedule exists.
    """

    policy: str
    placements: tuple[PlacedJob, ...]
    makespan_s: float
    makespan_interval_s: Interval
    mean_finish_s: float
    is_optimal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsPlan:
    """N equal trials on equal devices: how many devices each, in how many waves."""

    num_devices_each: int
    num_waves: int
    makespan_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """One way to run a job."""

    job: int
    group: int
    num_devices: int
    time_s: float
    log_sigma: float = 0.0


_Placed = tuple[_Option, float]


def schedule_pool(
    jobs: Sequence[PoolJob],
    groups: Sequence[DeviceGroup],
    *,
    objective: PoolObjective = "makespan",
    max_branches: int = MAX_BRANCHES,
) -> PoolSchedule:
    """The best schedule of ``jobs`` on the pool.

    Raises:
        InvalidInputError: No jobs, or no devices.
        DoesNotFitError: A job that runs on no group.
    """
    options = _options(jobs, groups)
    known = [_serial(order, groups) for order in (_gang_order(options), _share_order(options))]
    problem = _problem(jobs, groups, options, objective)
    best, is_complete = _best_schedule(problem, known, max_branches)
    return _schedule(best, jobs, groups, options, is_optimal=is_complete)


def gang_schedule(jobs: Sequence[PoolJob], groups: Sequence[DeviceGroup]) -> PoolSchedule:
    """Every job on as many devices as make it fastest, the shortest first."""
    options = _options(jobs, groups)
    placed = _serial(_gang_order(options), groups)
    return _schedule(placed, jobs, groups, options, is_optimal=False)


def share_schedule(jobs: Sequence[PoolJob], groups: Sequence[DeviceGroup]) -> PoolSchedule:
    """Every job on as few devices as it can, as many at once as fit, the longest first."""
    options = _options(jobs, groups)
    return _schedule(
        _serial(_share_order(options), groups), jobs, groups, options, is_optimal=False
    )


def plan_trials(time_s: Sequence[float], num_trials: int, num_devices: int) -> TrialsPlan:
    """Devices per trial that finish ``num_trials`` equal trials first; of equals, the fewest.

    Args:
        time_s: Time of one trial on one, two, three … devices.
        num_trials: How many.
        num_devices: In the pool.

    >>> plan_trials((100.0, 60.0), 8, 4)
    TrialsPlan(num_devices_each=1, num_waves=2, makespan_s=200.0)
    """
    if num_trials < 1 or num_devices < 1:
        raise InvalidInputError("no trials or no devices", hint="give at least one of each")
    plans = [
        TrialsPlan(num_devices_each=k, num_waves=waves, makespan_s=waves * t)
        for k, t in enumerate(time_s[:num_devices], start=1)
        for waves in (math.ceil(num_trials / (num_devices // k)),)
    ]
    return min(plans, key=lambda plan: (plan.makespan_s, plan.num_devices_each))


def _options(jobs: Sequence[PoolJob], groups: Sequence[DeviceGroup]) -> list[list[_Option]]:
    """Per job, its ways to run; more devices without a gain are left out."""
    if not jobs or sum(group.num_devices for group in groups) < 1:
        raise InvalidInputError("no jobs or no devices to plan", hint="give at least one of each")
    found = [list(_job_options(index, job, groups)) for index, job in enumerate(jobs)]
    for job, ways in zip(jobs, found, strict=True):
        if not ways:
            raise DoesNotFitError(
                f"`{job.name}` runs on no devices of the pool", hint="add a larger group"
            )
    return found


def _job_options(index: int, job: PoolJob, groups: Sequence[DeviceGroup]) -> Iterator[_Option]:
    for group_index, group in enumerate(groups):
        best_s = math.inf
        times = job.time_s.get(group.name, ())[: group.num_devices]
        sigmas = job.log_sigma.get(group.name, (0.0,) * len(times))
        for num_devices, (time_s, sigma) in enumerate(zip(times, sigmas, strict=False), start=1):
            if time_s < best_s:
                best_s = time_s
                yield _Option(
                    job=index, group=group_index, num_devices=num_devices, time_s=time_s,
                    log_sigma=sigma,
                )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """What the search looks at again and again.

    Attributes:
        groups: Of the pool.
        options: Per job, its ways to run.
        objective: What is to be small.
        shortest_s: Per job, its shortest time.
        least_area: Per job, its least device-seconds.
        twin: Per job, the first job with the same times.
    """

    groups: Sequence[DeviceGroup]
    options: list[list[_Option]]
    objective: PoolObjective
    shortest_s: tuple[float, ...]
    least_area: tuple[float, ...]
    twin: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partial:
    """A branch: jobs placed in order of their start, and those left."""

    placed: tuple[_Placed, ...] = ()
    left: frozenset[int]
    last_start_s: float = 0.0


def _problem(
    jobs: Sequence[PoolJob],
    groups: Sequence[DeviceGroup],
    options: list[list[_Option]],
    objective: PoolObjective,
) -> _Problem:
    numbers = range(len(jobs))
    return _Problem(
        groups=groups,
        options=options,
        objective=objective,
        shortest_s=tuple(min(o.time_s for o in ways) for ways in options),
        least_area=tuple(min(o.num_devices * o.time_s for o in ways) for ways in options),
        twin=tuple(next(j for j in numbers if jobs[j].time_s == jobs[i].time_s) for i in numbers),
    )


def _best_schedule(
    problem: _Problem, known: Sequence[Sequence[_Placed]], max_branches: int
) -> tuple[Sequence[_Placed], bool]:
    """Branch and bound over orders of start and ways to run.

    Args:
        problem: What is searched.
        known: Whole schedules to beat.
        max_branches: Partial schedules looked at, at most.

    Returns:
        The best schedule, and whether every branch was looked at or excluded.
    """
    best = min(known, key=lambda placed: _value(problem, placed))
    stack = [_Partial(left=frozenset(range(len(problem.options))))]
    num_branches = 0
    while stack and num_branches < max_branches:
        branch = stack.pop()
        num_branches += 1
        limit = _value(problem, best) * (1 - 1e-12)
        if branch.placed and _bound(problem, branch) >= limit:
            continue
        if branch.left:
            stack.extend(reversed(list(_longer(problem, branch))))
        else:
            best = branch.placed
    return best, not stack


def _longer(problem: _Problem, branch: _Partial) -> Iterator[_Partial]:
    """Branches with one more job, none starting before the last; of equal jobs only the first."""
    seen: set[int] = set()
    for job in sorted(branch.left, key=lambda j: -problem.shortest_s[j]):
        if problem.twin[job] in seen:
            continue
        seen.add(problem.twin[job])
        for way in problem.options[job]:
            start_s = _earliest_start_s(branch.placed, way, problem.groups)
            if start_s >= branch.last_start_s:
                yield _Partial(
                    placed=(*branch.placed, (way, start_s)),
                    left=branch.left - {job},
                    last_start_s=start_s,
                )


def _bound(problem: _Problem, branch: _Partial) -> float:
    """No completion of this branch is better."""
    soonest = [branch.last_start_s + problem.shortest_s[j] for j in branch.left]
    finishes = [start + way.time_s for way, start in branch.placed]
    if problem.objective == "mean-finish":
        return (sum(finishes) + sum(soonest)) / (len(finishes) + len(soonest))
    area = sum(way.num_devices * way.time_s for way, _ in branch.placed)
    area += sum(problem.least_area[j] for j in branch.left)
    num_devices = sum(group.num_devices for group in problem.groups)
    return max(area / num_devices, *finishes, *soonest)


def _value(problem: _Problem, placed: Sequence[_Placed]) -> float:
    finishes = [start + way.time_s for way, start in placed]
    return sum(finishes) / len(finishes) if problem.objective == "mean-finish" else max(finishes)


def _gang_order(options: list[list[_Option]]) -> list[_Option]:
    fastest = [min(ways, key=lambda o: (o.time_s, o.num_devices)) for ways in options]
    return sorted(fastest, key=lambda o: o.time_s)


def _share_order(options: list[list[_Option]]) -> list[_Option]:
    smallest = [min(ways, key=lambda o: (o.num_devices, o.time_s)) for ways in options]
    return sorted(smallest, key=lambda o: -o.time_s)


def _serial(order: list[_Option], groups: Sequence[DeviceGroup]) -> list[_Placed]:
    """Each job as early as the devices allow, in the given order."""
    placed: list[_Placed] = []
    for way in order:
        placed.append((way, _earliest_start_s(placed, way, groups)))
    return placed


def _earliest_start_s(
    placed: Sequence[_Placed], way: _Option, groups: Sequence[DeviceGroup]
) -> float:
    """First moment at which enough devices of the group are free for the whole job."""
    peers = [(o, start) for o, start in placed if o.group == way.group]
    free = groups[way.group].num_devices - way.num_devices
    moments = sorted({0.0, *(start + o.time_s for o, start in peers)})
    return next(t for t in moments if _peak_use(peers, t, t + way.time_s) <= free)


def _peak_use(peers: Sequence[_Placed], begin_s: float, end_s: float) -> int:
    """Most devices in use at once within an interval."""
    inside = [(o, s) for o, s in peers if s < end_s and s + o.time_s > begin_s]
    moments = [begin_s, *(s for _, s in inside if s > begin_s)]
    return max(
        sum(o.num_devices for o, s in inside if s <= moment < s + o.time_s) for moment in moments
    )


def _schedule(
    placed: Sequence[_Placed],
    jobs: Sequence[PoolJob],
    groups: Sequence[DeviceGroup],
    options: list[list[_Option]],
    *,
    is_optimal: bool,
) -> PoolSchedule:
    in_order = sorted(placed, key=lambda p: (p[1], p[0].job))
    bounds = [_finishes(in_order, groups, z) for z in (-Z_80, Z_80)]
    placements = tuple(
        PlacedJob(
            job=jobs[way.job].name,
            group=groups[way.group].name,
            num_devices=way.num_devices,
            start_s=start_s,
            finish_s=start_s + way.time_s,
            finish_interval_s=_around(start_s + way.time_s, low, high),
        )
        for (way, start_s), low, high in zip(in_order, *bounds, strict=True)
    )
    finishes = [p.finish_s for p in placements]
    return PoolSchedule(
        policy=_policy([way for way, _ in placed], options),
        placements=placements,
        makespan_s=max(finishes),
        makespan_interval_s=_around(max(finishes), max(bounds[0]), max(bounds[1])),
        mean_finish_s=sum(finishes) / len(finishes),
        is_optimal=is_optimal,
    )


def _finishes(placed: Sequence[_Placed], groups: Sequence[DeviceGroup], z: float) -> list[float]:
    """When each job is done if all take ``z`` standard deviations longer, in the same order."""
    order = [replace(way, time_s=way.time_s * math.exp(z * way.log_sigma)) for way, _ in placed]
    return [start_s + way.time_s for way, start_s in _serial(order, groups)]


def _around(finish_s: float, low_s: float, high_s: float) -> Interval:
    """An interval that holds the median: a job that takes longer can let a later one in earlier."""
    return Interval(low=min(low_s, finish_s), mid=finish_s, high=max(high_s, finish_s))


def _policy(chosen: list[_Option], options: list[list[_Option]]) -> str:
    """What the schedule amounts to, as a word."""
    least = all(o.num_devices == min(w.num_devices for w in options[o.job]) for o in chosen)
    most = all(o.time_s == min(w.time_s for w in options[o.job]) for o in chosen)
    if least:
        return "share"
    return "gang" if most else "mixed"
