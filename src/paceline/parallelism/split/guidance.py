"""Classifier-free guidance on two ranks: one has the guided half of a batch, one the free half.

Source: Fang et al., "xDiT: an Inference Engine for Diffusion Transformers (DiTs) with Massive
Parallelism", arXiv 2411.01738 (CFG parallel).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import EXPONENTS, Graph

_HALVED = np.array([2.0**-batch for batch, _ in EXPONENTS])


def half_of_guidance(graph: Graph, num_ranks: int, rows_per_item: float) -> Graph:
    """The graph of one half of guidance: that of half a batch.

    Args:
        graph: An inference.
        num_ranks: Ranks that have a half each.
        rows_per_item: Rows of a batch for each item: 2 with guidance.

    Raises:
        InvalidInputError: The model has no two halves, or other than two ranks want them.
    """
    if num_ranks != 2 or rows_per_item != 2.0:
        raise InvalidInputError(
            f"{graph.name} has no two halves of guidance for {num_ranks} ranks",
            hint="share its tokens (`cp`) or its items (`dp`)",
        )
    tensors, storages = graph.tensors, graph.storages
    return replace(
        graph,
        ops=replace(graph.ops, dims=graph.ops.dims * _HALVED, flop=graph.ops.flop * _HALVED),
        tensors=replace(tensors, elements=tensors.elements * _HALVED),
        storages=replace(storages, elements=storages.elements * _HALVED),
    )
