"""Products whose rows begin anywhere: kernels that load 16 bytes at a time cannot run them.

Matrix units are fed by loads of 16 bytes, and on Hopper and later by a copy engine that needs rows
to begin at multiples of as much. A product with a size of features that is no such multiple (a
vocabulary of 50,257 words in 16 bits) runs in kernels with narrower loads, of an older generation.
What they reach per multiprocessor and clock stands in ``data/unaligned_products.csv``. Compilers
pad such products, and so do trainers that round vocabularies up.

Source:
    NVIDIA, "Matrix Multiplication Background User's Guide": dimensions in multiples of 16 bytes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.dtypes import ELEMENT_BYTES, DType, find_precision
from paceline.model.graph.costs import Configuration, CostTable
from paceline.model.graph.graph import FloatArray, OpKind
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array

#: What a load of full width reads.
_WIDE_BYTES = 16
_MAKER = "NVIDIA"
#: Where the shape numbers of a product have its rows, columns and depth.
_SIZES = slice(1, 4)


def no_faster_unaligned(
    busy_s: Array, costs: CostTable, flop: Array, devices: DeviceTable,
    configuration: Configuration, calibration: Calibration, library: str,
) -> Array:  # fmt: skip
    """Seconds of each row, (D, P, R), and no less than kernels with narrow loads take.

    Args:
        busy_s: Seconds of kernels with wide loads, (D, P, R).
        costs: Rows.
        flop: Of each, (P, R).
        devices: Where it would run, (D,).
        configuration: Compilers and engines pad, and trainers may.
        calibration: What such kernels reach.
        library: Whose kernels run.
    """
    if library != "torch":
        return busy_s
    per_clock = _flop_per_clock(costs, configuration, calibration)
    rows = np.flatnonzero(np.isfinite(per_clock))
    is_nvidia = np.array([maker == _MAKER for maker, _ in devices.kinds])
    if not rows.size or not is_nvidia.any():
        return busy_s
    clocks_per_s = np.where(is_nvidia, devices.num_sms * devices.boost_clock_hz, np.nan)
    least_s = flop[:, rows] / (per_clock[rows] * clocks_per_s[:, None, None])
    found = busy_s.copy()
    found[..., rows] = np.fmax(found[..., rows], least_s.astype(np.float32))
    return found


def _flop_per_clock(
    costs: CostTable, configuration: Configuration, calibration: Calibration
) -> FloatArray:
    """What kernels reach per multiprocessor and clock, (R,); NaN where loads are wide."""
    reached = np.full(len(costs.kind), np.nan)
    begins = begin_bytes(costs, configuration)
    element = _element_bytes(costs)
    for known in calibration.constants["unaligned_products"]:
        is_one = element == float(known["element_bytes"])
        is_one &= begins == float(known["begins_at_bytes"])
        reached[is_one] = float(known["flop_per_clock"])
    return reached


def begin_bytes(costs: CostTable, configuration: Configuration) -> FloatArray:
    """The multiple of bytes at which all rows of a product's operands begin, at most 16, (R,).

    Only sizes that do not follow the batch are widths of rows. What is no product, runs on vector
    units, or is padded by a compiler, an engine or its trainer, has full width.
    """
    runs_as_written = configuration.compiler == "eager" and configuration.widths == "as-written"
    if not runs_as_written or configuration.is_served:
        return np.full(len(costs.kind), float(_WIDE_BYTES))
    sizes = costs.dims[:, _SIZES, 0]
    is_fixed = ~costs.dims[:, _SIZES, 1:].any(axis=2) & (sizes > 1)
    element = _element_bytes(costs)[:, None]
    widths = np.where(is_fixed, sizes * element, _WIDE_BYTES).astype(np.int64)
    begins = np.gcd(widths, _WIDE_BYTES).min(axis=1).astype(np.float64)
    on_matrix_units = (costs.matmul_dtype != int(DType.FP32)) | (
        find_precision(configuration.precision).peak_key == "tf32"
    )
    is_product = (costs.kind == OpKind.MATMUL) & on_matrix_units
    return np.where(is_product, begins, float(_WIDE_BYTES))


def has_narrow_loads(
    costs: CostTable, devices: DeviceTable, configuration: Configuration
) -> npt.NDArray[np.bool_]:
    """Whether a row runs in kernels with narrow loads on the first device, (R,)."""
    is_nvidia = devices.kinds[0][0] == _MAKER
    return (begin_bytes(costs, configuration) < _WIDE_BYTES) & is_nvidia


def _element_bytes(costs: CostTable) -> FloatArray:
    """Of the operands of each row's product, (R,)."""
    return np.array(ELEMENT_BYTES, dtype=np.float64)[costs.matmul_dtype]
