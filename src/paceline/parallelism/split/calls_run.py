"""Calls of a split graph that are still made when parts of the model are not trained."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph, Phase
from paceline.model.graph.program import Program
from paceline.model.lowering import retrained
from paceline.parallelism.split import CallTable

BoolArray = npt.NDArray[np.bool_]


def calls_that_run(graph: Graph, configuration: Configuration, calls: CallTable) -> CallTable:
    """The calls whose op is left, or whose saved input another op of backward still needs.

    Without a gradient of a weight nobody gathers the input that it would be made of; an adapter
    beside the weight has a gradient made of the same input.

    Args:
        graph: What a rank has.
        configuration: What is trained of it.
        calls: After ops of the graph.
    """
    if not (configuration.frozen or configuration.lora_rank):
        return calls
    whole, left = Program.from_graph(graph), retrained(graph, configuration)
    runs = np.isin(np.arange(len(whole.ops)), left.ops.dims) | _is_needed(whole, left)
    return calls.take(runs[calls.op])


def _is_needed(whole: Program, left: Program) -> BoolArray:
    """Ops of the backward pass that read what was kept for them and still is for others."""
    is_kept = (whole.stores.birth >= 0) & (
        whole.position_of(whole.stores.birth) < whole.first_backward()
    )
    reads_late = left.ops.phase[left.reads.op] == Phase.BACKWARD
    is_read = np.zeros(len(left.stores), dtype=np.bool_)
    is_read[left.reads.storage[reads_late]] = True
    is_kept &= is_read[: len(is_kept)]
    found = np.zeros(len(whole.ops), dtype=np.bool_)
    found[whole.reads.op[is_kept[whole.reads.storage]]] = True
    return np.asarray(found & (whole.ops.phase == Phase.BACKWARD))
