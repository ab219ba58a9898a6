"""A graph of some of the ops of another, for what they take by themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import Graph, IntArray


def only_ops(graph: Graph, chosen: IntArray) -> Graph:
    """The graph with some of its ops alone; everything that they touch is there all the time.

    Args:
        graph: A pass.
        chosen: Ops that stay, in order.
    """
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
