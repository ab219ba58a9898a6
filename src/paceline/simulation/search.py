"""The best strategies of a job on one machine, enumerated and evaluated in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.model.graph.graph import FloatArray, IntArray
from paceline.parallelism.memory.memory_fit import MEMORY_CONFIDENCE
from paceline.parallelism.offload import known_host
from paceline.parallelism.search import (
    MICROBATCHES,
    FoundStrategy,
    SearchSpace,
    prepare_search,
    search_strategies,
)
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.blocks import shown, traced
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.replicas import is_replicated
from paceline.simulation.simulator import simulate
from paceline.simulation.steps import Steps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategySearch:
    """A job on machines of one kind, prepared for any number of them.

    Attributes:
        job: What is run; its strategy and batch are what is searched.
        machine: One of them.
        space: What can be tried.
        calibration: Of the predictor; the built-in one if None.
    """

    job: Job
    machine: Machine
    space: SearchSpace
    calibration: Calibration | None

    @classmethod
    def of(
        cls, job: Job, machine: Machine, *, capacity_bytes: float,
        microbatches: Sequence[int] = MICROBATCHES, memory_confidence: float = MEMORY_CONFIDENCE,
        calibration: Calibration | None = None,
    ) -> StrategySearch:  # fmt: skip
        """Prepare a search.

        Args:
            job: What is run, in one pass.
            machine: On what.
            capacity_bytes: Memory of one device.
            microbatches: Sizes to try; the usual ones by default.
            memory_confidence: Chance at which a strategy must fit.
            calibration: Of the predictor; the built-in one if None.

        Raises:
            InvalidInputError: A step of the job runs several programs.
        """
        one = traced(job, machine, calibration)
        space = prepare_search(
            one.graph, one.configuration, one.cluster.device_table, one.fabric, seq=one.seq,
            capacity_bytes=capacity_bytes, memory_confidence=memory_confidence,
            calibration=calibration,
            host=known_host(machine.host_link, machine.host_memory_bytes),
            microbatches=microbatches,
        )  # fmt: skip
        return cls(job=job, machine=machine, space=space, calibration=calibration)

    def best(
        self, *, num_devices: int, global_batch: int, num_best: int
    ) -> tuple[tuple[Job, ...], Steps]:
        """The fastest strategies that fit, best first, each as a job with its step.

        Replicas are searched as blocks, which is coarser than what `simulate` says of them; those
        that do not fit by what it says are left out.

        Args:
            num_devices: World size.
            global_batch: Items per optimizer step.
            num_best: How many at most.

        Raises:
            InvalidInputError: No combination of degrees uses exactly so many devices and items.
            DoesNotFitError: None fits into memory.
        """
        found = self.found(num_devices=num_devices, global_batch=global_batch, num_best=num_best)
        jobs = tuple(
            replace(self.job, strategy=one.strategy, batch=one.microbatch) for one in found
        )
        steps = self._steps(jobs, found, num_devices)
        needed_bytes = steps.needed_bytes(self.space.memory_confidence)
        fits = np.flatnonzero(needed_bytes <= self.space.capacity_bytes)
        return tuple(jobs[row] for row in fits.tolist()), steps.take(fits)

    def found(
        self, *, num_devices: int, global_batch: int, num_best: int
    ) -> tuple[FoundStrategy, ...]:
        """The same as they are searched, replicas too block by block; arguments as of `best`.

        Raises:
            InvalidInputError: No combination of degrees uses exactly so many devices and items.
            DoesNotFitError: None fits into memory.
        """
        return search_strategies(
            self.space, num_devices=num_devices, global_batch=global_batch, num_best=num_best
        )

    def fitting(self, *, num_devices: int, global_batch: int, num_best: int) -> list[FoundStrategy]:
        """The strategies of `best` without the spread of their times; arguments as there.

        Raises:
            InvalidInputError: No combination of degrees uses exactly so many devices and items.
            DoesNotFitError: None fits into memory.
        """
        found = self.found(num_devices=num_devices, global_batch=global_batch, num_best=num_best)
        machine = self.machine.with_count(num_devices)
        stated = [self._stated(one, machine) for one in found]
        space = self.space
        return [
            one
            for one in stated
            if one.needed_bytes(space.memory_confidence) <= space.capacity_bytes
        ]

    def _stated(self, found: FoundStrategy, machine: Machine) -> FoundStrategy:
        """A strategy with the figures that its job has: replicas are searched more coarsely."""
        if not is_replicated(found.strategy):
            return found
        job = replace(self.job, strategy=found.strategy, batch=found.microbatch)
        steps = simulate([job], [machine], calibration=self.calibration)
        steps.check()
        return found_step(job, steps, 0)

    def _steps(
        self, jobs: Sequence[Job], found: Sequence[FoundStrategy], num_devices: int
    ) -> Steps:
        is_plain = np.array([is_replicated(one.strategy) for one in jobs], dtype=bool)
        plain, split = np.flatnonzero(is_plain), np.flatnonzero(~is_plain)
        parts: list[tuple[IntArray, Steps]] = []
        if len(plain):
            machine = self.machine.with_count(num_devices)
            replicas = [jobs[row] for row in plain.tolist()]
            steps = simulate(replicas, [machine] * len(plain), calibration=self.calibration)
            parts.append((plain, steps))
        if len(split):
            rest = [found[row] for row in split.tolist()]
            alone = self._alone([jobs[row] for row in split.tolist()])
            parts.append((split, shown(rest, alone, self.machine, num_devices)))
        return Steps.joined(parts, len(jobs))

    def _alone(self, jobs: Sequence[Job]) -> Steps:
        """One device with a microbatch of each: how sure the times of its kind are."""
        one = self.machine.with_count(1)
        alone = [replace(job, strategy=Strategy(recompute=job.strategy.recompute)) for job in jobs]
        return simulate(alone, [one] * len(jobs), calibration=self.calibration)


def found_step(job: Job, steps: Steps, row: int) -> FoundStrategy:
    """One row with its strategy."""

    def at(values: FloatArray) -> float:
        return float(values[row])

    return FoundStrategy(
        strategy=job.strategy,
        microbatch=int(job.batch),
        step_s=at(steps.step_s),
        bubble_s=at(steps.bubble_s),
        tensor_s=at(steps.tensor_s),
        exposed_s=at(steps.exposed_s),
        memory_mid_bytes=at(steps.memory_mid_bytes),
        memory_bytes=at(steps.memory_high_bytes),
    )
