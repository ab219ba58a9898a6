"""Two timelines: the host dispatches kernels in order, the device runs them in order.

Kernel j starts when it has been dispatched and kernel j - 1 is done, so the step ends at the
largest, over j, of *dispatch of j* plus *device time from j on*. No loop is needed. Where the host
waits for the device, both start again together: the step is the sum over the stretches between.
Times of ops are summed in 64 bits: in 32 the sum of a thousand depends on their last bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import FloatArray
from paceline.prediction.features import Array


def step_ends_s(host_s: Array, device_s: Array, num_before: int) -> tuple[FloatArray, FloatArray]:
    """When the last kernel ends, and when the last of the first ``num_before`` does.

    Args:
        host_s: Host time to dispatch each op, (..., num_ops).
        device_s: Device time of each op, (..., num_ops).
        num_before: Ops that run without those after them too.

    Returns:
        Seconds, twice, shape of both without their last axis, broadcast; zero without ops.

    >>> [float(end) for end in step_ends_s(np.float32([1, 1, 9]), np.float32([5, 5, 1]), 2)]
    [12.0, 11.0]
    """
    nothing = np.zeros(device_s.shape[:-1])
    if not device_s.shape[-1]:
        return nothing, nothing
    done = device_s.astype(np.float64)
    np.cumsum(done, axis=-1, out=done)
    whole = done[..., -1].copy()
    done -= device_s
    has_rest = 0 < num_before < device_s.shape[-1]
    done_before = done[..., num_before].copy() if has_rest else whole
    behind = np.subtract(np.cumsum(host_s, axis=-1, dtype=np.float64), done, out=done)
    if not has_rest:
        end: FloatArray = whole + behind.max(axis=-1)
        return end, end if num_before else nothing
    before: FloatArray = behind[..., :num_before].max(axis=-1)
    after: FloatArray = behind[..., num_before:].max(axis=-1)
    return whole + np.maximum(before, after), before + done_before


def waiting_end_s(host_s: Array, device_s: Array, waits: npt.NDArray[np.intp]) -> FloatArray:
    """When the last kernel ends where the host waits, after some ops, until they have run.

    Up to its wait a stretch lasts as long as `step_ends_s` says of it alone.

    Args:
        host_s: Host time to dispatch each op, (..., num_ops).
        device_s: Device time of each op, (..., num_ops).
        waits: Ops after which the host waits, ascending.

    Returns:
        Seconds, shape of both without their last axis, broadcast.

    >>> host_s, device_s = np.float32([1, 1, 1]), np.float32([5, 5, 5])
    >>> float(waiting_end_s(host_s, device_s, np.array([1])))  # (1 + 10) + (1 + 5)
    17.0
    """
    num_ops = device_s.shape[-1]
    starts = distinct(np.append(0, waits[waits < num_ops - 1] + 1))
    dispatched = np.cumsum(host_s, axis=-1, dtype=np.float64)
    done = np.cumsum(device_s, axis=-1, dtype=np.float64)
    lag = np.maximum.reduceat(dispatched - (done - device_s), starts, axis=-1)
    begun = np.take(dispatched - host_s, starts, axis=-1)
    ended = np.take(done, np.append(starts[1:] - 1, num_ops - 1), axis=-1)
    end: FloatArray = (lag - begun + ended).sum(axis=-1)
    return end
