"""Several jobs on one pool: give one job all devices, or each job its own?

A pool has groups of equal devices. A job knows its time on any number of devices of each group;
it keeps its devices from start to finish. The best schedule is searched by branch and bound, which
is exact within its limit, and says so; beyond it the best of the usual policies is returned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from paceline.errors import DoesNotFitError, InvalidInputError

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
    """

    name: str
    time_s: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """A job with its devices and its time."""

    job: str
    group: str
    num_devices: int
    start_s: float
    finish_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSchedule:
    """When each job runs where.

    Attributes:
        policy: ``gang`` (one job after the other on as many devices as help), ``share`` (as many
            jobs at once as devices allow, one each) or ``mixed``.
        placements: In order of their start.
        makespan_s: Until the last job is done.
        mean_finish_s: Mean over the jobs.
        is_optimal: Whether no better schedule exists.
    """

    policy: str
    placements: tuple[PlacedJob, ...]
    makespan_s: float
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
    search = _Search(jobs, groups, options, objective, max_branches)
    for policy in (_gang_order(options, groups), _share_order(options)):
        search.offer(_serial(policy, groups))
    search.run()
    return _schedule(search.best, jobs, groups, options, is_optimal=search.is_complete)


def gang_schedule(jobs: Sequence[PoolJob], groups: Sequence[DeviceGroup]) -> PoolSchedule:
    """Every job on as many devices as make it fastest, the shortest first."""
    options = _options(jobs, groups)
    placed = _serial(_gang_order(options, groups), groups)
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
        for num_devices, time_s in enumerate(times, start=1):
            if time_s < best_s:
                best_s = time_s
                yield _Option(job=index, group=group_index, num_devices=num_devices, time_s=time_s)


class _Search:
    """Branch and bound over orders of start and ways to run."""

    def __init__(
        self,
        jobs: Sequence[PoolJob],
        groups: Sequence[DeviceGroup],
        options: list[list[_Option]],
        objective: PoolObjective,
        max_branches: int,
    ) -> None:
        self._groups = groups
        self._options = options
        self._objective = objective
        self._branches_left = max_branches
        self._shortest_s = [min(o.time_s for o in ways) for ways in options]
        self._least_area = [min(o.num_devices * o.time_s for o in ways) for ways in options]
        self._num_devices = sum(group.num_devices for group in groups)
        self._twin = [
            next(j for j in range(i + 1) if jobs[j].time_s == jobs[i].time_s)
            for i in range(len(jobs))
        ]
        self.best: list[_Placed] = []
        self._best_value = math.inf

    @property
    def is_complete(self) -> bool:
        """Whether every branch was looked at or excluded."""
        return self._branches_left > 0

    def offer(self, placed: list[_Placed]) -> None:
        """Keep a whole schedule if it is the best so far."""
        value = self._value(placed)
        if value < self._best_value:
            self.best, self._best_value = list(placed), value

    def run(self) -> None:
        """Search from the empty schedule."""
        self._branch([], frozenset(range(len(self._options))), 0.0)

    def _branch(self, placed: list[_Placed], left: frozenset[int], last_start_s: float) -> None:
        if not left:
            self.offer(placed)
            return
        for way in self._ways(left):
            start_s = _earliest_start_s(placed, way, self._groups)
            if start_s < last_start_s or self._branches_left <= 0:
                continue
            self._branches_left -= 1
            longer = [*placed, (way, start_s)]
            rest = left - {way.job}
            if self._bound(longer, rest) < self._best_value * (1 - 1e-12):
                self._branch(longer, rest, start_s)

    def _ways(self, left: frozenset[int]) -> Iterator[_Option]:
        """Ways to run the jobs left; of equal jobs only the first."""
        seen: set[int] = set()
        for job in sorted(left, key=lambda j: -self._shortest_s[j]):
            if self._twin[job] not in seen:
                seen.add(self._twin[job])
                yield from self._options[job]

    def _bound(self, placed: list[_Placed], left: frozenset[int]) -> float:
        """No completion of this partial schedule is better."""
        last_start_s = placed[-1][1]
        soonest = [last_start_s + self._shortest_s[j] for j in left]
        finishes = [start + way.time_s for way, start in placed]
        if self._objective == "mean-finish":
            return (sum(finishes) + sum(soonest)) / (len(placed) + len(left))
        area = sum(way.num_devices * way.time_s for way, _ in placed)
        area += sum(self._least_area[j] for j in left)
        return max(area / self._num_devices, *finishes, *soonest)

    def _value(self, placed: list[_Placed]) -> float:
        finishes = [start + way.time_s for way, start in placed]
        if self._objective == "mean-finish":
            return sum(finishes) / len(finishes)
        return max(finishes)


def _gang_order(options: list[list[_Option]], groups: Sequence[DeviceGroup]) -> list[_Option]:
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


def _earliest_start_s(placed: list[_Placed], way: _Option, groups: Sequence[DeviceGroup]) -> float:
    """First moment at which enough devices of the group are free for the whole job."""
    peers = [(o, start) for o, start in placed if o.group == way.group]
    free = groups[way.group].num_devices - way.num_devices
    moments = sorted({0.0, *(start + o.time_s for o, start in peers)})
    return next(t for t in moments if _peak_use(peers, t, t + way.time_s) <= free)


def _peak_use(peers: list[_Placed], begin_s: float, end_s: float) -> int:
    """Most devices in use at once within an interval."""
    inside = [(o, s) for o, s in peers if s < end_s and s + o.time_s > begin_s]
    moments = [begin_s, *(s for _, s in inside if s > begin_s)]
    return max(
        sum(o.num_devices for o, s in inside if s <= moment < s + o.time_s) for moment in moments
    )


def _schedule(
    placed: list[_Placed],
    jobs: Sequence[PoolJob],
    groups: Sequence[DeviceGroup],
    options: list[list[_Option]],
    *,
    is_optimal: bool,
) -> PoolSchedule:
    placements = tuple(
        PlacedJob(
            job=jobs[way.job].name,
            group=groups[way.group].name,
            num_devices=way.num_devices,
            start_s=start_s,
            finish_s=start_s + way.time_s,
        )
        for way, start_s in sorted(placed, key=lambda p: (p[1], p[0].job))
    )
    finishes = [p.finish_s for p in placements]
    return PoolSchedule(
        policy=_policy([way for way, _ in placed], options),
        placements=placements,
        makespan_s=max(finishes),
        mean_finish_s=sum(finishes) / len(finishes),
        is_optimal=is_optimal,
    )


def _policy(chosen: list[_Option], options: list[list[_Option]]) -> str:
    """What the schedule amounts to, as a word."""
    least = all(o.num_devices == min(w.num_devices for w in options[o.job]) for o in chosen)
    most = all(o.time_s == min(w.time_s for w in options[o.job]) for o in chosen)
    if least:
        return "share"
    return "gang" if most else "mixed"
