"""Matrix units under the power limit: the rate that a board holds for hours, from its bursts.

Op rows are measured in short loops, at a rate that many boards cannot hold: the power limit acts
within milliseconds of steady work. An H100 runs products at about four fifths of its burst rate
when it trains; boards with more arithmetic per watt lose more.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import numpy.typing as npt

from paceline.dtypes import ELEMENT_BYTES, DType, find_precision
from paceline.predict.devices import DeviceTable
from paceline.predict.features import Array
from paceline.predict.groups import Group, groups_of_rows
from paceline.predict.kernels import RowShapes
from paceline.trace.costs import LoweredPass

_MATRIX_GROUPS = (
    Group.PRODUCT_TENSOR,
    Group.CONV_TENSOR,
    Group.ATTENTION,
    Group.ATTENTION_BACKWARD,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerBudget:
    """Where the power of a board goes under matrix products in 16 bits.

    Attributes:
        j_per_flop: Energy of one operation at the listed clock.
        idle_frac: Share of the board power that does not compute.
        exponent: Clock that remains of a shortfall of power, as in `power.ClockConstants`.
    """

    j_per_flop: float
    idle_frac: float
    exponent: float


@cache
def power_budget() -> PowerBudget:
    """The law's constants, from ``data/sustained_clock.csv`` (source in each row)."""
    path = resources.files("paceline.predict") / "data" / "sustained_clock.csv"
    with path.open(encoding="utf-8") as lines:
        values = {row["name"]: float(row["value"]) for row in csv.DictReader(lines)}
    return PowerBudget(**values)


def sustained_frac(
    tdp_w: npt.ArrayLike, burst_flop_per_s: npt.ArrayLike, budget: PowerBudget
) -> Array:
    """Share of the burst clock that is left when the work goes on.

    Args:
        tdp_w: Board power; an unknown one limits nothing.
        burst_flop_per_s: Rate of 16-bit operations that the op reaches in a short loop.
        budget: The law.

    Returns:
        Fractions above 0 and at most 1, broadcast over the arguments.
    """
    power_w = np.asarray(tdp_w, dtype=np.float64) * (1.0 - budget.idle_frac)
    wanted_w = np.asarray(burst_flop_per_s, dtype=np.float64) * budget.j_per_flop
    with np.errstate(divide="ignore"):
        frac = np.minimum((power_w / wanted_w) ** budget.exponent, 1.0)
    return np.where(np.isnan(frac), 1.0, frac)


def sustained_row_s(
    device_s: Array, lowered: LoweredPass, shapes: RowShapes, devices: DeviceTable
) -> Array:
    """Time of one occurrence of each row in steady work, (D, P, R).

    Operations in other formats than 16 bits draw power in proportion to their width.

    Args:
        device_s: Time in a short loop, (D, P, R).
        lowered: The pass.
        shapes: Its cost table at the points.
        devices: Where it runs.
    """
    precision = find_precision(lowered.configuration.precision)
    on_matrix_units = np.isin(groups_of_rows(lowered.costs, precision), _MATRIX_GROUPS)
    width = np.array(ELEMENT_BYTES)[lowered.costs.matmul_dtype] / ELEMENT_BYTES[DType.BF16]
    flop = shapes.flop * shapes.launches * on_matrix_units * width
    rate = flop / np.maximum(device_s, 1e-12)
    frac = sustained_frac(devices.tdp_w[:, None, None], rate, power_budget())
    return (device_s / frac).astype(device_s.dtype)
