"""Two timelines: the host dispatches kernels in order, the device runs them in order.

Kernel j starts when it has been dispatched and kernel j - 1 is done, so the step ends at the
largest, over j, of *dispatch of j* plus *device time from j on*. No loop is needed.
"""

from __future__ import annotations

import numpy as np

from paceline.predict.features import Array


def step_end_s(host_s: Array, device_s: Array) -> Array:
    """When the last kernel ends.

    Args:
        host_s: Host time to dispatch each op, (num_ops,).
        device_s: Device time of each op, (..., num_ops).

    Returns:
        Seconds, shape of ``device_s`` without its last axis; zero without ops.

    >>> float(step_end_s(np.float32([1, 1]), np.float32([5, 5])))  # the device is busy: 1 + 10
    11.0
    >>> float(step_end_s(np.float32([5, 5]), np.float32([1, 1])))  # the host is: 10 + 1
    11.0
    """
    if not device_s.shape[-1]:
        return np.zeros(device_s.shape[:-1], dtype=np.float32)
    remaining = np.cumsum(device_s[..., ::-1], axis=-1)[..., ::-1]
    end: Array = (remaining + np.cumsum(host_s, dtype=np.float32)).max(axis=-1)
    return end
