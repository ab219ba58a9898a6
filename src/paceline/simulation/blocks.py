"""Training whose ranks share layers, stages, sequences or experts, block by block.

Shapes: (num_rows,).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import FloatArray
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.evaluation import StrategyEvaluation
from paceline.parallelism.fixed_strategy import evaluated_steps
from paceline.parallelism.search import FoundStrategy
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.parallelism.training_profile import find_training_profile
from paceline.parallelism.uncertainty import sharing_log_sigma, step_log_sigma
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.cases import Cases
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.steps import Steps


def split_steps(
    cases: Cases, alone: Steps, strategy: Strategy, *, calibration: Calibration | None
) -> Steps:
    """Optimizer steps of one strategy on one machine, with several microbatch sizes.

    Args:
        cases: Of one job, machine and strategy.
        alone: What a device does with a microbatch of the whole model: how sure its times are.
        strategy: With the replicas and microbatches of the rows.
        calibration: Of the predictor.

    Raises:
        InvalidInputError: The model cannot be split so.
        MissingFactError: A fact of the machine is missing.
        DoesNotFitError: The node's main memory does not hold what is kept there.
    """
    job, machine = cases.jobs[int(cases.job[0])], cases.machines[int(cases.machine[0])]
    found = evaluated_steps(
        traced(job, machine, calibration), strategy, microbatches=cases.batch.tolist()
    )
    hidden_s = _hidden_frac(job, strategy) * found.tensor_s
    shorter = replace(found, step_s=found.step_s - hidden_s, tensor_s=found.tensor_s - hidden_s)
    steps = _with_sigma(shorter, alone, machine, strategy.num_ranks)
    return replace(steps, backward_s=found.backward_s, update_s=found.update_s)


def shown(
    found: Sequence[FoundStrategy], alone: Steps, machine: Machine, num_devices: int
) -> Steps:
    """Strategies that a search evaluated, as steps.

    Args:
        found: By `search_strategies`.
        alone: What a device does with a microbatch of the whole model, per strategy.
        machine: On what.
        num_devices: World size.
    """
    names = ("step_s", "bubble_s", "tensor_s", "exposed_s", "memory_mid_bytes", "memory_bytes")
    columns = {name: np.array([getattr(one, name) for one in found]) for name in names}
    return _with_sigma(_Figures(**columns), alone, machine, num_devices)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Figures:
    """What `StrategyEvaluation` has of a step and a search keeps."""

    step_s: FloatArray
    bubble_s: FloatArray
    tensor_s: FloatArray
    exposed_s: FloatArray
    memory_mid_bytes: FloatArray
    memory_bytes: FloatArray


def _with_sigma(
    found: StrategyEvaluation | _Figures, alone: Steps, machine: Machine, num_devices: int
) -> Steps:
    exposed_s = found.tensor_s + found.exposed_s
    lost_s = found.bubble_s + exposed_s
    link = LinkTable.from_links([machine.device_link])
    sharing = sharing_log_sigma(link, min(num_devices, machine.devices_per_node))
    log_sigma = step_log_sigma(
        alone.device_log_sigma, alone_s=found.step_s - lost_s, exposed_s=lost_s,
        sharing_log_sigma=sharing,
    )  # fmt: skip
    low_frac = alone.memory_low_bytes / alone.memory_mid_bytes
    return Steps.of(
        len(found.step_s),
        {
            "step_s": found.step_s,
            "exposed_s": found.exposed_s,
            "communication_s": exposed_s,
            "tensor_s": found.tensor_s,
            "bubble_s": found.bubble_s,
            "per_token_s": found.step_s,
            "memory_low_bytes": found.memory_mid_bytes * low_frac,
            "memory_mid_bytes": found.memory_mid_bytes,
            "memory_high_bytes": found.memory_bytes,
            "device_log_sigma": alone.device_log_sigma,
            "sharing_log_sigma": sharing,
            "bound": alone.bound,
            "knowledge": alone.knowledge,
            "reasons": alone.reasons,
        },
    ).with_spread(log_sigma)


def _hidden_frac(job: Job, strategy: Strategy) -> float:
    """Of what tensor ranks exchange, what travels behind products."""
    degree = strategy.size("tp") if strategy.size("ep") == 1 else 1
    return 1.0 - 1.0 / degree if "hidden-sums" in job.habits else 0.0


def traced(job: Job, machine: Machine, calibration: Calibration | None) -> TracedJob:
    """The job as its strategies are asked about.

    Raises:
        InvalidInputError: A step of it runs several programs.
    """
    if len(job.workload.passes) != 1:
        raise InvalidInputError(
            f"`{job.strategy}` splits one pass, and a step of this job has several",
            hint="state data parallel, such as `dp8` or `dp8+zero3`",
        )
    return TracedJob(
        graph=job.workload.passes[0].graph,
        configuration=job.configuration,
        cluster=behaving(machine.cluster, job),
        seq=job.length,
        calibration=calibration,
    )


def behaving(cluster: Cluster, job: Job) -> Cluster:
    """A cluster whose software has the habits of a job."""
    profile = replace(
        cluster.profile,
        tokens_once="tokens-once" in job.habits,
        whole_experts="whole" in job.habits,
        hides_exchange="hidden" in job.habits,
    )
    if "gathers-ahead" in job.habits:
        profile = profile.with_optimizer_of(find_training_profile("megatron"))
    return replace(cluster, profile=profile)
