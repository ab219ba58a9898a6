"""Memory per rank of data-parallel training, plain and sharded.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
SC 2020, section 5; PyTorch's DDP reducer keeps its buckets beside the gradients unless
``gradient_as_bucket_view`` is set; FSDP holds the gathered parameters of two blocks (one computing,
one prefetched).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.parallel.data_parallel import FSDP_BLOCKS
from paceline.parallel.strategy import Sharding
from paceline.trace.graph import FloatArray


def sharded_memory_bytes(
    *,
    memory_bytes: npt.ArrayLike,
    parameter_bytes: npt.ArrayLike,
    gradient_bytes: npt.ArrayLike,
    optimizer_state_bytes: npt.ArrayLike,
    num_ranks: npt.ArrayLike,
    sharding: Sharding = "none",
    has_bucket_view: bool = True,
) -> FloatArray:
    """Peak memory of one rank, given the peak of one device that keeps everything itself.

    One rank alone needs exactly ``memory_bytes``.

    Args:
        memory_bytes: Peak of the whole process on one device, same batch per device.
        parameter_bytes: Of it, parameters as the forward pass reads them.
        gradient_bytes: Of it, gradients.
        optimizer_state_bytes: Of it, optimizer state and master weights.
        num_ranks: Ranks that share the state.
        sharding: What they split.
        has_bucket_view: Whether gradients are views of the all-reduce buckets
            (``gradient_as_bucket_view=True``); else plain DDP keeps the buckets as a second copy.

    Returns:
        Bytes, broadcast over the arguments.
    """
    ranks = np.asarray(num_ranks, dtype=np.float64)
    saved_frac = 1.0 - 1.0 / ranks
    parameters, gradients, states = (
        np.asarray(x, dtype=np.float64)
        for x in (parameter_bytes, gradient_bytes, optimizer_state_bytes)
    )
    saved_bytes = np.zeros(np.broadcast_shapes(ranks.shape, parameters.shape))
    if sharding != "none":
        saved_bytes = saved_bytes + states * saved_frac
    if sharding in ("zero2", "zero3"):
        saved_bytes = saved_bytes + gradients * saved_frac
    if sharding == "zero3":
        saved_bytes = saved_bytes + parameters * np.maximum(saved_frac - 2.0 / FSDP_BLOCKS, 0.0)
    if sharding == "none" and not has_bucket_view:
        saved_bytes = saved_bytes - gradients * (ranks > 1)
    return np.asarray(np.asarray(memory_bytes, dtype=np.float64) - saved_bytes)
