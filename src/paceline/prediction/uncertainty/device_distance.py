"""How far a device is from those that were measured, in what decides how kernels run on it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import FloatArray
from paceline.prediction.devices import PEAK_KEYS, DeviceTable

#: Years between generations of GPUs count as much as a factor of two in the other coordinates.
_YEARS = 3.0
#: Distance in a coordinate that is unknown, and the excess of a clock whose base is.
_UNKNOWN = 1.0


def coordinates(devices: DeviceTable) -> FloatArray:
    """Where devices lie, (num_devices, 4).

    Launch in generations, and logs to the base 2 of board power per FP32 operation and of
    arithmetic per cycle and multiprocessor, in 16 bits and in FP32.
    """
    fp32 = devices.peaks[:, PEAK_KEYS.index("fp32")]
    fp16 = devices.peaks[:, PEAK_KEYS.index("fp16")]
    per_cycle = devices.num_sms * devices.boost_clock_hz
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (
            devices.tdp_w / fp32,
            np.where(fp16 > 0, fp16, fp32) / per_cycle,
            fp32 / per_cycle,
        )
        logs = [np.log2(ratio) for ratio in ratios]
    return np.stack([devices.year / _YEARS, *logs], axis=1)


def distances(devices: DeviceTable, measured: npt.ArrayLike) -> FloatArray:
    """Distance of each device to the nearest measured one, (num_devices,).

    Args:
        devices: The devices.
        measured: Coordinates of measured devices, (num_measured, 4).
    """
    gap = coordinates(devices)[:, None] - np.asarray(measured, dtype=np.float64)[None]
    squares = np.where(np.isfinite(gap), gap, _UNKNOWN) ** 2
    nearest: FloatArray = np.sqrt(squares.sum(axis=-1).min(axis=1))
    return nearest


def clock_log_sigma(devices: DeviceTable, per_excess: float) -> FloatArray:
    """What an unknown clock under load leaves open of log time, (num_devices,).

    It grows with the power that the listed clock asks, up to where nothing is known but that the
    clock lies between base and listed: the standard deviation of a log that is uniform there.

    Args:
        devices: The devices.
        per_excess: Of log time per unit of `clock_power_excess`.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        span = np.log(devices.boost_clock_hz / devices.base_clock_hz)
    anywhere = np.where(np.isfinite(span), np.maximum(span, 0.0), np.inf) / math.sqrt(12.0)
    added: FloatArray = np.minimum(per_excess * clock_power_excess(devices), anywhere)
    return added


def clock_power_excess(devices: DeviceTable) -> FloatArray:
    """Power that the listed clock asks beyond the base clock, as a share of the latter's.

    Dynamic power goes with the clock and the square of a voltage that rises with it: with the cube
    of the clock. Boards whose listed clock is far above what their power sustains run slower than
    others of the same chip.

    Source:
        Weste, Harris, "CMOS VLSI Design", 4th edition, 2010, section 5.2.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = (devices.boost_clock_hz / devices.base_clock_hz) ** 3 - 1.0
    known: FloatArray = np.where(np.isfinite(excess), np.maximum(excess, 0.0), _UNKNOWN)
    return known
