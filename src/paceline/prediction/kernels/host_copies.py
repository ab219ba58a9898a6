"""Copies between device and host memory: what offload pays.

They cross the host link and not device memory, one direction after the other, as PyTorch's
`save_on_cpu` and an update on the host do; nothing hides them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.model.graph.costs import CostTable
from paceline.model.graph.graph import OpKind
from paceline.prediction.calibration.fitted import Calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.features import Array, Bounds


def through_host_link(
    device_s: Array,
    bounds: Bounds,
    moved_bytes: Array,
    costs: CostTable,
    devices: DeviceTable,
    calibration: Calibration,
) -> tuple[Array, Bounds]:
    """Times and bounds with host copies at the rate of the link; NaN where that is unknown.

    Args:
        device_s: Of every row as if it streamed through device memory, (D, P, R).
        bounds: Likewise.
        moved_bytes: Of every row, (P, R).
        costs: The rows.
        devices: The devices.
        calibration: Share of the link's peak that copies reach.
    """
    rows = np.flatnonzero(costs.kind == OpKind.HOST_COPY)
    if not rows.size:
        return device_s, bounds
    peak = devices.host_bytes_per_s[:, None, None]
    bound_s = (moved_bytes[:, rows] / peak).astype(np.float32)
    memory_s, times = bounds.memory_s.copy(), device_s.copy()
    memory_s[..., rows] = bound_s
    times[..., rows] = bound_s / calibration.constant("host", "link_efficiency_frac")
    return times, replace(bounds, memory_s=memory_s)
