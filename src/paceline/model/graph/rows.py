"""Graphs of other sizes than those they were traced at, and of some of their ops alone.

Figures of a pass are polynomials in the length, and a window of attention bends them. A pass as it
was traced holds up to the window; `in_window` gives the one that holds beyond it. Prompts have
causal pairs, half a square, up to twice the window, and a window for each token from there on:
never fewer than there are.

Sources: Beltagy et al., "Longformer", arXiv:2004.05150, section 3 (windows); Jiang et al.,
"Mistral 7B", arXiv:2310.06825, section 2 (a cache that rolls).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from paceline.model.graph import polynomial
from paceline.model.graph.graph import (
    EXPONENTS,
    PAST,
    FloatArray,
    Graph,
    IntArray,
    OpKind,
    Owner,
)
from paceline.values import dataclass

BoolArray = npt.NDArray[np.bool_]

#: Place of the queries among the shape numbers of attention.
_QUERIES = 3
#: Monomials that grow with the context.
_OF_CONTEXT = np.array([seq > 0 for _, seq in EXPONENTS])
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)(?:\.|$)")
_KV_LEN, _IS_CAUSAL = 4, 6
_PAIRS = [0, 1, 3, 4, 5]


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
    return replace(
        _mapped(graph, lambda elements: polynomial.at_length(elements, length)),
        variables=(graph.variables[0], ""),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which layers look back on how much.

    Attributes:
        tokens: That such a layer sees of the past, itself included.
        full_every: Of so many layers the last one sees everything; 0 where all have the window.
    """

    tokens: int
    full_every: int = 0

    def holds(self, module: str) -> bool:
        """Whether a module lies in a layer with the window.

        >>> holds = Window(tokens=1024, full_every=6).holds
        >>> holds("model.layers.4.self_attn"), holds("model.layers.5.self_attn"), holds("head")
        (True, False, False)
        """
        found = _LAYER.search(module)
        if found is None:
            return False
        return not self.full_every or (int(found[1]) + 1) % self.full_every != 0


def holds_from(graph: Graph, window: Window) -> float:
    """The shortest length at which `in_window` is what runs."""
    return float(window.tokens if graph.variables[1] == PAST else 2 * window.tokens)


def in_window(graph: Graph, window: Window) -> Graph:
    """A pass over texts that are longer than the window, with those layers as they run then."""
    has_window = np.array([window.holds(name) for name in graph.modules], dtype=np.bool_)
    inside = has_window[graph.ops.module]
    is_written = graph.variables[1] == PAST
    return _rolling(graph, inside, window) if is_written else _banded(graph, inside, window)


def _rolling(graph: Graph, inside: BoolArray, window: Window) -> Graph:
    """A step that writes tokens: all that such layers read of the past is as long as the window."""
    ops, tensors, storages = graph.ops, graph.tensors, graph.storages
    seen = _accessed(ops.input_start, ops.input_tensor, inside)
    made = _accessed(ops.output_start, ops.output_tensor, inside)
    is_seen = np.zeros(len(tensors.storage), dtype=np.bool_)
    is_seen[np.concatenate((seen, made))] = True
    is_held = np.zeros(len(storages.owner), dtype=np.bool_)
    is_held[tensors.storage[is_seen]] = True
    is_own = np.zeros(len(storages.owner), dtype=np.bool_)
    is_own[tensors.storage[made]] = True
    is_held &= is_own | (storages.owner == Owner.KV_CACHE)
    at = partial(_at_length, length=float(window.tokens))
    return replace(
        graph,
        ops=replace(ops, dims=at(ops.dims, inside), flop=at(ops.flop, inside)),
        tensors=replace(tensors, elements=at(tensors.elements, is_seen)),
        storages=replace(storages, elements=at(storages.elements, is_held)),
    )


def _banded(graph: Graph, inside: BoolArray, window: Window) -> Graph:
    """A prompt: each of its tokens meets a window of others in such layers."""
    ops, rows = graph.ops, np.flatnonzero(inside & (graph.ops.kind == OpKind.ATTENTION))
    dims, flop = ops.dims.copy(), ops.flop.copy()
    dims[rows, _KV_LEN] = polynomial.constant(np.full(len(rows), float(window.tokens)))
    dims[rows, _IS_CAUSAL] = 0.0
    flop[rows] = 4.0 * polynomial.product(dims[rows][:, _PAIRS])
    return replace(graph, ops=replace(ops, dims=dims, flop=flop))


def _accessed(
    start: npt.NDArray[np.int32], tensor: npt.NDArray[np.int32], inside: BoolArray
) -> npt.NDArray[np.int32]:
    """Tensors that some ops touch."""
    return tensor[np.repeat(inside, np.diff(start))]


def _at_length(elements: FloatArray, rows: BoolArray, length: float) -> FloatArray:
    """Coefficients with those of some rows at one length."""
    found = elements.copy()
    found[rows] = polynomial.at_length(elements[rows], length)
    return found


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
