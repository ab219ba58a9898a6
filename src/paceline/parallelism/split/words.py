"""The vocabulary on tensor ranks: its part of the product that makes logits, and the whole rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.model.graph.graph import Graph, OpKind, Owner
from paceline.model.ops.registry import dims_of
from paceline.parallelism.split.calls import CallTable
from paceline.parallelism.split.roles import view_ops, word_tables

_M, _N = dims_of(OpKind.MATMUL, "m", "n")


def ends_in_words(graph: Graph) -> bool:
    """Whether the last op of a pass makes logits: as many as a table of words has rows."""
    views = view_ops(graph)
    return views[-1].kind == OpKind.MATMUL and views[-1].dims[_N] in word_tables(views).values()


def with_split_words(whole: Graph, split: Graph, num_ranks: int) -> Graph:
    """A rank's graph with its part of the vocabulary at the end, unless it has it by its table."""
    if split.ops.dims[-1, _N, 0] < whole.ops.dims[-1, _N, 0]:
        return split
    ops = split.ops
    dims, flop = ops.dims.copy(), ops.flop.copy()
    dims[-1, _N] /= num_ranks
    flop[-1] /= num_ranks
    weights = [
        t
        for t in ops.input_tensor[ops.input_start[-2] :]
        if split.storages.owner[split.tensors.storage[t]] == Owner.PARAMETER
    ]
    shared = np.zeros(len(split.storages.owner), dtype=np.bool_)
    written = ops.output_tensor[ops.output_start[-2] :]
    shared[split.tensors.storage[[*weights, *written]]] = True
    share = np.where(shared, 1.0 / num_ranks, 1.0)[:, None]
    return replace(
        split,
        ops=replace(ops, dims=dims, flop=flop),
        storages=replace(split.storages, elements=split.storages.elements * share),
        tensors=replace(
            split.tensors, elements=split.tensors.elements * share[split.tensors.storage]
        ),
    )


def gathered_words(whole: Graph) -> CallTable:
    """Logits of every request, from the ranks that have the words."""
    dims, last = whole.ops.dims[-1], len(whole.ops.kind) - 1
    return CallTable.of([(last, "tensor", "all_gather", dims[_M] * dims[_N, 0], np.nan)])
