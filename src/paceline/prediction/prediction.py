"""The answer of `predict`: arrays over devices × points, with an interval and a reason."""

from __future__ import annotations

from dataclasses import fields, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray
from paceline.values import dataclass


class Bound(IntEnum):
    """What holds a pass back on its device; the plan adds what feeds and joins devices."""

    COMPUTE = 0
    BANDWIDTH = 1
    LAUNCH = 2


class Coverage(IntEnum):
    """How near the device is to one that was measured; wider intervals further down."""

    MEASURED = 0
    SIBLING = 1
    ARCHITECTURE = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Where to evaluate: batch and sequence length, elementwise.

    Attributes:
        batch: Items per device and microbatch, (num_points,).
        seq: Sequence (or past) length, (num_points,).
    """

    batch: FloatArray
    seq: FloatArray

    @classmethod
    def of(cls, batch: npt.ArrayLike, *, seq: float) -> Points:
        """Batches of sequences of one length.

        >>> Points.of([1, 2], seq=128).seq
        array([128., 128.])
        """
        sizes = np.asarray(batch, dtype=np.float64)
        return cls(batch=sizes, seq=np.full(len(sizes), float(seq)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Figures:
    """What is told of a pass on a device, and of one microbatch of a step, in a table's shape.

    Attributes:
        device_s: Busy time of the device.
        host_s: Time the host needs to dispatch it.
        wait_s: What is lost in it because the host waits for the device.
        backward_s: Of ``device_s``, the backward part (what communication can hide behind).
        update_s: What the optimizer's update adds to a step, by its kernels or by their dispatch
            (what accumulation does once).
        compute_bound_s: Of ``device_s``, in ops whose binding limit is arithmetic.
        roofline_s: Plain roofline, for comparison.
        flop: Of the model; what is recomputed is not counted twice.
        memory_low_bytes: Peak of the process (of several ranks the fullest), lower end of its 80 %
            interval.
        memory_mid_bytes: Median.
        memory_high_bytes: The bound that holds at a chance of 95 %.
        energy_j: Of one device over it, or over one batch of inference.
        power_w: Mean power of the device.
        bound: ``Bound`` code, int8.
        knowledge: ``Coverage`` code of the device, int8.
        log_sigma: Standard deviation of log step time.
    """

    device_s: FloatArray
    host_s: FloatArray
    wait_s: FloatArray
    backward_s: FloatArray
    update_s: FloatArray
    compute_bound_s: FloatArray
    roofline_s: FloatArray
    flop: FloatArray
    memory_low_bytes: FloatArray
    memory_mid_bytes: FloatArray
    memory_high_bytes: FloatArray
    energy_j: FloatArray
    power_w: FloatArray
    bound: npt.NDArray[np.int8]
    knowledge: npt.NDArray[np.int8]
    log_sigma: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassPrediction(Figures):
    """One pass on one device each, for all devices × points.

    Shapes are (num_devices, num_points), but for ``flop`` (num_points,) and ``knowledge``
    (num_devices,).

    Attributes:
        low_s: Lower end of the 80 % interval of step time.
        mid_s: Median of step time.
        high_s: Upper end of the 80 % interval.
        num_waits: How often the host waits for the device within it.
        bandwidth_bound_s: Of ``device_s``, time in ops bound by device memory.
    """

    low_s: FloatArray
    mid_s: FloatArray
    high_s: FloatArray
    num_waits: FloatArray
    bandwidth_bound_s: FloatArray

    def at(self, points: npt.ArrayLike) -> PassPrediction:
        """The prediction at some of its points, in this order; points may repeat."""
        index = np.asarray(points)
        of_points = (f.name for f in fields(self) if f.name not in _OF_NO_POINT)
        return replace(self, **{name: getattr(self, name)[..., index] for name in of_points})

    def where(self, is_other: npt.NDArray[np.bool_], other: PassPrediction) -> PassPrediction:
        """The prediction with what another says of some points, (num_points,)."""
        of_points = (f.name for f in fields(self) if f.name not in _OF_NO_POINT)
        chosen = {n: np.where(is_other, getattr(other, n), getattr(self, n)) for n in of_points}
        return replace(self, **chosen)


#: Fields of a prediction that are alike at all its points.
_OF_NO_POINT = ("knowledge",)
