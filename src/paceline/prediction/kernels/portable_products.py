"""Products of kernels that are written once for all devices: few bytes are on their way at a time.

A product of one row, or of a few, reads each weight once, so its time is that of reading. By
Little's law a multiprocessor reads as many bytes per clock as its kernel keeps on their way, over
the clocks that memory takes to answer. Kernels that are tuned for a device keep enough; portable
ones, which give each row of weights to one warp, read the same few bytes per clock on devices of a
maker, however fast their memory is. Cards with many multiprocessors beside a modest memory are not
held back, those with HBM are. How many bytes stands in ``data/portable_products.csv``.

Products of many rows fill no more than a share of the matrix units, which is that of the rate with
sums in 16 bits: twice the listed one on cards for consumers. Narrow weights are widened on the way.

Where no kernel of a maker was in the fit, what was learned of tuned ones on other devices says
nothing of its memory: such a product takes the longer of these clocks and of its bytes at the share
of the listed rate that copies reach.

Source:
    Little, "A Proof for the Queuing Formula L = λW", Operations Research 9(3), 1961.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import PEAK_KEYS, DeviceTable
from paceline.prediction.features import Array
from paceline.values import dataclass

#: Rows of a product up to which its kernels are those of one row (``MMVQ_MAX_BATCH_SIZE``).
_MOST_ROWS = 8
#: Rate with sums in 16 bits over the listed one, with sums in 32, on cards for consumers (NVIDIA,
#: GA102 white paper, table 3).
_SHORT_SUMS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Products:
    """The products of a pass.

    Attributes:
        rows: Which ops they are, (N,).
        num_rows: Rows of each of them, (P, N).
        moved_bytes: Of each op, (P, R).
        flop: Of each op, (P, R).
        are_widened: Whether weights are widened on the way to the matrix units.
    """

    rows: npt.NDArray[np.intp]
    num_rows: Array
    moved_bytes: Array
    flop: Array
    are_widened: bool


def with_portable(
    busy_s: Array, products: Products, devices: DeviceTable, calibration: Calibration
) -> Array:
    """Seconds of each op, (D, P, R), where products run in portable kernels.

    Args:
        busy_s: Seconds of tuned kernels, (D, P, R).
        products: Of the pass.
        devices: Where it would run, (D,).
        calibration: What such kernels reach.
    """
    rows = products.rows
    facts = _facts(devices, calibration)
    tuned_s = busy_s[..., rows]
    few_s = _few_rows_s(products.moved_bytes[:, rows].astype(np.float64), tuned_s, devices, facts)
    many_s = np.fmax(tuned_s, _many_rows_s(products, devices, facts))
    busy_s = busy_s.copy()
    busy_s[..., rows] = np.where(products.num_rows <= _MOST_ROWS, few_s, many_s)
    return busy_s


def _few_rows_s(
    moved: npt.NDArray[np.float64], tuned_s: Array, devices: DeviceTable, facts: Mapping[str, Array]
) -> Array:
    """The longer of the clocks and of the bytes, (D, P, N)."""
    clocks_s = moved / (
        facts["bytes_per_clock"] * (devices.num_sms * devices.boost_clock_hz)[:, None, None]
    )
    memory_s = moved / (facts["reached_frac"] * devices.memory_bytes_per_s[:, None, None])
    found = np.fmax(np.where(np.isnan(memory_s), tuned_s, memory_s), clocks_s)
    return np.asarray(found, np.float32)


def _many_rows_s(products: Products, devices: DeviceTable, facts: Mapping[str, Array]) -> Array:
    """Arithmetic at the share that such kernels reach, (D, P, N); NaN where it is not known."""
    listed = devices.peaks[:, PEAK_KEYS.index("fp16")]
    peak = np.where(devices.is_consumer > 0, _SHORT_SUMS, 1.0) * listed
    reached = facts["products_frac"] * (facts["widened_frac"] if products.are_widened else 1.0)
    return np.asarray(products.flop[:, products.rows] / (reached * peak[:, None, None]), np.float32)


def _facts(devices: DeviceTable, calibration: Calibration) -> dict[str, Array]:
    """Each number of the nearest row of the table, (D, 1, 1); NaN where it is not stated."""
    rows = calibration.constants["portable_products"]
    names = [f"{row['vendor']} {row['architecture']}".strip() for row in rows]
    makers = zip(devices.kinds, devices.architectures, strict=True)
    found = []
    for kind, architecture in makers:
        maker = f"{kind[0]} {architecture}"
        found.append(rows[max(range(len(rows)), key=lambda n: _fit(names[n], maker))])
    return {
        name: np.array([float(row[name] or "nan") for row in found])[:, None, None]
        for name in ("bytes_per_clock", "reached_frac", "products_frac", "widened_frac")
    }


def _fit(name: str, maker: str) -> int:
    """How well a row's name fits a maker and architecture; -1 where it does not."""
    return len(name) if maker.startswith(name) else -1
