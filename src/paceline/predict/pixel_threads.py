"""Kernels that give one thread to a pixel, which goes through items and channels in turn.

Small images with many channels leave such a kernel waiting for one memory access after another,
however fast the memory is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.predict.devices import DeviceTable
from paceline.predict.features import Array
from paceline.shipped import shipped_rows
from paceline.trace.costs import Configuration, CostTable
from paceline.trace.graph import OpKind
from paceline.trace.optable import variants

#: Threads that one multiprocessor keeps at a time (CUDA C++ Programming Guide, compute
#: capabilities: 1,024 to 2,048; fewer only add rounds).
_THREADS_PER_SM = 1536
#: How a picture is stored: as the model stores its pictures, or plane after plane.
_AS_MODEL, _PLANES = 0, 1


def with_turns(
    busy_s: Array, costs: CostTable, dims: Array, devices: DeviceTable,
    configuration: Configuration, framework: str,
) -> Array:  # fmt: skip
    """Seconds of each row, (D, P, R), and no less than the turns that its threads take.

    A turn is one round trip to memory (``data/pixel_threads.csv``).

    Args:
        busy_s: Seconds by bytes and arithmetic, (D, P, R).
        costs: Rows.
        dims: Shape numbers, (P, R, NUM_DIMS): of resizing, planes, pixels of a plane, operands, and
            how the picture is stored (`paceline.trace.shapes`).
        devices: Where it would run, (D,).
        configuration: Compilers write kernels of their own.
        framework: Whose kernels run.
    """
    turn_s = _turn_s(costs, configuration, framework)
    rows = np.flatnonzero(turn_s)
    if not rows.size:
        return busy_s
    planes, pixels = dims[:, rows, 0], dims[:, rows, 1]
    resident = (devices.num_sms * _THREADS_PER_SM)[:, None, None].astype(np.float32)
    rounds = np.nan_to_num(np.maximum(pixels / resident, 1.0), nan=1.0)
    slow = busy_s.copy()
    # Files of earlier versions have every element as a plane of one pixel.
    least = rounds * planes * turn_s[rows] * (pixels > 1)
    slow[..., rows] = np.maximum(slow[..., rows], least)
    return slow


def _turn_s(costs: CostTable, configuration: Configuration, framework: str) -> Array:
    """Seconds of one turn of each row, 0 where a kernel has a thread per element, (R,)."""
    turn_s = np.zeros(len(costs.kind), dtype=np.float32)
    if configuration.platform not in ("cuda", "rocm") or configuration.compiler != "eager":
        return turn_s
    stored = costs.dims[:, 3, 0]
    is_first = (stored == _PLANES) | ((stored == _AS_MODEL) & (not configuration.channels_last))
    for row in shipped_rows("predict", "pixel_threads.csv"):
        if row["framework"] == framework:
            is_slow = _is_op(costs, row["kind"], row["variant"]) & (
                is_first | (row["layout"] == "any")
            )
            turn_s[is_slow] = float(row["turn_s"])
    return turn_s


def _is_op(costs: CostTable, kind: str, variant: str) -> npt.NDArray[np.bool_]:
    chosen: npt.NDArray[np.bool_] = (costs.kind == OpKind[kind]) & (
        costs.variant == variants()[kind, variant]
    )
    return chosen
