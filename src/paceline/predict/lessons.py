"""What measured steps of one device teach of others there.

How far a step is off its prediction has parts, each normal around none and independent of the
others: the device's, which all its steps share; that of a setting; that of a workload; that of the
kernels, which two steps share as far as they spend their time in the same ones; and the step's own.
Measured steps determine the sum for any other step, and how much of its variance is left.

Source: Gaussian process regression, Rasmussen and Williams, "Gaussian Processes for Machine
Learning", equations 2.25 and 2.26.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.predict.traits import StepTraits, likeness
from paceline.trace.graph import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreads:
    """Variance of the log of measured over predicted time, part by part.

    Attributes:
        device: What all steps of a device share.
        setting: What those of one framework, precision and compiler share besides.
        workload: What steps of one workload share besides.
        kernels: What steps share that spend their time in the same kernels.
        step: A step's own.
    """

    device: float
    setting: float
    workload: float
    kernels: float
    step: float

    @classmethod
    def of(cls, log_sigmas: Mapping[str, float]) -> Spreads:
        """From standard deviations by ``log_sigma_of_…``, as a calibration has them."""
        return cls(**{part: float(log_sigmas[f"log_sigma_of_{part}"]) ** 2 for part in PARTS})

    @property
    def total(self) -> float:
        """Variance of a step of which nothing is known."""
        return self.device + self.setting + self.workload + self.kernels + self.step

    def shared(self, one: Sequence[StepTraits], other: Sequence[StepTraits]) -> FloatArray:
        """Covariance of two steps without their own parts, (len(one), len(other))."""
        return (
            self.device
            + self.setting * _same(one, other, lambda step: step.setting)
            + self.workload * _same(one, other, lambda step: step.workload)
            + self.kernels * likeness(one, other)
        )


PARTS = ("device", "setting", "workload", "kernels", "step")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lessons:
    """Measured steps of one device, (num_steps,).

    Attributes:
        spreads: By which they are weighed.
        steps: What was measured; none twice.
        weights: Of each step's covariance with another in what that one is off.
        precision: Inverse of the covariance of what was measured, (num_steps, num_steps).
    """

    spreads: Spreads
    steps: tuple[StepTraits, ...]
    weights: FloatArray
    precision: FloatArray

    def log_shift(self, steps: Sequence[StepTraits]) -> FloatArray:
        """Log of measured over predicted time to expect of steps, (len(steps),)."""
        shift: FloatArray = self.weights @ self.spreads.shared(self.steps, steps)
        return shift

    def left_frac(self, steps: Sequence[StepTraits]) -> FloatArray:
        """Share of the variance of a step's log time that is left, (len(steps),)."""
        shared = self.spreads.shared(self.steps, steps)
        explained = np.einsum("ij,ik,kj->j", shared, self.precision, shared, optimize=True)
        left: FloatArray = 1.0 - explained / self.spreads.total
        return left

    def left_out_log_error(self) -> FloatArray:
        """How far each measured step is from what the others tell of it, (num_steps,).

        Source: Rasmussen and Williams, equation 5.12.
        """
        error: FloatArray = self.weights / np.diag(self.precision)
        return error


def learn(measured: Sequence[tuple[StepTraits, float]], spreads: Spreads) -> Lessons:
    """Lessons of measured steps; a step measured again is the mean of its measurements.

    Args:
        measured: Steps, at least one, with the log of measured over predicted time.
        spreads: Of the parts of such logs.
    """
    by_step: dict[StepTraits, list[float]] = defaultdict(list)
    for step, log_ratio in measured:
        by_step[step].append(log_ratio)
    steps = tuple(by_step)
    means = np.array([sum(ratios) / len(ratios) for ratios in by_step.values()])
    covariance = spreads.shared(steps, steps)
    np.fill_diagonal(covariance, spreads.total)
    precision: FloatArray = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    return Lessons(spreads=spreads, steps=steps, weights=precision @ means, precision=precision)


def _same(
    one: Sequence[StepTraits], other: Sequence[StepTraits], of: Callable[[StepTraits], str]
) -> FloatArray:
    """1 where two steps have the same, 0 elsewhere."""
    first, second = (np.array([of(step) for step in steps]) for steps in (one, other))
    same: FloatArray = (first[:, None] == second[None, :]).astype(np.float64)
    return same
