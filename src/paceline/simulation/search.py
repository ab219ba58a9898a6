"""The best strategies of a job on one machine, enumerated and evaluated in columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from paceline.model.graph.graph import IntArray
from paceline.parallelism.memory.memory_fit import MEMORY_CONFIDENCE
from paceline.parallelism.offload import known_host
from paceline.parallelism.search import (
    MICROBATCHES,
    FoundStrategies,
    SearchSpace,
    fitting_strategies,
    prepare_search,
    search_strategies,
)
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.blocks import as_sure, traced
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.replicas import is_replicated
from paceline.simulation.simulator import simulate
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StrategySearch:
    """A job on machines of one kind, prepared for any number of them.

    Attributes:
        job: What is run; its strategy and batch are what is searched.
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
        calibration: Calibration | None = None, splits_model: bool = True,
    ) -> StrategySearch:  # fmt: skip
        """Prepare a search.

        Args:
            job: What is run, in one pass.
            machine: On what.
            capacity_bytes: Memory of one device.
            microbatches: Sizes to try; the usual ones by default.
            memory_confidence: Chance at which a strategy must fit.
            calibration: Of the predictor; the built-in one if None.
            splits_model: Whether ranks may share layers or be stages.

        Raises:
            InvalidInputError: A step of the job runs several programs.
        """
        one = traced(job, machine, calibration)
        space = prepare_search(
            one.graph, one.configuration, one.cluster.device_table, one.fabric, seq=one.seq,
            capacity_bytes=capacity_bytes, memory_confidence=memory_confidence,
            calibration=calibration,
            host=known_host(machine.cluster),
            microbatches=microbatches,
            splits_model=splits_model,
        )  # fmt: skip
        return cls(job=job, machine=machine, space=space, calibration=calibration)

    def best(
        self, *, num_devices: int, global_batch: int, num_best: int,
        same_factor: float | None = None,
    ) -> tuple[tuple[Job, ...], Steps]:  # fmt: skip
        """The fastest strategies that fit, best first, each as a job with its step.

        Arguments are those of `search_strategies`. Replicas are searched as blocks, which is
        coarser than what `simulate` says of them; those that do not fit by that are left out.

        Raises:
            InvalidInputError: No combination of degrees uses exactly so many devices and items.
            DoesNotFitError: None fits into memory.
        """
        jobs, steps = self.found(
            num_devices=num_devices, global_batch=global_batch, num_best=num_best,
            same_factor=same_factor,
        )  # fmt: skip
        return self._fitting(jobs, self._steps(jobs, steps, num_devices, alone=self._alone))

    def fitting(
        self, *, num_devices: int, global_batch: int, num_best: int
    ) -> tuple[tuple[Job, ...], Steps]:
        """The same, of stages and shared layers without how sure they are; arguments as of `best`.

        Nothing where no strategy is legal or fits.
        """
        found = fitting_strategies(
            self.space, num_devices=num_devices, global_batch=global_batch, num_best=num_best
        )
        if found is None:
            return (), Steps.of(0, {})
        jobs = self._jobs(found)
        return self._fitting(jobs, self._steps(jobs, found.steps, num_devices))

    def found(
        self, *, num_devices: int, global_batch: int, num_best: int,
        same_factor: float | None = None,
    ) -> tuple[tuple[Job, ...], Steps]:  # fmt: skip
        """The same as they are searched, replicas too block by block; arguments as of `best`.

        Raises:
            InvalidInputError: No combination of degrees uses exactly so many devices and items.
            DoesNotFitError: None fits into memory.
        """
        found = search_strategies(
            self.space, num_devices=num_devices, global_batch=global_batch, num_best=num_best,
            same_factor=same_factor,
        )  # fmt: skip
        return self._jobs(found), found.steps

    def _jobs(self, found: FoundStrategies) -> tuple[Job, ...]:
        pairs = zip(found.strategies, found.microbatches, strict=True)
        return tuple(replace(self.job, strategy=how, batch=batch) for how, batch in pairs)

    def _fitting(self, jobs: Sequence[Job], steps: Steps) -> tuple[tuple[Job, ...], Steps]:
        """Those that fit at the chance that counts."""
        needed_bytes = steps.needed_bytes(self.space.memory_confidence)
        fits = np.flatnonzero(needed_bytes <= self.space.capacity_bytes)
        return tuple(jobs[row] for row in fits.tolist()), steps.take(fits)

    def _steps(
        self, jobs: Sequence[Job], found: Steps, num_devices: int,
        alone: Callable[[Sequence[Job]], Steps] | None = None,
    ) -> Steps:  # fmt: skip
        """What was found, replicas as their jobs have it: they are searched more coarsely."""
        is_plain = np.array([is_replicated(one.strategy) for one in jobs], dtype=bool)
        plain, split = np.flatnonzero(is_plain), np.flatnonzero(~is_plain)
        parts: list[tuple[IntArray, Steps]] = []
        if len(plain):
            machine = self.machine.with_count(num_devices)
            replicas = [jobs[row] for row in plain.tolist()]
            steps = simulate(replicas, [machine] * len(plain), calibration=self.calibration)
            parts.append((plain, steps))
        if len(split):
            rest = found.take(split)
            if alone is not None:
                whole = alone([jobs[row] for row in split.tolist()])
                rest = as_sure(rest, whole, self.machine, num_devices)
            parts.append((split, rest.with_peak_spread(self.space.peak_log_sigma)))
        return Steps.joined(parts, len(jobs))

    def _alone(self, jobs: Sequence[Job]) -> Steps:
        """One device with a microbatch of each: how sure the times of its kind are."""
        one = self.machine.with_count(1)
        alone = [replace(job, strategy=Strategy(recompute=job.strategy.recompute)) for job in jobs]
        return simulate(alone, [one] * len(jobs), calibration=self.calibration)
