"""Graphs of other sizes than those they were traced at: more rows an item, or one length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from paceline.model.graph.graph import EXPONENTS, NUM_MONOMIALS, FloatArray, Graph


def with_rows(graph: Graph, rows: float) -> Graph:
    """The graph of a pass that runs ``rows`` rows for each item of a batch.

    Args:
        graph: Of one row an item.
        rows: Two where guidance wants an item without its prompt too, the beams of a search.
    """
    factors = np.array([rows**batch for batch, _ in EXPONENTS])
    return graph if rows == 1.0 else _mapped(graph, lambda elements: elements * factors)


def at_length(graph: Graph, length: float) -> Graph:
    """The graph at one length, whatever is asked of its neighbours."""
    collapse = np.zeros((NUM_MONOMIALS, NUM_MONOMIALS))
    for row, (batch, seq) in enumerate(EXPONENTS):
        collapse[row, EXPONENTS.index((batch, 0))] = length**seq
    return replace(
        _mapped(graph, lambda elements: elements @ collapse), variables=(graph.variables[0], "")
    )


def _mapped(graph: Graph, change: Callable[[FloatArray], FloatArray]) -> Graph:
    """The graph with all of its coefficients changed."""
    ops, tensors, storages = graph.ops, graph.tensors, graph.storages
    return replace(
        graph,
        ops=replace(ops, dims=change(ops.dims), flop=change(ops.flop)),
        tensors=replace(tensors, elements=change(tensors.elements)),
        storages=replace(storages, elements=change(storages.elements)),
    )
