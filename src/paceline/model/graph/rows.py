"""Graphs of other sizes than those they were traced at, and of some of their ops alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import (
    EXPONENTS,
    NUM_MONOMIALS,
    FloatArray,
    Graph,
    IntArray,
    OpKind,
    Owner,
)

BoolArray = npt.NDArray[np.bool_]

#: Place of the queries among the shape numbers of attention.
_QUERIES = 3
#: Monomials that grow with the context.
_OF_CONTEXT = np.array([seq > 0 for _, seq in EXPONENTS])


def with_rows(graph: Graph, rows: float) -> Graph:
    """The graph of a pass that runs ``rows`` rows for each item of a batch.

    ``rows``: two where guidance wants an item without its prompt too, the beams of a search.
    """
    factors = np.array([rows**batch for batch, _ in EXPONENTS])
    return graph if rows == 1.0 else _mapped(graph, lambda elements: elements * factors)


def with_queries(graph: Graph, queries: int) -> Graph:
    """The graph of a decode step that reads so many tokens of each sequence at once.

    What grows with tokens grows, and what looks back on a cache reads it once for all of them.

    ``queries``: those that are checked together, and the one before them.
    """
    if queries == 1:
        return graph
    ops, tensors, storages = graph.ops, graph.tensors, graph.storages
    factors = np.array([float(queries) ** batch for batch, _ in EXPONENTS])

    def grown(elements: FloatArray, *, keeps: BoolArray | bool = False) -> FloatArray:
        looks_back = np.asarray(elements[..., _OF_CONTEXT].any(axis=-1) | keeps)
        return np.where(looks_back[..., None], elements, elements * factors)

    looks = ops.kind == OpKind.ATTENTION
    is_cache = storages.owner == Owner.KV_CACHE
    dims = grown(ops.dims, keeps=looks[:, None])
    dims[looks, _QUERIES] *= queries
    flop = np.where(looks[:, None], ops.flop * queries, grown(ops.flop))
    seen, held = (
        grown(one.elements, keeps=keeps)
        for one, keeps in ((tensors, is_cache[tensors.storage]), (storages, is_cache))
    )
    return replace(
        graph,
        ops=replace(ops, dims=dims, flop=flop),
        tensors=replace(tensors, elements=seen),
        storages=replace(storages, elements=held),
    )


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


def only_ops(graph: Graph, chosen: IntArray) -> Graph:
    """The graph with some of its ops alone; everything that they touch is there all the time."""
    ops, storages = graph.ops, graph.storages
    reads = _rows_of(ops.input_start, ops.input_tensor, chosen)
    writes = _rows_of(ops.output_start, ops.output_tensor, chosen)
    kept = replace(
        ops,
        kind=ops.kind[chosen], variant=ops.variant[chosen], phase=ops.phase[chosen],
        module=ops.module[chosen], flop=ops.flop[chosen], dims=ops.dims[chosen],
        input_start=reads[0], input_tensor=reads[1],
        output_start=writes[0], output_tensor=writes[1],
    )  # fmt: skip
    always = replace(
        storages,
        birth=np.full_like(storages.birth, -1),
        death=np.full_like(storages.death, len(chosen)),
    )
    return replace(graph, ops=kept, storages=always)


def _rows_of(
    start: npt.NDArray[np.int32], tensor: npt.NDArray[np.int32], chosen: IntArray
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Row pointers and entries of some ops."""
    parts = [tensor[start[op] : start[op + 1]] for op in chosen]
    sizes = [0, *(len(part) for part in parts)]
    entries = np.concatenate(parts) if parts else tensor[:0]
    return np.cumsum(sizes).astype(np.int32), entries
