"""What data parallel needs of a lowered pass: when gradients are ready."""

from __future__ import annotations

import numpy as np

from paceline.model.graph.costs import LoweredPass
from paceline.model.graph.graph import FloatArray, Phase, monomials
from paceline.parallelism.replicas.data_parallel import GradientProfile

#: FLOP per byte at which both sides of the time proxy weigh the same; data-centre GPUs with
#: matrix units in BF16 lie between 140 (A100) and 300 (H100), consumer ones between 80 and 160.
_PROXY_FLOP_PER_BYTE = 150.0


def gradient_profile(
    lowered: LoweredPass, *, batch: float, seq: float = 1.0
) -> GradientProfile | None:
    """Buckets of gradients over the backward pass; None if nothing is trained.

    Progress through backward is measured in a device-free proxy of time, the larger of bytes and
    FLOP over a typical ridge, because only shares of backward matter here.

    Args:
        lowered: A training pass.
        batch: Items per device at which the proxy is evaluated.
        seq: Sequence length there.
    """
    if not len(lowered.gradient_ready):
        return None
    weight = _op_weights(lowered, batch, seq)
    is_backward = _phases(lowered, Phase.BACKWARD, Phase.RECOMPUTE)
    progress = np.cumsum(weight * is_backward)
    ready = accumulated_gradients(lowered)
    ready_frac = progress[ready[:, 0].astype(np.int64)] / progress[-1]
    return GradientProfile.from_tensors(np.maximum.accumulate(ready_frac), ready[:, 1])


def accumulated_gradients(lowered: LoweredPass) -> FloatArray:
    """(op, bytes) of each gradient in the order autograd accumulates it, (num_tensors, 2).

    The gradients of one module come together; a linear layer's bias is accumulated before its
    weight, whose gradient still passes through a transpose node.
    """
    ready = lowered.gradient_ready
    if not len(ready):
        return ready
    module = lowered.costs.module[ready[:, 0].astype(np.int64)]
    run = np.cumsum(np.diff(module, prepend=module[0]) != 0)
    return np.asarray(ready[np.lexsort((ready[:, 1], run))])


def _op_weights(lowered: LoweredPass, batch: float, seq: float) -> FloatArray:
    costs, point = lowered.costs, monomials(batch, seq)[0]
    moved = costs.moved_bytes(point[None])[0]
    row_weight = np.maximum(moved, costs.flop @ point / _PROXY_FLOP_PER_BYTE)
    return np.asarray(row_weight[costs.order], dtype=np.float64)


def _phases(lowered: LoweredPass, *phases: Phase) -> FloatArray:
    return np.isin(lowered.costs.phase[lowered.costs.order], phases).astype(np.float64)
