"""Jobs on a pool as people state them: models and amounts of work, devices and how many.

The times on one, two, three … devices come from the same predictions as `paceline predict`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from paceline.catalog.entities import Catalog
from paceline.catalog.lookup import find_device
from paceline.documents import parse_mapping, validate
from paceline.errors import InvalidInputError
from paceline.model.graph.workload import Task, Workload
from paceline.parallelism.uncertainty import interval_of
from paceline.planfile import Interval
from paceline.planning.decisions.pool import (
    DeviceGroup,
    PoolJob,
    PoolObjective,
    PoolSchedule,
    TrialsPlan,
    gang_schedule,
    plan_trials,
    schedule_pool,
    share_schedule,
)
from paceline.planning.forecast.grid import GridCell, predict_grid
from paceline.planning.forecast.grid_jobs import GridAxes
from paceline.planning.goal.amounts import Job, check_has_work, resolve_job
from paceline.planning.goal.chance import Z_80
from paceline.planning.goal.goal import Goal
from paceline.planning.goal.options import parse_work
from paceline.planning.goal.rewrites import check_rewrite
from paceline.reading import on_its_line, read_text
from paceline.values import dataclass

#: Batches per device that are tried; each job takes the fastest that fits.
_BATCHES = tuple(2**i for i in range(12))
_MAX_DEVICES = 16
_MAX_TRIALS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedJob:
    """One job of the file.

    Attributes:
        model: Zoo name, ``torchvision:NAME`` or ``package.module:function``.
        task: Training or inference.
        seq: Sequence length; None takes the workload's.
        work: Options of the work as on the command line; empty means the reference job.
        trials: So many equal runs of it, as a search over settings needs.
        rewrite: Settings of its step, such as ``lora_rank=16``; as it is defined without.
    """

    model: str
    task: Task = "train"
    seq: int | None = None
    work: dict[str, str | float] = field(default_factory=dict)
    trials: int = 1
    rewrite: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFile:
    """The layout of the file.

    Attributes:
        pool: Devices by name, and how many of each; each kind is a group.
        jobs: By name.
        objective: ``makespan`` or ``mean-finish``.
    """

    pool: dict[str, int]
    jobs: dict[str, StatedJob]
    objective: PoolObjective = "makespan"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsAlone:
    """Equal runs of one job with the pool's devices of a kind to themselves.

    Attributes:
        job: Its name in the file.
        plan: How they finish first.
        makespan_interval_s: Until the last of them is done, at a chance of 80 %.
    """

    job: str
    group: str
    num_trials: int
    plan: TrialsPlan
    makespan_interval_s: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAnswer:
    """The best schedule beside the two usual policies.

    Attributes:
        best: The schedule to follow.
        gang: One job after the other.
        share: As many at once as fit.
        jobs: The jobs with their times, each trial a job.
        trials: What each set of trials would do alone, on each kind of device.
        assumptions: One sentence each.
    """

    best: PoolSchedule
    gang: PoolSchedule
    share: PoolSchedule
    jobs: tuple[PoolJob, ...]
    trials: tuple[TrialsAlone, ...]
    assumptions: tuple[str, ...]


def read_pool(path: Path, catalog: Catalog) -> PoolFile:
    """Read a pool file, which may come from anybody.

    Raises:
        InvalidInputError: Not such a file, or a value that makes no sense.
        UnknownNameError: A device that the catalogue has not.
    """
    text, hint = read_text(path, what="pool file"), "begin it with `pool: {a100: 4}`"
    content = parse_mapping(text, what="pool file", hint=hint)
    stated = validate(PoolFile, content, what="pool file")
    counts = list(stated.pool.values())
    if not counts or not stated.jobs or min(counts) < 1 or max(counts) > _MAX_DEVICES:
        raise InvalidInputError(
            f"a pool has 1 to {_MAX_DEVICES} devices of each kind, and at least one job",
            hint="write `pool: {a100: 4, rtx 3090: 2}` and `jobs:` below it",
        )
    for name in stated.pool:
        with on_its_line(path, name):
            find_device(catalog, name)
    for name, job in stated.jobs.items():
        if not 1 <= job.trials <= _MAX_TRIALS:
            raise InvalidInputError(
                f"`{name}` has {job.trials} trials", hint=f"give 1 to {_MAX_TRIALS}"
            )
        check_rewrite(job.rewrite)
    return stated


def plan_pool(
    stated: PoolFile, catalog: Catalog, load: Callable[[StatedJob], Workload]
) -> PoolAnswer:
    """The schedule of the stated jobs, from predicted times.

    Raises:
        UnknownNameError: A device, model or option that does not exist.
        DoesNotFitError: A job that runs on no devices of the pool.
    """
    counts = {find_device(catalog, name).name: count for name, count in stated.pool.items()}
    groups = [DeviceGroup(name=name, num_devices=count) for name, count in counts.items()]
    workloads = {name: load(job) for name, job in stated.jobs.items()}
    times = {
        name: _times(job, workloads[name], counts, catalog) for name, job in stated.jobs.items()
    }
    jobs = tuple(
        PoolJob(name=run, time_s=times[name].time_s, log_sigma=times[name].log_sigma)
        for name, job in stated.jobs.items()
        for run in _runs(name, job.trials)
    )
    return PoolAnswer(
        best=schedule_pool(jobs, groups, objective=stated.objective),
        gang=gang_schedule(jobs, groups),
        share=share_schedule(jobs, groups),
        jobs=jobs,
        trials=tuple(_alone(stated, times, counts)),
        assumptions=(
            *_unstated(stated, workloads),
            "times are medians of predictions, with what four of five cases keep to if all jobs "
            "err together",
            "each job runs data parallel, compiled where it can",
            "devices of a kind share one machine; a job keeps its devices from start to finish",
        ),
    )


def _runs(name: str, num_trials: int) -> Iterator[str]:
    """One name per run, that of the job if there is one only."""
    yield from (
        [name]
        if num_trials == 1
        else [f"{name} {n}/{num_trials}" for n in range(1, num_trials + 1)]
    )


def _alone(
    stated: PoolFile,
    times: Mapping[str, _Times],
    counts: Mapping[str, int],
) -> Iterator[TrialsAlone]:
    """Each set of trials on each kind of device that runs it."""
    for name, job in stated.jobs.items():
        for group, time_s in times[name].time_s.items():
            if job.trials > 1 and math.isfinite(min(time_s)):
                plan = plan_trials(time_s, job.trials, counts[group])
                sigma = times[name].log_sigma[group][plan.num_devices_each - 1]
                yield TrialsAlone(
                    job=name,
                    group=group,
                    num_trials=job.trials,
                    plan=plan,
                    makespan_interval_s=interval_of(plan.makespan_s, sigma),
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """Of a job by device, on one, two, three … of them, as `PoolJob` has them."""

    time_s: Mapping[str, tuple[float, ...]]
    log_sigma: Mapping[str, tuple[float, ...]]


def _times(
    job: StatedJob, workload: Workload, counts: Mapping[str, int], catalog: Catalog
) -> _Times:
    work = parse_work({name: str(value) for name, value in job.work.items()})
    samples = _num_samples(_job_of(job, workload), workload)
    grid = predict_grid(
        workload,
        Goal(),
        work,
        catalog,
        GridAxes(
            devices=[find_device(catalog, name) for name in counts],
            counts=range(1, max(counts.values()) + 1),
            batches=_BATCHES,
            seq=job.seq,
            rewrite=job.rewrite,
        ),
    )
    limit = workload.max_global_batch if workload.task == "train" else None
    best = {
        name: [_best_rate(grid.cells, name, k, limit) for k in range(1, count + 1)]
        for name, count in counts.items()
    }
    return _Times(
        time_s={
            name: tuple(samples / rate.mid if rate else math.inf for rate in rates)
            for name, rates in best.items()
        },
        log_sigma={
            name: tuple(math.log(rate.high / rate.mid) / Z_80 if rate else 0.0 for rate in rates)
            for name, rates in best.items()
        },
    )


def _best_rate(
    cells: Sequence[GridCell], device: str, count: int, limit: int | None
) -> Interval | None:
    """Highest throughput of a batch that fits and that trains as the recipe does; None of none."""
    rates = (
        cell.samples_per_s
        for cell in cells
        if cell.device == device
        and cell.num_devices == count
        and (limit is None or cell.batch_per_device * count <= limit)
    )
    return max(filter(None, rates), key=lambda rate: rate.mid, default=None)


def _unstated(stated: PoolFile, workloads: Mapping[str, Workload]) -> Iterator[str]:
    """What jobs without an amount of work are taken to do."""
    for name, job in stated.jobs.items():
        taken = _job_of(job, workloads[name]).assumption
        if taken:
            yield f"{name}: {taken.partition(' (')[0]} (say otherwise with `work:`)"


def _job_of(job: StatedJob, workload: Workload) -> Job:
    work = parse_work({name: str(value) for name, value in job.work.items()})
    seq = job.seq or workload.default_seq
    return resolve_job(workload, work, seq=seq, rewrite=job.rewrite)


def _num_samples(job: Job, workload: Workload) -> float:
    check_has_work(job, workload)
    amount = job.amount
    return (amount.items_per_epoch or 0) * amount.num_epochs * amount.samples_per_item
