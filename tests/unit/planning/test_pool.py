from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.planning.decisions.pool import (
    DeviceGroup,
    PoolJob,
    PoolSchedule,
    gang_schedule,
    plan_trials,
    schedule_pool,
    share_schedule,
)
from paceline.planning.goal.chance import Z_80


def exhaustive(jobs: list[PoolJob], groups: list[DeviceGroup], *, mean: bool) -> float:
    """Best value over every order and every allotment, device by device, without any bound."""
    sizes = {g.name: g.num_devices for g in groups}
    ways = [
        [(g, k + 1, t) for g in sizes for k, t in enumerate(job.time_s.get(g, ())[: sizes[g]])]
        for job in jobs
    ]
    best = math.inf
    for allotment in itertools.product(*ways):
        for order in itertools.permutations(range(len(jobs))):
            free_at = {g: [0.0] * n for g, n in sizes.items()}
            finishes = []
            for index in order:
                group, count, time_s = allotment[index]
                free_at[group].sort()
                start_s = free_at[group][count - 1]
                free_at[group][:count] = [start_s + time_s] * count
                finishes.append(start_s + time_s)
            value = sum(finishes) / len(finishes) if mean else max(finishes)
            best = min(best, value)
    return best


def check(schedule: PoolSchedule, jobs: list[PoolJob], groups: list[DeviceGroup]) -> None:
    """Every job once, for its own time, and never more devices in use than there are."""
    assert sorted(p.job for p in schedule.placements) == sorted(j.name for j in jobs)
    times = {j.name: j.time_s for j in jobs}
    for p in schedule.placements:
        assert p.finish_s - p.start_s == pytest.approx(times[p.job][p.group][p.num_devices - 1])
    for group in groups:
        here = [p for p in schedule.placements if p.group == group.name]
        for moment in (p.start_s for p in here):
            used = sum(p.num_devices for p in here if p.start_s <= moment < p.finish_s)
            assert used <= group.num_devices


def times(num_devices: int) -> st.SearchStrategy[tuple[float, ...]]:
    return st.lists(st.integers(1, 30).map(float), min_size=num_devices, max_size=num_devices).map(
        lambda values: tuple(sorted(values, reverse=True))
    )


pools = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 4)).flatmap(
    lambda size: st.tuples(
        st.just([DeviceGroup(name="a", num_devices=size[0]),
                 DeviceGroup(name="b", num_devices=size[1])]),
        st.lists(st.tuples(times(size[0]), times(size[1])), min_size=size[2], max_size=size[2]),
    )
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(pool=pools, mean=st.booleans())
def test_the_chosen_schedule_equals_exhaustive_search(pool, mean: bool) -> None:
    groups, tables = pool
    jobs = [PoolJob(name=str(i), time_s={"a": a, "b": b}) for i, (a, b) in enumerate(tables)]
    schedule = schedule_pool(jobs, groups, objective="mean-finish" if mean else "makespan")
    check(schedule, jobs, groups)
    assert schedule.is_optimal
    value = schedule.mean_finish_s if mean else schedule.makespan_s
    assert value == pytest.approx(exhaustive(jobs, groups, mean=mean))


@settings(max_examples=40, deadline=None)
@given(pool=pools, extra=st.integers(1, 4))
def test_more_devices_never_delay_the_last_job(pool, extra: int) -> None:
    groups, tables = pool
    jobs = [
        PoolJob(name=str(i), time_s={"a": a, "b": b, "c": a}) for i, (a, b) in enumerate(tables)
    ]
    larger = [*groups, DeviceGroup(name="c", num_devices=extra)]
    assert schedule_pool(jobs, larger).makespan_s <= schedule_pool(jobs, groups).makespan_s


def test_sharing_beats_ganging_when_scaling_is_poor() -> None:
    """Four jobs that scale to 2.5x on four devices: 4 x 40 s in turn, or 100 s side by side."""
    jobs = [PoolJob(name=str(i), time_s={"a": (100.0, 65.0, 50.0, 40.0)}) for i in range(4)]
    groups = [DeviceGroup(name="a", num_devices=4)]
    best = schedule_pool(jobs, groups)
    assert (best.policy, best.makespan_s) == ("share", 100.0)
    assert gang_schedule(jobs, groups).makespan_s == 160.0
    assert share_schedule(jobs, groups).makespan_s == 100.0


def test_ganging_finishes_jobs_earlier_on_average_when_scaling_is_perfect() -> None:
    jobs = [PoolJob(name=str(i), time_s={"a": (100.0, 50.0)}) for i in range(2)]
    groups = [DeviceGroup(name="a", num_devices=2)]
    best = schedule_pool(jobs, groups, objective="mean-finish")
    assert (best.policy, best.mean_finish_s) == ("gang", 75.0)
    assert schedule_pool(jobs, groups).makespan_s == 100.0


def test_a_large_pool_answers_with_the_best_found() -> None:
    jobs = [
        PoolJob(name=str(i), time_s={"a": tuple((60.0 + i) / k**0.9 for k in range(1, 17))})
        for i in range(24)
    ]
    groups = [DeviceGroup(name="a", num_devices=16)]
    schedule = schedule_pool(jobs, groups, max_branches=2000)
    check(schedule, jobs, groups)
    assert not schedule.is_optimal
    assert schedule.makespan_s <= share_schedule(jobs, groups).makespan_s


@given(num_trials=st.integers(1, 40), num_devices=st.integers(1, 8), power=st.floats(0, 1))
def test_trials_take_the_best_equal_split(num_trials: int, num_devices: int, power: float) -> None:
    table = [100 / k**power for k in range(1, num_devices + 1)]
    plan = plan_trials(table, num_trials, num_devices)
    for k, time_s in enumerate(table, start=1):
        waves = math.ceil(num_trials / (num_devices // k))
        assert plan.makespan_s <= waves * time_s + 1e-9


def test_impossible_pools_are_errors() -> None:
    groups = [DeviceGroup(name="a", num_devices=1)]
    with pytest.raises(InvalidInputError):
        schedule_pool([], groups)
    with pytest.raises(DoesNotFitError):
        schedule_pool([PoolJob(name="big", time_s={"a": (math.inf, 10.0)})], groups)
    with pytest.raises(InvalidInputError):
        plan_trials((1.0,), 0, 4)


@settings(max_examples=60, deadline=None)
@given(pool=pools, sigma=st.floats(0.0, 0.5))
def test_all_ends_move_by_the_factor_that_all_jobs_take_longer(pool, sigma: float) -> None:
    groups, tables = pool
    sure, unsure = (
        schedule_pool(
            [
                PoolJob(
                    name=str(i), time_s={"a": a, "b": b},
                    log_sigma={"a": (one,) * len(a), "b": (one,) * len(b)},
                )
                for i, (a, b) in enumerate(tables)
            ],
            groups,
        )
        for one in (0.0, sigma)
    )  # fmt: skip
    factor = math.exp(Z_80 * sigma)
    assert unsure.makespan_s == sure.makespan_s
    assert unsure.makespan_interval_s.high == pytest.approx(factor * sure.makespan_s)
    assert unsure.makespan_interval_s.low == pytest.approx(sure.makespan_s / factor)
    for certain, one in zip(sure.placements, unsure.placements, strict=True):
        assert certain.finish_interval_s.high == pytest.approx(certain.finish_interval_s.low)
        assert one.finish_interval_s.high == pytest.approx(factor * certain.finish_s)
