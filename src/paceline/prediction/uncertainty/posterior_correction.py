"""What the user's measurements tell of a pass: how far its prediction is off, and what is left."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.model.graph.costs import CostTable, LoweredPass
from paceline.model.graph.graph import FloatArray, Phase
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array
from paceline.prediction.kernels.op_shapes import OpShapes, evaluate_shapes
from paceline.prediction.kernels.sustained_rate import steady_row_times
from paceline.prediction.prediction import Points
from paceline.values import dataclass

#: So many kernels stand for a step, those that take most of its time.
_MOST_KERNELS = 48
#: A kernel with a smaller share is none of them.
_LEAST_SHARE_FRAC = 1e-4
#: Steps of a kernel's work per doubling: a kernel is known by its work to a quarter of a percent.
_STEPS_PER_DOUBLING = 256
#: Bits of a signature: as many as a number in JSON holds.
_SIGNATURE_BITS = 53
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Correction:
    """What measurements say of steps, (num_devices, num_points) each.

    Attributes:
        log_shift: Log of measured over predicted time to expect; 0 where nothing was measured.
        left_frac: Share of the variance of log time that is left; 1 there.
    """

    log_shift: FloatArray
    left_frac: FloatArray


def correction_of(
    lowered: LoweredPass, shapes: OpShapes, device_s: Array, devices: DeviceTable,
    calibration: Calibration, *, framework: str,
) -> Correction:  # fmt: skip
    """What the calibration's lessons tell of one pass.

    Args:
        lowered: The pass.
        shapes: Its cost table at the points.
        device_s: Time of one occurrence of each row by the built-in coefficients,
            (num_devices, num_points, num_rows).
        devices: Where it runs.
        calibration: With the lessons.
        framework: Whose host dispatch applies.
    """
    shift, left = np.zeros(device_s.shape[:2]), np.ones(device_s.shape[:2])
    for row, name in enumerate(devices.names):
        lessons = calibration.lessons.get(name)
        if lessons is not None:
            steps = traits_of(lowered, shapes, device_s[row], framework)
            shift[row], left[row] = lessons.log_shift(steps), lessons.left_frac(steps)
    return Correction(log_shift=shift, left_frac=left)


def pass_traits(
    lowered: LoweredPass, device: DeviceTable, points: Points, calibration: Calibration,
    *, framework: str = "torch",
) -> tuple[StepFeatures, ...]:  # fmt: skip
    """The traits of one pass, point by point.

    Args:
        lowered: The pass.
        device: A table of one device.
        points: Batch sizes and sequence lengths.
        calibration: Coefficients.
        framework: Whose host dispatch applies.
    """
    shapes = evaluate_shapes(lowered.costs, points)
    rows = steady_row_times(lowered, shapes, device, calibration, framework=framework)
    return traits_of(lowered, shapes, rows.device_s[0], framework)


def traits_of(
    lowered: LoweredPass, shapes: OpShapes, device_s: Array, framework: str
) -> tuple[StepFeatures, ...]:
    """As `pass_traits`, from times that are at hand.

    Args:
        lowered: The pass.
        shapes: Its cost table at the points.
        device_s: Time of one occurrence of each row, (num_points, num_rows).
        framework: Whose host dispatch applies.
    """
    costs, setting = lowered.costs, _setting(lowered, framework)
    is_update = costs.phase == Phase.OPTIMIZER
    signatures, total_s = _signatures(costs, shapes), device_s * np.where(is_update, 0, costs.count)
    return tuple(
        StepFeatures(workload=lowered.name, setting=setting, kernels=_heaviest(signature, seconds))
        for signature, seconds in zip(signatures, total_s.astype(np.float64), strict=True)
    )


def _setting(lowered: LoweredPass, framework: str) -> str:
    how = lowered.configuration
    trains = "train" if (lowered.costs.phase == Phase.BACKWARD).any() else "infer"
    return f"{framework} {how.precision} {how.compiler} {trains}"


def _signatures(costs: CostTable, shapes: OpShapes) -> npt.NDArray[np.uint64]:
    """A number per kernel by its kind, number format and work, (num_points, num_rows)."""
    work = np.stack((shapes.flop, shapes.moved_bytes)).astype(np.float64) * shapes.launches
    sizes = np.rint(_STEPS_PER_DOUBLING * np.log2(1.0 + work)).astype(np.uint64)
    signature = np.zeros(sizes.shape[1:], dtype=np.uint64)
    for part in (costs.kind.astype(np.uint64), costs.matmul_dtype.astype(np.uint64), *sizes):
        signature = (signature ^ (part + np.uint64(1))) * _MULTIPLIER
        signature ^= signature >> np.uint64(29)
    return signature >> np.uint64(64 - _SIGNATURE_BITS)


def _heaviest(
    signatures: npt.NDArray[np.uint64], seconds: FloatArray
) -> tuple[tuple[int, float], ...]:
    distinct, place = np.unique(signatures, return_inverse=True)
    shares = np.bincount(place, seconds, len(distinct)) / max(seconds.sum(), 1e-30)
    order = np.argsort(-shares, kind="stable")[:_MOST_KERNELS]
    kept = order[shares[order] >= _LEAST_SHARE_FRAC]
    return tuple((int(distinct[one]), round(float(shares[one]), 5)) for one in kept)
