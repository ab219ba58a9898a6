"""Jobs on a pool as people state them: models and amounts of work, devices and how many.

The times on one, two, three … devices come from the same predictions as `paceline predict`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.catalog import find_device
from paceline.catalog.entities import Catalog
from paceline.errors import InvalidInputError
from paceline.plan.amounts import resolve_job
from paceline.plan.documents import parse_yaml, read_text, validate
from paceline.plan.goal import Goal, Work
from paceline.plan.grid import GridCell, predict_grid
from paceline.plan.options import parse_work
from paceline.plan.pool import (
    DeviceGroup,
    PoolJob,
    PoolObjective,
    PoolSchedule,
    gang_schedule,
    schedule_pool,
    share_schedule,
)
from paceline.trace.workload import Task, Workload

#: Batches per device that are tried; each job takes the fastest that fits.
_BATCHES = tuple(2**i for i in range(12))
_MAX_DEVICES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedJob:
    """One job of the file.

    Attributes:
        model: Zoo name, ``torchvision:NAME`` or ``package.module:function``.
        task: Training or inference.
        seq: Sequence length; None takes the workload's.
        work: Options of the work as on the command line; empty means the reference job.
    """

    model: str
    task: Task = "train"
    seq: int | None = None
    work: dict[str, str | float] = field(default_factory=dict)


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
class PoolAnswer:
    """The best schedule beside the two usual policies.

    Attributes:
        best: The schedule to follow.
        gang: One job after the other.
        share: As many at once as fit.
        jobs: The jobs with their times.
        assumptions: One sentence each.
    """

    best: PoolSchedule
    gang: PoolSchedule
    share: PoolSchedule
    jobs: tuple[PoolJob, ...]
    assumptions: tuple[str, ...]


def read_pool(path: Path) -> PoolFile:
    """Read a pool file, which may come from anybody.

    Raises:
        InvalidInputError: Not such a file, or a value that makes no sense.
    """
    content = parse_yaml(read_text(path, what="pool file"), what="pool file")
    if not isinstance(content, dict):
        raise InvalidInputError(
            "the pool file is not a mapping", hint="begin it with `pool: {a100: 4}`"
        )
    stated = validate(PoolFile, content, what="pool file")
    counts = list(stated.pool.values())
    if not counts or not stated.jobs or min(counts) < 1 or max(counts) > _MAX_DEVICES:
        raise InvalidInputError(
            f"a pool has 1 to {_MAX_DEVICES} devices of each kind, and at least one job",
            hint="write `pool: {a100: 4, rtx 3090: 2}` and `jobs:` below it",
        )
    return stated


def plan_pool(
    stated: PoolFile, catalog: Catalog, load: Callable[[StatedJob], Workload]
) -> PoolAnswer:
    """The schedule of the stated jobs, from predicted times.

    Args:
        stated: What the file says.
        catalog: Where the devices are.
        load: Gives the workload of a job.

    Raises:
        UnknownNameError: A device, model or option that does not exist.
        DoesNotFitError: A job that runs on no devices of the pool.
    """
    counts = {find_device(catalog, name).name: count for name, count in stated.pool.items()}
    groups = [DeviceGroup(name=name, num_devices=count) for name, count in counts.items()]
    jobs = tuple(
        PoolJob(name=name, time_s=_times(job, load(job), counts, catalog))
        for name, job in stated.jobs.items()
    )
    return PoolAnswer(
        best=schedule_pool(jobs, groups, objective=stated.objective),
        gang=gang_schedule(jobs, groups),
        share=share_schedule(jobs, groups),
        jobs=jobs,
        assumptions=(
            "times are medians of predictions; each job runs data parallel, compiled where it can",
            "devices of a kind share one machine; a job keeps its devices from start to finish",
        ),
    )


def _times(
    job: StatedJob, workload: Workload, counts: Mapping[str, int], catalog: Catalog
) -> dict[str, tuple[float, ...]]:
    work = parse_work({name: str(value) for name, value in job.work.items()})
    samples = _num_samples(workload, work, job.seq or workload.default_seq)
    grid = predict_grid(
        workload,
        Goal(),
        work,
        catalog,
        [find_device(catalog, name) for name in counts],
        counts=range(1, max(counts.values()) + 1),
        batches=_BATCHES,
        seq=job.seq,
    )
    limit = workload.max_global_batch if workload.task == "train" else None
    return {
        name: tuple(
            samples / max(_rates(grid.cells, name, k, limit), default=0.0)
            if _rates(grid.cells, name, k, limit)
            else math.inf
            for k in range(1, count + 1)
        )
        for name, count in counts.items()
    }


def _rates(cells: Sequence[GridCell], device: str, count: int, limit: int | None) -> list[float]:
    """Throughputs of every batch that fits and that trains as the recipe does."""
    return [
        cell.samples_per_s.mid
        for cell in cells
        if cell.device == device
        and cell.num_devices == count
        and cell.samples_per_s is not None
        and (limit is None or cell.batch_per_device * count <= limit)
    ]


def _num_samples(workload: Workload, work: Work, seq: int) -> float:
    amount = resolve_job(workload, work, seq=seq).amount
    if amount.items_per_epoch is None:
        raise InvalidInputError(
            f"`{workload.name}` says no amount of work", hint="give work: {samples: …, epochs: …}"
        )
    return amount.items_per_epoch * amount.num_epochs * amount.samples_per_item
