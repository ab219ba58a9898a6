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


def turns_s(
    costs: CostTable, dims: Array, devices: DeviceTable, configuration: Configuration,
    framework: str,
) -> Array:  # fmt: skip
    """Least seconds of each row for the turns that its threads take, (D, P, R); 0 for others.

    A turn is one round trip to memory (``data/pixel_threads.csv``).

    Args:
        costs: Rows.
        dims: Shape numbers, (P, R, NUM_DIMS): of resizing, planes, pixels of a plane, operands, and
            how the picture is stored (`paceline.trace.shapes`).
        devices: Where it would run, (D,).
        configuration: Compilers write kernels of their own.
        framework: Whose kernels run.
    """
    turn_s = _turn_s(costs, configuration, framework)
    least = np.zeros((len(devices.num_sms), *dims.shape[:2]), dtype=np.float32)
    rows = np.flatnonzero(turn_s)
    if rows.size:
        planes, pixels = dims[:, rows, 0], dims[:, rows, 1]
        resident = (devices.num_sms * _THREADS_PER_SM)[:, None, None].astype(np.float32)
        rounds = np.nan_to_num(np.maximum(pixels / resident, 1.0), nan=1.0)
        # Files of earlier versions have every element as a plane of one pixel.
        least[..., rows] = rounds * planes * turn_s[rows] * (pixels > 1)
    return least


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
