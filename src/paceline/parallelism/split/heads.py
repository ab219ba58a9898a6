"""Heads of keys and values on more ranks than there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.model.graph.graph import Graph, OpKind
from paceline.model.ops.registry import dims_of

(_KV_HEADS,) = dims_of(OpKind.ATTENTION, "kv_heads")


def with_copied_heads(graph: Graph, num_ranks: int) -> Graph:
    """The graph with as many heads of keys and values as ranks, where it has fewer.

    Args:
        graph: A pass.
        num_ranks: Tensor ranks, each of which needs a head.
    """
    ops = graph.ops
    few = np.flatnonzero((ops.kind == OpKind.ATTENTION) & (ops.dims[:, _KV_HEADS, 0] < num_ranks))
    if not few.size:
        return graph
    dims, elements = ops.dims.copy(), graph.tensors.elements.copy()
    for op in few:
        copies = num_ranks / dims[op, _KV_HEADS, 0]
        dims[op, _KV_HEADS] *= copies
        elements[ops.input_tensor[ops.input_start[op] + 1 : ops.input_start[op + 1]]] *= copies
    return replace(
        graph, ops=replace(ops, dims=dims), tensors=replace(graph.tensors, elements=elements)
    )
