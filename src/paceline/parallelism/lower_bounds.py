"""Bounds below the steps of strategies, from block times and messages: what need not be evaluated.

Shapes: one element per strategy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.model.graph.graph import FloatArray
from paceline.parallelism.evaluation import least_exposed_s
from paceline.parallelism.rank_memory import evenly_owned
from paceline.parallelism.schedule.pipeline_timing import PipelineTimes
from paceline.parallelism.schedule.table import (
    KINDS,
    ClusterLinks,
    StrategyTable,
    Variant,
    VariantKind,
)

#: Of forward, what recomputing all blocks takes at least: fused kernels repeat less than all of it.
_LEAST_RECOMPUTED_FRAC = 0.6
#: Of the work of the busiest stage, what an interleaved step takes at least: its pace is that of
#: one round after the first few, which may be a little short.
_LEAST_INTERLEAVED_FRAC = 0.95


def least_steps_s(
    table: StrategyTable, kinds: Sequence[VariantKind], plain: Sequence[Variant],
    fabric: ClusterLinks,
) -> FloatArray:  # fmt: skip
    """A time that no step undercuts: neither updates nor uneven stages are counted.

    Let a microbatch take ``S`` in all stages together, on devices or hosts, whichever is longer, of
    which ``F`` is forward and ``W`` makes gradients of weights. With ``m`` microbatches and ``p``
    stages, the busiest of which has at least ``S / p``:

    - Without stages a step takes ``m S``; interleaved no less than about ``m S / p``.
    - Under 1F1B a stage waits until the first microbatch has come through those before it, and the
      last gradient passes them after it, so that with stages ``s`` each step takes at least
      ``m s[r] + s[0] + … + s[r-1]`` for each ``r``. However the model is cut, the largest of these
      is at least ``S / (1 - (1 - 1/m)^p)``, where all are equal.
    - Under ZB-H1 no less than ``m S / p``, and than one microbatch takes on its way through all
      stages and back, ``S - W``.

    What replicas send is added as far as no such step can hide it.

    Args:
        table: Strategies.
        kinds: What their ``variant`` points into.
        plain: For each of them the variant of the same ranks that recomputes nothing.
        fabric: The cluster.
    """
    place = table.variant, table.point
    first_s, second_s = _passes_s(table, kinds, plain, "")
    first_host_s, second_host_s = _passes_s(table, kinds, plain, "host_")
    weight_s = np.array([one.costs.weight_s.sum(axis=1) for one in plain])[place]
    device_s = first_s + second_s
    all_s = np.maximum(device_s, first_host_s + second_host_s)
    count, stages = table.microbatches.astype(np.float64), table.pp.astype(np.float64)
    flowing_s = all_s / -np.expm1(stages * np.log1p(-1.0 / np.maximum(count, 1.0 + 1e-9)))
    busiest_s = all_s * count / stages
    passing_s = np.maximum(busiest_s, device_s - weight_s)
    kind, nothing = table.kind, np.zeros(len(table))
    least_s = np.select(
        [kind == KINDS.index(one) for one in ("1f1b", "zbh1", "interleaved")],
        [flowing_s, passing_s, _LEAST_INTERLEAVED_FRAC * busiest_s],
        busiest_s,
    )
    times = PipelineTimes(
        all_s=least_s, bubble_s=nothing, tensor_s=nothing, ahead_s=nothing,
        forward_s=np.maximum(first_s, first_host_s),
        backward_s=np.maximum(second_s, second_host_s),
    )  # fmt: skip
    return np.asarray(least_s + least_exposed_s(table, times, evenly_owned(table, plain), fabric))


def _passes_s(
    table: StrategyTable, kinds: Sequence[VariantKind], plain: Sequence[Variant], of: str
) -> tuple[FloatArray, FloatArray]:
    """Forward and backward of a microbatch in all stages, on devices or (``host_``) hosts."""
    forward_s, backward_s = (
        np.array([getattr(one.costs, f"{way}_{of}s").sum(axis=1) for one in plain])
        for way in ("forward", "backward")
    )
    recomputes = np.array([one.checkpointing != "none" for one in kinds])
    repeated_s = np.where(recomputes[:, None], _LEAST_RECOMPUTED_FRAC * forward_s, 0.0)
    place = table.variant, table.point
    return forward_s[place], (backward_s + repeated_s)[place]
