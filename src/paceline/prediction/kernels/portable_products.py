"""Products of kernels that are written once for all devices: few bytes are on their way at a time.

A product of one row, or of a few, reads each weight once, so its time is that of reading. By
Little's law a multiprocessor reads as many bytes per clock as its kernel keeps on their way, over
the clocks that memory takes to answer. Kernels that are tuned for a device keep enough; portable
ones, which give each row of weights to one warp, read the same few bytes per clock on devices of a
maker, however fast their memory is. Cards with many multiprocessors beside a modest memory are not
held back, those with HBM are. How many bytes stands in ``data/portable_products.csv``.

Where no kernel of a maker was in the fit, what was learned of tuned ones on other devices says
nothing of its memory: such a product takes the longer of these clocks and of its bytes at the share
of the listed rate that copies reach.

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


def with_portable(
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
        calibration: Bytes per clock and multiprocessor, and the share of memory's rate.
    """
    makers = zip(devices.kinds, devices.architectures, strict=True)
    facts = [_facts(f"{kind[0]} {name}", calibration) for kind, name in makers]
    per_clock, reached = (np.array([f[i] for f in facts])[:, None, None] for i in (0, 1))
    moved = moved_bytes[:, rows].astype(np.float64)
    clocks_s = moved / (per_clock * (devices.num_sms * devices.boost_clock_hz)[:, None, None])
    memory_s = moved / (reached * devices.memory_bytes_per_s[:, None, None])
    tuned_s = busy_s[..., rows]
    with_clocks_s = np.fmax(np.where(np.isnan(reached), tuned_s, memory_s), clocks_s)
    busy_s = busy_s.copy()
    busy_s[..., rows] = np.where(num_rows <= _MOST_ROWS, with_clocks_s, tuned_s)
    return busy_s


def _facts(maker: str, calibration: Calibration) -> tuple[float, float]:
    """Bytes per clock, and share of memory's rate, of the nearest row of the table."""
    rows = calibration.constants["portable_products"]
    names = [f"{row['vendor']} {row['architecture']}".strip() for row in rows]
    fits = [len(name) if maker.startswith(name) else -1 for name in names]
    row = rows[int(np.argmax(fits))]
    return float(row["bytes_per_clock"]), float(row["reached_frac"] or "nan")
