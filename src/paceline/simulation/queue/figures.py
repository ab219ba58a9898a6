"""What requests see of services, with its interval: tables of steps, then queues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from paceline.errors import InvalidInputError, PacelineError
from paceline.parallelism.strategy.strategy import Schedule, Strategy
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.uncertainty.intervals import Z_80
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.engine_tables import EngineTable, context_of, engine_tables
from paceline.simulation.queue.load import Load, Requests
from paceline.simulation.queue.percentiles import Percentiles, Served
from paceline.simulation.queue.service import Bounded, offered, saturation, served
from paceline.stack.engines import StepLimits

#: Seconds at the fast end, at the median and at the slow end.
Triple: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """A service of equal replicas.

    Attributes:
        job: Of one replica; its prompt is the context at which attention is predicted.
        limits: What their engine puts into a step; its own where None.
        most_ranks: Devices that can share a replica: those that a link joins.
    """

    job: Job
    machine: Machine
    num_replicas: int
    limits: StepLimits | None = None
    most_ranks: int = 1

    @property
    def step_limits(self) -> StepLimits | None:
        """What their engine puts into a step; None of what generates nothing."""
        engine = self.job.engine
        if self.limits is not None or engine is None:
            return self.limits
        return engine.limits_on(self.machine.device)

    @property
    def one(self) -> Replicas:
        """One of them alone."""
        return replace(self, num_replicas=1, most_ranks=1)

    @classmethod
    def of(cls, job: Job, machine: Machine, *, mean_tokens: float) -> Replicas:
        """A job whose data-parallel ranks are replicas, each with requests of its own.

        Args:
            job: Of an engine that generates, or of what answers batches of requests whole.
            machine: Where all of it runs.
            mean_tokens: Of a request to an engine, halfway through its answer.
        """
        strategy = of_one_replica(job.strategy)
        ranks, tensor = strategy.num_ranks, strategy.size("tp")
        one = replace(job, strategy=strategy, batch=1)
        if job.engine is not None:
            one = replace(one, prompt_tokens=context_of(mean_tokens), output_tokens=1)
        per_node = min(ranks, machine.devices_per_node)
        group = replace(machine.groups[0], count=ranks, devices_per_node=per_node)
        may_join = machine.device_link is not None and ranks == tensor
        return cls(
            job=one,
            machine=replace(machine, groups=(group,)),
            num_replicas=max(machine.num_devices // ranks, 1),
            most_ranks=_joined(machine) if may_join else ranks,
        )


def of_one_replica(strategy: Strategy) -> Strategy:
    """What ranks of one replica share, with a batch in each stage."""
    stages = strategy.size("pp")
    return Strategy.from_degrees(
        tp=strategy.size("tp"), ep=strategy.size("ep"), pp=stages, schedule=Schedule.filled(stages)
    )


def _joined(machine: Machine) -> int:
    return min(machine.num_devices, machine.devices_per_domain)


@dataclass(frozen=True, kw_only=True)
class ServiceFigures:
    """What requests see, and what the service can do at most; simulated when it is asked for.

    Attributes:
        service: Of which it is told.
        table: Of a replica.
        load: That comes to all replicas.
        trace: Requests that come instead of those that the load draws.
        sure_z: The chance that was asked for, as standard deviations above the median.
        capacity_per_s: Requests that all replicas complete at most, at the median.
    """

    service: Replicas
    table: EngineTable
    load: Load
    trace: Requests | None
    sure_z: float
    capacity_per_s: float

    @cached_property
    def fast(self) -> Served:
        """With steps as fast as the 80 % interval has them."""
        return self._seen(-Z_80)

    @cached_property
    def mid(self) -> Served:
        """With steps at their median."""
        return self._seen(0.0)

    @cached_property
    def slow(self) -> Served:
        """With steps as slow as the interval has them."""
        return self._seen(Z_80)

    @cached_property
    def sure(self) -> Served:
        """With steps as slow as at the chance that was asked for."""
        return self.slow if self.sure_z == Z_80 else self._seen(self.sure_z)

    @property
    def capacity_sure_per_s(self) -> float:
        """Requests that all replicas complete at most at that chance."""
        return self.capacity_per_s / self._factor(self.sure_z)

    @property
    def capacity_low_per_s(self) -> float:
        """Requests that all replicas complete at most, at the slow end."""
        return self.capacity_per_s / self._factor(Z_80)

    @property
    def capacity_high_per_s(self) -> float:
        """At the fast end."""
        return self.capacity_per_s / self._factor(-Z_80)

    @property
    def num_replicas(self) -> int:
        """How many there are."""
        return self.service.num_replicas

    @property
    def num_ranks(self) -> int:
        """Devices of each."""
        return self.service.machine.num_devices

    @property
    def limits(self) -> StepLimits | None:
        """What its engine puts into a step; None of what answers batches whole."""
        return self.service.step_limits

    @property
    def writes(self) -> bool:
        """Whether an engine writes answers token by token; else each comes whole."""
        return self.limits is not None

    def seconds(self, name: Bounded, percentile: int) -> Triple:
        """What a percentile of requests sees, at the fast end, the median and the slow end."""
        low, mid, high = (
            self.seconds_of(one, name, percentile) for one in (self.fast, self.mid, self.slow)
        )
        return min(low, mid), mid, max(mid, high)

    def seconds_of(self, seen: Served, name: Bounded, percentile: int) -> float:
        """What a percentile of requests sees in one of the runs.

        Of answers that come whole, the first token and each token are the whole answer.
        """
        return seconds_at(getattr(seen, name if self.writes else "request"), percentile)

    def _factor(self, z: float) -> float:
        return math.exp(z * self.table.log_sigma)

    def _seen(self, z: float) -> Served:
        table = self.table.slower(self._factor(z))
        if self.trace is not None:
            return served(table, self.trace, num_replicas=self.num_replicas)
        # Who is all there at the start is served in the same steps, however long they take.
        most_per_s = self.capacity_per_s / self.num_replicas / self._factor(z)
        return offered(table, self.load, num_replicas=self.num_replicas, most_per_s=most_per_s)


def service_figures(
    services: Sequence[Replicas], load: Load, *, trace: Requests | None = None,
    calibration: Calibration | None = None, sure_z: float = Z_80,
    known: Sequence[ServiceFigures] = (),
) -> list[ServiceFigures | PacelineError]:  # fmt: skip
    """Figures of each service under a load, or why it has none.

    Args:
        services: What serves.
        load: That comes to each of them; of a trace its lengths.
        trace: Requests that come instead of those that the load draws.
        calibration: Of the predictor; the built-in one if None.
        sure_z: Standard deviations above the median of the chance that is asked for. Near
            saturation waits are no log-normal, so they are simulated at that chance.
        known: Found before under a load of the same lengths: replicas that are alike have the same
            tables and the same capacity.
    """
    kinds = [one.service.one for one in known]
    fresh: list[Replicas] = []
    for one in (service.one for service in services):
        if one not in kinds and one not in fresh:
            fresh.append(one)
    tables = tables_of(fresh, calibration=calibration)
    told = [_replica(*pair, load) for pair in zip(fresh, tables, strict=True)]
    alike = [*((one.table, one.capacity_per_s / one.num_replicas) for one in known), *told]
    kinds += fresh
    found: list[ServiceFigures | PacelineError] = []
    for service in services:
        of_one = alike[kinds.index(service.one)]
        if isinstance(of_one, PacelineError):
            found.append(of_one)
            continue
        try:
            found.append(_figures(service, *of_one, load, trace, sure_z))
        except PacelineError as error:
            found.append(error)
    return found


def tables_of(
    services: Sequence[Replicas], *, calibration: Calibration | None = None
) -> list[EngineTable | PacelineError]:
    """The table of a replica of each service, or why it has none."""
    return engine_tables(
        [one.job for one in services],
        [one.machine for one in services],
        calibration=calibration,
        limits=[one.limits for one in services],
    )


def _replica(
    service: Replicas, table: EngineTable | PacelineError, load: Load
) -> tuple[EngineTable, float] | PacelineError:
    """The table of a replica with the requests per second that it completes at most."""
    if isinstance(table, PacelineError):
        return table
    if not table.fits:
        adapters = service.job.workload.adapters
        beside = f" and {adapters.held:,} adapters" if adapters is not None else ""
        fewer = "hold fewer adapters at once (loaded=8), " if adapters is not None else ""
        return InvalidInputError(
            f"the weights of {service.job.workload.title}{beside} leave no room for requests on "
            f"{service.machine}",
            hint=f"{fewer}take more devices, or a narrower --precision",
        )
    try:
        table.batching.check_room(load.requests())
    except PacelineError as error:
        return error
    return table, saturation(table, load).requests_per_s


def _figures(
    service: Replicas, table: EngineTable, each_per_s: float, load: Load,
    trace: Requests | None, sure_z: float,
) -> ServiceFigures:  # fmt: skip
    if trace is not None:
        table.batching.check_room(trace)
    return ServiceFigures(
        service=service,
        table=table,
        load=load,
        trace=trace,
        sure_z=sure_z,
        capacity_per_s=each_per_s * service.num_replicas,
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
