"""Training whose ranks share layers, stages, sequences or experts, block by block.

Shapes: (num_rows,).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.errors import InvalidInputError
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.fixed_strategy import evaluated_steps
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.parallelism.traced_job import TracedJob
from paceline.parallelism.uncertainty import lanes_s, sharing_log_sigma, step_log_sigma
from paceline.prediction.calibration.fitted import Calibration
from paceline.simulation.cases import Cases
from paceline.simulation.job import Job, software_of
from paceline.simulation.machine import Machine


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
    steps = found.steps
    hidden_s = _hidden_frac(job, strategy) * steps.tensor_s
    shorter = replace(steps, step_s=steps.step_s - hidden_s, tensor_s=steps.tensor_s - hidden_s)
    return as_sure(shorter, alone, machine, strategy.num_ranks)


def as_sure(steps: Steps, alone: Steps, machine: Machine, num_devices: int) -> Steps:
    """Steps of blocks with how sure they are.

    Args:
        steps: Of strategies, as blocks are evaluated.
        alone: What a device does with a microbatch of the whole model, per strategy.
        machine: On what.
        num_devices: World size.
    """
    link, node = (LinkTable.from_links([one]) for one in (machine.device_link, machine.node_link))
    sent_s = steps.tensor_s + steps.exposed_s
    num_shared = min(num_devices, machine.devices_per_domain)
    busy_s = lanes_s(sent_s, link, node, num_devices > num_shared)
    sharing = sharing_log_sigma(link, num_shared, sent_s=busy_s, step_s=steps.step_s)
    # What does not fit takes for ever: nobody asks how sure that is.
    is_timed = np.isfinite(steps.step_s)
    exposed_s = np.where(is_timed, steps.lost_s, 0.0)
    alone_s = np.where(is_timed, steps.step_s, 1.0) - exposed_s
    log_sigma = step_log_sigma(
        alone.device_log_sigma, alone_s=alone_s, exposed_s=exposed_s, sharing_log_sigma=sharing
    )
    low_frac = alone.memory_low_bytes / alone.memory_mid_bytes
    joined = np.nan_to_num(steps.communicator_bytes)
    return replace(
        steps,
        communication_s=sent_s,
        per_token_s=steps.step_s,
        memory_low_bytes=(steps.memory_mid_bytes - joined) * low_frac + joined,
        device_log_sigma=alone.device_log_sigma,
        sharing_log_sigma=sharing,
        bound=alone.bound,
        knowledge=alone.knowledge,
        reasons=alone.reasons,
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
    return replace(cluster, profile=software_of(job, cluster.profile))
