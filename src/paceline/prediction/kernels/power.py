"""Clock under the power limit, and the energy of a step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.catalog.architectures import Generation
from paceline.model.graph.graph import FloatArray
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import PEAK_KEYS, DeviceTable
from paceline.values import dataclass

#: Threads of a warp.
_WARP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockConstants:
    """The clock under the power limit, one law for all devices.

    Attributes:
        j_per_flop: Energy of one operation at the listed clock.
        idle_frac: Share of the board power that does not compute.
        exponent: Clock that remains of a shortfall of power: energy per operation grows with the
            square of the voltage, which falls with the clock, so about one half.
    """

    j_per_flop: float
    idle_frac: float
    exponent: float


def clock_frac(
    tdp_w: npt.ArrayLike, flop_per_s: npt.ArrayLike, constants: ClockConstants
) -> FloatArray:
    """Share of its clock that a board holds where its arithmetic asks for more than its power.

    Boards of 70 W list as much FP32 arithmetic as boards of four times the power and cannot hold
    it: a T4 sustains about half of its peak, an L4 a third.

    Args:
        tdp_w: Board power; an unknown one limits nothing.
        flop_per_s: Rate of operations at that clock.
        constants: The law, with the energy of such an operation.

    Returns:
        Fractions above 0 and at most 1, broadcast over the arguments.
    """
    power_w = np.asarray(tdp_w, dtype=np.float64) * (1.0 - constants.idle_frac)
    wanted_w = np.asarray(flop_per_s, dtype=np.float64) * constants.j_per_flop
    with np.errstate(divide="ignore"):
        frac = np.minimum((power_w / wanted_w) ** constants.exponent, 1.0)
    return np.where(np.isnan(frac), 1.0, frac)


def sustained_clock_frac(devices: DeviceTable, calibration: Calibration) -> FloatArray:
    """Share of the listed vector rate that each device holds, (num_devices,).

    The clock that its power leaves it (`clock_frac`), times the share of its lanes that its
    schedulers feed.
    """
    facts = calibration.constants["clock"]
    constants = ClockConstants(**{name: float(facts[name]) for name in ClockConstants.__slots__})
    clock = clock_frac(devices.tdp_w, devices.peaks[:, PEAK_KEYS.index("fp32")], constants)
    share: FloatArray = clock * [_fed_frac(one) for one in devices.generations]
    return share


def _fed_frac(generation: Generation) -> float:
    """Warps that schedulers issue per cycle over those that the lanes could run, where fewer."""
    if not (generation.num_lanes and generation.num_schedulers):
        return 1.0
    return generation.num_schedulers * _WARP / generation.num_lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """Mean board power as shares of what the board may draw.

    Attributes:
        idle_frac: Least that a board draws while a job is on it.
        busy_frac: While kernels run, whatever they do.
        compute_frac: Times the square root of the share of peak arithmetic that is reached.
        memory_frac: Times the square root of the share of peak bandwidth that is reached.
    """

    idle_frac: float
    busy_frac: float
    compute_frac: float
    memory_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Shares of a step, (num_devices, num_points) each, between 0 and 1.

    Attributes:
        busy_frac: Of the time, in which kernels run.
        compute_frac: Of peak arithmetic.
        memory_frac: Of peak bandwidth.
    """

    busy_frac: FloatArray
    compute_frac: FloatArray
    memory_frac: FloatArray


def power_law(calibration: Calibration) -> PowerLaw:
    """The law as fitted by ``tools/accuracy_power``."""
    facts = calibration.constants["power"]
    return PowerLaw(**{name: float(facts[name]) for name in PowerLaw.__dataclass_fields__})


def power_frac(use: Use, law: PowerLaw) -> FloatArray:
    """Share of the board power that a step draws on average."""
    drawn = (
        law.busy_frac * use.busy_frac
        + law.compute_frac * np.sqrt(use.compute_frac)
        + law.memory_frac * np.sqrt(use.memory_frac)
    )
    share: FloatArray = np.clip(drawn, law.idle_frac, 1.0)
    return share


def use_of(
    mid_s: FloatArray,
    device_s: FloatArray,
    roofline_s: FloatArray,
    compute_bound_s: FloatArray,
) -> Use:
    """What a step uses of a device, from its times, (num_devices, num_points) each.

    Args:
        mid_s: The step.
        device_s: Its kernels.
        roofline_s: Its plain roofline.
        compute_bound_s: Of ``device_s``, kernels that arithmetic bounds.
    """
    step_s = np.maximum(mid_s, 1e-12)
    reached = np.minimum(roofline_s / step_s, 1.0)
    compute_share = np.minimum(compute_bound_s / np.maximum(device_s, 1e-12), 1.0)
    return Use(
        busy_frac=np.minimum(device_s / step_s, 1.0),
        compute_frac=reached * compute_share,
        memory_frac=reached * (1.0 - compute_share),
    )


def mean_power_w(devices: DeviceTable, use: Use, law: PowerLaw) -> FloatArray:
    """Mean board power of a step; NaN where the board power is unknown."""
    power_w: FloatArray = devices.tdp_w[:, None] * power_frac(use, law)
    return power_w


def idle_power_w(tdp_w: npt.ArrayLike, calibration: Calibration) -> FloatArray:
    """What a board draws while a job on it waits; NaN where the board power is unknown.

    >>> from paceline.prediction.calibration.fitted import builtin_calibration
    >>> float(idle_power_w(400.0, builtin_calibration()))
    48.0
    """
    return power_law(calibration).idle_frac * np.asarray(tdp_w, dtype=np.float64)


def slowdown_under_limit(power_w: float, limit_w: float, calibration: Calibration) -> float:
    """By how many times kernels take longer on a board that is set to draw less.

    The clock falls until the board draws what it may, by the law of `clock_frac`.

    >>> from paceline.prediction.calibration.fitted import builtin_calibration
    >>> slowdown_under_limit(200.0, 250.0, builtin_calibration())
    1.0
    """
    exponent = float(calibration.constants["clock"]["exponent"])
    return float(max(power_w / limit_w, 1.0) ** exponent)
