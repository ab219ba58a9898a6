"""What measured steps of one device teach of others there.

How far a step is off its prediction has parts, each normal around none and independent of the
others: the device's, which all its steps share; that of a setting; that of a workload; that of the
kernels, which two steps share as far as they spend their time in the same ones; and the step's own.
Measured steps determine the sum for any other step, and how much of its variance is left. How far
shared parts and own parts reach differs from user to user, and is taken from the measured steps
themselves as far as they tell.

Source: Gaussian process regression, Rasmussen and Williams, "Gaussian Processes for Machine
Learning", equations 2.25, 2.26 and, of the reach, 5.8.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.prediction.calibration.step_features import StepFeatures, similarity
from paceline.values import dataclass

#: Parts of what is off, from what all steps share to a step's own.
PARTS = ("device", "setting", "workload", "kernels", "step")
#: So many different steps of one device are learned from, the newest: learning takes time with
#: the cube of their number, and more tell hardly more.
MOST_STEPS = 1000
#: Factors on the usual reach that are tried.
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


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

    def shared(self, one: Sequence[StepFeatures], other: Sequence[StepFeatures]) -> FloatArray:
        """Covariance of two steps without their own parts, (len(one), len(other))."""
        variances = np.array([self.device, self.setting, self.workload, self.kernels])
        covariance: FloatArray = np.tensordot(variances, _in_common(one, other), axes=1)
        return covariance

    def scaled(self, shared: float, own: float) -> Spreads:
        """With other reaches of what steps share and of their own parts: factors on sigmas."""
        return Spreads(
            device=self.device * shared**2,
            setting=self.setting * shared**2,
            workload=self.workload * shared**2,
            kernels=self.kernels * shared**2,
            step=self.step * own**2,
        )


def _in_common(one: Sequence[StepFeatures], other: Sequence[StepFeatures]) -> FloatArray:
    """What two steps share of each part but their own, (4, len(one), len(other)), 0 to 1."""
    alike = similarity(one, other)
    return np.stack([
        np.ones_like(alike), _same(one, other, lambda step: step.setting),
        _same(one, other, lambda step: step.workload), alike,
    ])  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observations:
    """Measured steps of one device, (num_steps,).

    Attributes:
        usual: How far parts usually reach.
        spreads: How far they reach here, by which steps are weighed.
        steps: What was measured; none twice.
        weights: Of each step's covariance with another in what that one is off.
        precision: Inverse of the covariance of what was measured, (num_steps, num_steps).
    """

    usual: Spreads
    spreads: Spreads
    steps: tuple[StepFeatures, ...]
    weights: FloatArray
    precision: FloatArray

    def log_shift(self, steps: Sequence[StepFeatures]) -> FloatArray:
        """Log of measured over predicted time to expect of steps, (len(steps),)."""
        shift: FloatArray = self.weights @ self.spreads.shared(self.steps, steps)
        return shift

    def left_frac(self, steps: Sequence[StepFeatures]) -> FloatArray:
        """Share of the usual variance of steps' log times that is left, (len(steps),).

        At most one: that what was measured errs more than is usual makes no step less known.
        """
        shared = self.spreads.shared(self.steps, steps)
        explained = np.einsum("ij,ik,kj->j", shared, self.precision, shared, optimize=True)
        left: FloatArray = (self.spreads.total - explained) / self.usual.total
        return np.minimum(left, 1.0)

    def left_out_log_error(self) -> FloatArray:
        """How far each measured step is from what the others tell of it, (num_steps,).

        Source: Rasmussen and Williams, equation 5.12.
        """
        error: FloatArray = self.weights / np.diag(self.precision)
        return error


def learn(measured: Sequence[tuple[StepFeatures, float]], usual: Spreads) -> Observations:
    """Observations of measured steps; a step measured again is the mean of its measurements.

    Args:
        measured: Steps, at least one, with the log of measured over predicted time, the oldest
            first. Of different steps the newest ``MOST_STEPS`` count.
        usual: How far the parts of such logs usually reach.
    """
    steps, means = _once_each(measured)
    found = _Spectrum.of(steps, usual)
    return found.lessons(steps, means, usual, _reaching(found, means))


def weigh(measured: Sequence[tuple[StepFeatures, float]], spreads: Spreads) -> Observations:
    """As `learn`, where it is known how far the parts reach."""
    steps, means = _once_each(measured)
    found = _Spectrum.of(steps, spreads)
    return found.lessons(steps, means, spreads, (1.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Spectrum:
    """What steps share, as independent directions: whatever the reach, they are the same.

    Attributes:
        values: Variance along each by what steps usually share, (num_steps,).
        directions: One per column, (num_steps, num_steps).
        own: Usual variance of a step's own part.
    """

    values: FloatArray
    directions: FloatArray
    own: float

    @classmethod
    def of(cls, steps: Sequence[StepFeatures], usual: Spreads) -> _Spectrum:
        """Of steps with these parts; with itself a step shares all but its own."""
        shared = usual.shared(steps, steps)
        np.fill_diagonal(shared, usual.total - usual.step)
        values, directions = np.linalg.eigh(shared)
        return cls(values=np.maximum(values, 0.0), directions=directions, own=usual.step)

    def variances(self, shared: float, own: float) -> FloatArray:
        """Along each direction, with factors on the standard deviations."""
        found: FloatArray = shared**2 * self.values + own**2 * self.own
        return found

    def log_likelihood(self, means: FloatArray, shared: float, own: float) -> float:
        """Of what was measured, but for a constant."""
        variances = self.variances(shared, own)
        along = self.directions.T @ means
        return float(-0.5 * (np.square(along) / variances + np.log(variances)).sum())

    def lessons(
        self, steps: tuple[StepFeatures, ...], means: FloatArray, usual: Spreads,
        factors: tuple[float, float],
    ) -> Observations:  # fmt: skip
        """With factors on the standard deviations of what steps share and of their own parts."""
        precision = (self.directions / self.variances(*factors)) @ self.directions.T
        return Observations(
            usual=usual, spreads=usual.scaled(*factors), steps=steps, weights=precision @ means,
            precision=precision,
        )  # fmt: skip


def _once_each(
    measured: Sequence[tuple[StepFeatures, float]],
) -> tuple[tuple[StepFeatures, ...], FloatArray]:
    by_step: dict[StepFeatures, list[float]] = defaultdict(list)
    for step, log_ratio in measured:
        by_step[step].append(log_ratio)
    steps = tuple(by_step)[-MOST_STEPS:]
    return steps, np.array([sum(by_step[step]) / len(by_step[step]) for step in steps])


def _reaching(found: _Spectrum, means: FloatArray) -> tuple[float, float]:
    """Factors on the reach of what steps share, and of their own parts, that are likely.

    The mean of the logarithms over a grid. Before anything is measured each is within a factor of
    two of the usual at the 68th percentile.
    """
    grid = np.array([(one, two) for one in _FACTORS for two in _FACTORS])
    fits = np.array([found.log_likelihood(means, *pair) for pair in grid.tolist()])
    scores = fits - 0.5 * np.square(np.log2(grid)).sum(axis=1)
    chances = np.exp(scores - scores.max())
    shared, own = np.exp(chances @ np.log(grid) / chances.sum()).tolist()
    return shared, own


def _same(
    one: Sequence[StepFeatures], other: Sequence[StepFeatures], of: Callable[[StepFeatures], str]
) -> FloatArray:
    """1 where two steps have the same, 0 elsewhere."""
    first, second = (np.array([of(step) for step in steps]) for steps in (one, other))
    same: FloatArray = (first[:, None] == second[None, :]).astype(np.float64)
    return same
