"""A job seen op by op, and what measurements know its step by."""

from __future__ import annotations

import numpy as np

from paceline.dtypes import find_precision
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.workload import Pass
from paceline.model.live_bytes import MemoryCourse, memory_course
from paceline.model.lowering import lower
from paceline.parallelism.fixed_strategy import stated_traits
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.prediction.comparison import PassComparison
from paceline.prediction.devices import DeviceTable, matrix_peaks
from paceline.prediction.memory.remedies import MemoryRemedy
from paceline.prediction.prediction import Points
from paceline.prediction.step.breakdown import PassBreakdown, break_down
from paceline.prediction.step.roofline_position import RooflinePosition, roofline_position
from paceline.prediction.uncertainty.posterior_correction import pass_traits
from paceline.simulation.blocks import traced
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.rank import RankPasses
from paceline.simulation.replicas import is_replicated
from paceline.values import dataclass


def step_traits(job: Job, machine: Machine, calibration: Calibration) -> StepFeatures:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A traced model, pass by pass.

    Attributes:
        model: As typed.
        title: As printed.
        task: ``train`` or ``infer``.
        sample_unit: What throughput counts.
        source: Where the architecture comes from.
        precision: Of the passes as they are shown.
        compiler: Likewise.
        rewrite: Further settings of the passes as they are shown, as typed.
        assumption: What is taken of the device's software; empty where a release runs on it.
        memory_courses: Live bytes over each pass.
        remedies: Rewrites of each pass that lower its peak, most first.
        positions: Place of each pass under the roofline; empty without a device.
        compared_with: Settings of the passes that are compared, as typed; empty if none are.
        comparisons: Each pass against the same in those settings.
    """

    model: str
    title: str
    task: str
    sample_unit: str
    source: str
    precision: str
    compiler: str
    rewrite: str
    assumption: str
    passes: tuple[PassBreakdown, ...]
    memory_courses: tuple[MemoryCourse, ...]
    remedies: tuple[tuple[MemoryRemedy, ...], ...]
    positions: tuple[RooflinePosition, ...]
    compared_with: str
    comparisons: tuple[PassComparison, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ObservedPass:
    """A pass in one configuration, op by op.

    Attributes:
        lowered: As it runs.
        whole: Every op.
        course: Live bytes over it.
        position: Under the roofline of the device; None without one, or without a peak.
    """

    lowered: LoweredPass
    whole: PassBreakdown
    course: MemoryCourse
    position: RooflinePosition | None

    @classmethod
    def of(
        cls, one: Pass, configuration: Configuration, device: DeviceTable | None, *, batch: int,
        seq: int, calibration: Calibration | None,
    ) -> ObservedPass:  # fmt: skip
        """One pass as it runs, on a device where one is named.

        Args:
            one: The pass.
            configuration: How it runs.
            device: A table of one device; None counts FLOP alone.
            batch: Items.
            seq: Tokens of a sequence.
            calibration: Of the predictor; the built-in one if None.
        """
        lowered = lower(one.graph, configuration)
        num_rows = len(lowered.costs.kind)
        whole = break_down(
            lowered, device, batch=batch, seq=seq, num_ops=num_rows, calibration=calibration
        )
        return cls(
            lowered=lowered,
            whole=whole,
            course=memory_course(one.graph, lowered, batch=batch, seq=seq),
            position=None if device is None else _position(whole, lowered, device),
        )


def _position(
    whole: PassBreakdown, lowered: LoweredPass, device: DeviceTable
) -> RooflinePosition | None:
    """None where the device has no peak of the precision in the catalogue."""
    peak = float(matrix_peaks(device, find_precision(lowered.configuration.precision))[0])
    bandwidth = float(device.memory_bytes_per_s[0])
    if np.isnan(peak) or np.isnan(bandwidth):
        return None
    return roofline_position(whole, peak_flop_per_s=peak, memory_bytes_per_s=bandwidth)
