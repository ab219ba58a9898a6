"""Clock under the power limit, and the energy of a step."""

from __future__ import annotations

import numpy as np

from paceline.predict.calibration import Calibration
from paceline.predict.devices import PEAK_KEYS, DeviceTable
from paceline.trace.graph import FloatArray


def sustained_clock_frac(
    devices: DeviceTable, peak_dr: FloatArray, calibration: Calibration
) -> FloatArray:
    """Share of the listed clock that a device holds under dense arithmetic.

    A board that lists far more arithmetic per watt than its contemporaries cannot hold its boost
    clock: power grows with about the cube of the clock, so the clock falls with the cube root of
    the shortfall. Watts per FP32 peak are compared with what a process of the launch year needs.

    Args:
        devices: Facts; unknown power or year gives 1.
        peak_dr: Peaks, for their shape only, (num_devices, num_rows).
        calibration: Energy per FLOP and its decline per year.

    Returns:
        Fractions, (num_devices, num_rows).
    """
    facts = calibration.constants["clock"]
    fp32 = devices.peaks[:, PEAK_KEYS.index("fp32")]
    needed_j = facts["j_per_flop_2018"] * 2.0 ** (-(devices.year - 2018) / facts["halving_years"])
    shortfall = devices.tdp_w / (needed_j * fp32)
    frac = np.clip(shortfall ** facts["exponent"], facts["lowest_frac"], 1.0)
    frac = np.where(np.isnan(frac), 1.0, frac)
    return np.broadcast_to(frac[:, None], peak_dr.shape)


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
