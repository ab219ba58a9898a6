"""What measurements know the step of a job by, so that a measured one teaches others like it."""

from __future__ import annotations

from paceline.parallel.stated import stated_traits
from paceline.predict import Calibration, DeviceTable, Points
from paceline.predict.told import pass_traits
from paceline.predict.traits import StepTraits
from paceline.simulation.blocks import traced
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.rank import RankPasses
from paceline.simulation.replicas import is_replicated


def step_traits(job: Job, machine: Machine, calibration: Calibration) -> StepTraits:
    """Of a rank's microbatch where ranks share the model, else of one device's pass.

    Raises:
        InvalidInputError: The model cannot be split so.
    """
    if job.workload.task == "train" and not is_replicated(job.strategy):
        return stated_traits(traced(job, machine, calibration), job.strategy, [job.batch])[0]
    passes = RankPasses.of(job)
    first = passes.lowered.get("decode") or next(iter(passes.lowered.values()))
    seq = job.prompt_tokens if job.is_generation and job.prompt_tokens else job.length
    devices = DeviceTable.from_devices([machine.device])
    point = Points.of([job.batch], seq=seq)
    return pass_traits(first, devices, point, calibration, framework=passes.host)[0]
