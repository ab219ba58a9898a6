"""Clock under the power limit, and the energy of a step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.predict.calibration import Calibration
from paceline.predict.devices import PEAK_KEYS, DeviceTable
from paceline.trace.graph import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockConstants:
    """The clock under the power limit, one law for all devices.

    Attributes:
        j_per_flop: Energy of one FP32 operation at the listed clock.
        idle_frac: Share of the board power that does not compute.
        exponent: Clock that remains of a shortfall of power: energy per operation grows with the
            square of the voltage, which falls with the clock, so about one half.
    """

    j_per_flop: float
    idle_frac: float
    exponent: float


def clock_frac(
    tdp_w: npt.ArrayLike, peak_fp32_flop_per_s: npt.ArrayLike, constants: ClockConstants
) -> FloatArray:
    """Share of the listed clock that a board holds under dense FP32 arithmetic.

    Boards of 70 W list as much arithmetic as boards of four times the power and cannot hold it: a
    T4 sustains about half of its peak, an L4 a third.

    Args:
        tdp_w: Board power; an unknown one limits nothing.
        peak_fp32_flop_per_s: Listed vector peak.
        constants: The law.

    Returns:
        Fractions above 0 and at most 1.
    """
    power = np.asarray(tdp_w, dtype=np.float64) * (1.0 - constants.idle_frac)
    wanted = np.asarray(peak_fp32_flop_per_s, dtype=np.float64) * constants.j_per_flop
    frac = np.minimum((power / wanted) ** constants.exponent, 1.0)
    return np.where(np.isnan(frac), 1.0, frac)


def sustained_clock_frac(devices: DeviceTable, calibration: Calibration) -> FloatArray:
    """`clock_frac` of each device, (num_devices,)."""
    facts = calibration.constants["clock"]
    constants = ClockConstants(**{name: float(facts[name]) for name in ClockConstants.__slots__})
    return clock_frac(devices.tdp_w, devices.peaks[:, PEAK_KEYS.index("fp32")], constants)


def mean_power_w(
    devices: DeviceTable, utilisation: FloatArray, calibration: Calibration
) -> FloatArray:
    """Mean board power at a utilisation between 0 and 1; NaN where the board power is unknown.

    Idle draw plus a share that rises with use, up to the board power.

    Args:
        devices: Board powers.
        utilisation: Weighted share of the limits in use, (num_devices, num_points).
        calibration: Idle and busy shares.
    """
    facts = calibration.constants["power"]
    share = facts["idle_frac"] + facts["busy_frac"] * utilisation ** facts["exponent"]
    power: FloatArray = devices.tdp_w[:, None] * np.minimum(share, 1.0)
    return power
