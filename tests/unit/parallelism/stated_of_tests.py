"""A strategy of a graph alone, asked at the door."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from paceline.model.graph.graph import Graph
from paceline.model.graph.workload import Pass, Workload
from paceline.parallelism.fixed_strategy import does_not_fit, evaluated_steps
from paceline.parallelism.legality import check_batch
from paceline.parallelism.memory.memory_fit import MEMORY_CONFIDENCE, quantile_bytes
from paceline.parallelism.search import (
    SearchSpace,
    search_strategies,
)
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.simulation.job import Habit, Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import check_legal, simulate

_HABITS: dict[str, Habit] = {
    "tokens_once": "tokens-once", "whole_experts": "whole", "hides_exchange": "hidden",
    "gathers_ahead": "gathers-ahead",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """A strategy with one row of steps."""

    strategy: Strategy
    microbatch: int
    step_s: float
    bubble_s: float
    tensor_s: float
    exposed_s: float
    memory_mid_bytes: float
    memory_bytes: float

    @classmethod
    def of(cls, strategy: Strategy, microbatch: float, steps: Steps, row: int = 0) -> Found:
        names = ("step_s", "bubble_s", "tensor_s", "exposed_s", "memory_mid_bytes",
                 "memory_high_bytes")  # fmt: skip
        columns = (float(getattr(steps, name)[row]) for name in names)
        return cls(strategy, int(microbatch), *columns)

    def needed_bytes(self, confidence: float = MEMORY_CONFIDENCE) -> float:
        return float(quantile_bytes(self.memory_mid_bytes, self.memory_bytes, confidence))


def searched(space: SearchSpace, **asked: int) -> tuple[Found, ...]:
    """What a search finds, best first."""
    found = search_strategies(space, **asked)
    pairs = zip(found.strategies, found.microbatches, strict=True)
    return tuple(Found.of(*pair, found.steps, row) for row, pair in enumerate(pairs))


@cache
def workload_of(graph: Graph) -> Workload:
    """A training job of one pass."""
    return Workload(
        name=graph.name, title=graph.name, task="train", passes=(Pass(name="step", graph=graph),),
        sample_unit="samples", default_seq=1, sample_bytes=0.0, num_parameters=0, optimizer=None,
        input_description="", max_global_batch=None, reference_job=None, source="",
    )  # fmt: skip


def evaluate_stated(job: TracedJob, strategy: Strategy, *, global_batch: int) -> Found:
    """The strategy as a job on its machine, if it can run there and fits."""
    one, machine = _asked(job, strategy, global_batch)
    steps = simulate([one], [machine], calibration=job.calibration)
    steps.check()
    return _fitting(Found.of(strategy, one.batch, steps), job)


def evaluate_blocks(job: TracedJob, strategy: Strategy, *, global_batch: int) -> Found:
    """The same block by block, as ranks of pipelines are known."""
    one, machine = _asked(job, strategy, global_batch)
    check_legal(one, machine)
    evaluated = evaluated_steps(job, strategy, microbatches=[one.batch])
    return _fitting(Found.of(strategy, one.batch, evaluated.steps), job)


def _asked(job: TracedJob, strategy: Strategy, global_batch: int) -> tuple[Job, Machine]:
    check_batch(strategy, global_batch)
    one = Job(
        workload=workload_of(job.graph),
        configuration=job.configuration,
        strategy=strategy,
        batch=global_batch // strategy.num_parts,
        seq=int(job.seq),
        habits=tuple(h for name, h in _HABITS.items() if getattr(job.cluster.profile, name)),
    )
    return one, Machine.of_cluster(job.cluster, strategy.num_ranks)


def _fitting(found: Found, job: TracedJob) -> Found:
    capacity_bytes = job.cluster.capacity_bytes
    if found.needed_bytes() > capacity_bytes:
        raise does_not_fit(
            found.strategy, found.needed_bytes(), job.cluster.device.name, capacity_bytes
        )
    return found
