"""Classifier-free guidance on two ranks: one has the guided half of a batch, one the free half.

Source: Fang et al., "xDiT: an Inference Engine for Diffusion Transformers (DiTs) with Massive
Parallelism", arXiv 2411.01738 (CFG parallel).
"""

from __future__ import annotations

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import Graph
from paceline.model.graph.rows import with_rows


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
    return with_rows(graph, 0.5)
