"""What requests see of services, with its interval: tables of steps, then queues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.errors import InvalidInputError, PacelineError
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.engine_tables import EngineTable, context_of, engine_tables
from paceline.simulation.queue.load import Load, Requests
from paceline.simulation.queue.percentiles import Percentiles, Served
from paceline.simulation.queue.service import offered, saturation, served


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """A service of equal replicas.

    Attributes:
        job: Of one replica; its prompt is the context at which attention is predicted.
        machine: Of one replica.
        num_replicas: How many there are.
    """

    job: Job
    machine: Machine
    num_replicas: int

    @classmethod
    def of(cls, job: Job, machine: Machine, *, mean_tokens: float) -> Replicas:
        """A job whose data-parallel ranks are replicas, each with requests of its own.

        Args:
            job: Of an engine that generates.
            machine: Where all of it runs.
            mean_tokens: Of a request, halfway through its answer.

        Raises:
            InvalidInputError: It generates nothing, or no engine serves it.
        """
        if job.engine is None:
            raise InvalidInputError(
                f"{job.workload.title} run by `{job.profile}` keeps no queue of requests",
                hint="take a language model with `--task infer`, and an engine: --framework vllm",
            )
        tensor = job.strategy.size("tp")
        one = replace(
            job,
            strategy=Strategy.parse(f"tp{tensor}" if tensor > 1 else "dp1"),
            batch=1,
            prompt_tokens=context_of(mean_tokens),
            output_tokens=1,
        )
        per_node = min(tensor, machine.devices_per_node)
        group = replace(machine.groups[0], count=tensor, devices_per_node=per_node)
        return cls(
            job=one,
            machine=replace(machine, groups=(group,)),
            num_replicas=max(machine.num_devices // tensor, 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFigures:
    """What requests see, and what the service can do at most.

    Attributes:
        fast: With steps as fast as the 80 % interval has them.
        mid: With steps at their median.
        slow: With steps as slow as the interval has them.
        capacity_low_per_s: Requests that all replicas complete at most, at the slow end.
        capacity_per_s: At the median.
        capacity_high_per_s: At the fast end.
        num_replicas: How many there are.
        num_ranks: Devices of each.
        cache_tokens: That the cache of a replica holds.
    """

    fast: Served
    mid: Served
    slow: Served
    capacity_low_per_s: float
    capacity_per_s: float
    capacity_high_per_s: float
    num_replicas: int
    num_ranks: int
    cache_tokens: float


def service_figures(
    services: Sequence[Replicas], load: Load, *, trace: Requests | None = None,
    calibration: Calibration | None = None,
) -> list[ServiceFigures | PacelineError]:  # fmt: skip
    """Figures of each service under a load, or why it has none.

    Args:
        services: What serves.
        load: That comes to each of them; of a trace its lengths.
        trace: Requests that come instead of those that the load draws.
        calibration: Of the predictor; the built-in one if None.
    """
    tables = engine_tables(
        [one.job for one in services], [one.machine for one in services], calibration=calibration
    )
    found: list[ServiceFigures | PacelineError] = []
    for service, table in zip(services, tables, strict=True):
        if isinstance(table, PacelineError):
            found.append(table)
            continue
        try:
            found.append(_figures(service, table, load, trace))
        except PacelineError as error:
            found.append(error)
    return found


def _figures(
    service: Replicas, table: EngineTable, load: Load, trace: Requests | None
) -> ServiceFigures:
    count = service.num_replicas
    if not table.fits:
        raise InvalidInputError(
            f"the weights of {service.job.workload.title} leave no room for requests on "
            f"{service.machine}",
            hint="take more devices, or a narrower --precision",
        )
    slowed = [table.slower(math.exp(z * table.log_sigma)) for z in (-Z_80, 0.0, Z_80)]
    seen = [
        offered(one, load, num_replicas=count)
        if trace is None
        else served(one, trace, num_replicas=count)
        for one in slowed
    ]
    most = [saturation(one, load).requests_per_s * count for one in slowed]
    return ServiceFigures(
        fast=seen[0],
        mid=seen[1],
        slow=seen[2],
        capacity_low_per_s=most[2],
        capacity_per_s=most[1],
        capacity_high_per_s=most[0],
        num_replicas=count,
        num_ranks=service.machine.num_devices,
        cache_tokens=table.batching.cache_tokens,
    )


def seconds_at(seen: Percentiles, percentile: int) -> float:
    """A time by its percentile.

    Raises:
        InvalidInputError: None that is kept.
    """
    known = {50: seen.p50_s, 95: seen.p95_s, 99: seen.p99_s}
    if percentile not in known:
        raise InvalidInputError(
            f"the percentile {percentile} is not told", hint="take 50, 95 or 99"
        )
    return known[percentile]
