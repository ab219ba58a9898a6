"""Kernels whose threads make one memory access after another: they wait for latency.

A kernel with few threads, each of which walks through items and channels in turn, takes as long as
the accesses of a thread in a row, for as many rounds as the device needs to run all threads,
however fast its memory is. Which kernels do so stands in ``data/serial_accesses.csv``: where among
the shape numbers of the kind threads and their accesses are found, how long an access takes, and
which compilers leave the kernel as it is. A kernel of one block of threads names no number of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from paceline.model.graph.costs import Configuration, CostTable
from paceline.model.graph.graph import OpKind
from paceline.model.ops.optable import variants
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array

#: Threads that one multiprocessor keeps at a time (CUDA C++ Programming Guide, compute
#: capabilities: 1,024 to 2,048; fewer only add rounds).
_THREADS_PER_SM = 1536
#: Where the shape numbers say how a picture is stored: as the model stores its pictures, or plane
#: after plane.
_LAYOUT_DIM, _AS_MODEL, _PLANES = 3, 0, 1


def no_faster_than_accesses(
    busy_s: Array, costs: CostTable, dims: Array, devices: DeviceTable,
    configuration: Configuration, calibration: Calibration, library: str,
) -> Array:  # fmt: skip
    """Seconds of each row, (D, P, R), and no less than the accesses that its threads make in turn.

    Args:
        busy_s: Seconds by bytes and arithmetic, (D, P, R).
        costs: Rows.
        dims: Shape numbers, (P, R, NUM_DIMS).
        devices: Where it would run, (D,).
        configuration: Most compilers write kernels of their own.
        calibration: Which kernels do so.
        library: Whose kernels run.
    """
    if configuration.platform not in ("cuda", "rocm"):
        return busy_s
    resident = (devices.num_sms * _THREADS_PER_SM)[:, None, None].astype(np.float32)
    for known in calibration.constants["serial_accesses"]:
        has_kernel = known["library"] == library
        has_kernel &= configuration.compiler in known["compilers"].split()
        rows = _rows(costs, known, configuration) if has_kernel else ()
        if not len(rows):
            continue
        in_a_row = _accesses_in_a_row(dims[:, rows], known, resident)
        busy_s = busy_s.copy()
        busy_s[..., rows] = np.maximum(busy_s[..., rows], in_a_row * np.float32(known["access_s"]))
    return busy_s


def _accesses_in_a_row(dims: Array, known: Mapping[str, str], resident: Array) -> Array:
    """Accesses that follow one another until the last thread is done, (D or 1, P, rows)."""
    accesses = dims[None, ..., int(known["accesses_dim"])]
    if not known["threads_dim"]:
        return accesses
    threads = dims[..., int(known["threads_dim"])]
    rounds = np.nan_to_num(np.maximum(threads / resident, 1.0), nan=1.0)
    # Files of earlier versions have every element as a plane of one pixel.
    in_a_row: Array = rounds * accesses * (threads > 1)
    return in_a_row


def _rows(
    costs: CostTable, known: Mapping[str, str], configuration: Configuration
) -> npt.NDArray[np.intp]:
    """Rows that such a kernel runs."""
    stored = costs.dims[:, _LAYOUT_DIM, 0]
    by_planes = (stored == _PLANES) | ((stored == _AS_MODEL) & (not configuration.channels_last))
    is_kind = costs.kind == OpKind[known["kind"]]
    is_variant = costs.variant == variants()[known["kind"], known["variant"]]
    return np.flatnonzero(is_kind & is_variant & (by_planes | (known["layout"] == "any")))
