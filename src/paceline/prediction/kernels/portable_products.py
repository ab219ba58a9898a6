"""Products of kernels that are written once for all devices: few bytes are on their way at a time.

A product of one row, or of a few, reads each weight once, so its time is that of reading. By
Little's law a multiprocessor reads as many bytes per clock as its kernel keeps on their way, over
the clocks that memory takes to answer. Kernels that are tuned for a device keep enough; portable
ones, which give each row of weights to one warp, read the same few bytes per clock on devices of a
maker, however fast their memory is. Cards with many multiprocessors beside a modest memory are not
held back, those with HBM are. How many bytes stands in ``data/portable_products.csv``.

Source:
    Little, "A Proof for the Queuing Formula L = λW", Operations Research 9(3), 1961.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array

#: Rows of a product up to which its kernels are those of one row (``MMVQ_MAX_BATCH_SIZE``).
_MOST_ROWS = 8


def no_faster_than_portable(
    busy_s: Array, rows: npt.NDArray[np.intp], num_rows: Array, moved_bytes: Array,
    devices: DeviceTable, calibration: Calibration,
) -> Array:  # fmt: skip
    """Seconds of each op, (D, P, R), where products of few rows run in portable kernels.

    Args:
        busy_s: Seconds of tuned kernels, (D, P, R).
        rows: Which ops are products, (N,).
        num_rows: Rows of each of them, (P, N).
        moved_bytes: Of each op, (P, R).
        devices: Where it would run, (D,).
        calibration: Bytes per clock and multiprocessor.
    """
    known = calibration.constants["portable_products"]
    per_clock = np.array([known.get(vendor, known[""]) for vendor, _ in devices.kinds])
    bytes_per_s = per_clock * devices.num_sms * devices.boost_clock_hz
    least_s = (moved_bytes[:, rows] / bytes_per_s[:, None, None]).astype(np.float32)
    held = np.where(num_rows <= _MOST_ROWS, np.nan_to_num(least_s, nan=0.0), np.float32(0))
    busy_s = busy_s.copy()
    busy_s[..., rows] = np.maximum(busy_s[..., rows], held)
    return busy_s
