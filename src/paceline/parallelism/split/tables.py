"""Tables of embeddings shared by ranks that have items of their own, as graph → graph.

Each rank keeps an equal part of all tables, whole ones or rows of them, and looks up what the items
of every rank ask of it: the vectors found travel to the ranks of their items in forward, and their
gradients back. Nothing of a table is reduced. Ids travel ahead, behind the work of the step before
(TorchRec, ``TrainPipelineSparseDist``), and parts are taken to be asked equally often.

Source: Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation
Systems", arXiv 1906.00091, section 3 (tables model-parallel, the rest data-parallel, and the
exchange between); Mudigere et al., ISCA 2022, section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.model.graph.graph import Graph, OpKind, Owner
from paceline.model.table_updates import is_mostly_tables, looked_up
from paceline.parallelism.split.calls import Call, CallTable
from paceline.parallelism.split.experts import divided_experts, with_part_of_storages
from paceline.parallelism.split.roles import mark_states, view_ops
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedTables:
    """What ranks have of a model whose tables they share.

    Attributes:
        graph: The pass of one of them.
        calls: What they exchange.
        is_shared: Storage holds tables, their gradients or states, (num_storages,).
    """

    graph: Graph
    calls: CallTable
    is_shared: npt.NDArray[np.bool_]


@lru_cache(maxsize=8)
def share_tables(graph: Graph, degree: int) -> SharedTables | None:
    """What one of ``degree`` ranks has; None of a model that is not mostly tables."""
    if not is_mostly_tables(graph):
        return None
    is_shared = looked_up(graph) & (graph.storages.owner == Owner.PARAMETER)
    mark_states(view_ops(graph), is_shared, graph)
    return SharedTables(
        graph=with_part_of_storages(graph, is_shared, degree),
        calls=CallTable.of([*_exchanges(graph, is_shared)]),
        is_shared=is_shared,
    )


def _exchanges(graph: Graph, is_shared: npt.NDArray[np.bool_]) -> Iterator[Call]:
    """Vectors that were looked up, and their gradients before the backward pass of each lookup."""
    for op in view_ops(graph):
        if op.kind == OpKind.EMBEDDING and any(is_shared[s] for s, _ in op.parameters):
            found = graph.ops.output_tensor[graph.ops.output_start[op.index]]
        elif op.kind == OpKind.EMBEDDING_BACKWARD and is_shared[op.outputs[0]]:
            found = graph.ops.input_tensor[graph.ops.input_start[op.index]]
        else:
            continue
        yield op.index, "experts", "all_to_all", graph.tensors.elements[found], np.nan


def check_shared(graph: Graph, degree: int) -> None:
    """Refuse a degree at which ranks with items of their own share nothing of a model.

    Raises:
        InvalidInputError: It is not mostly tables, and has no experts that the degree divides.
    """
    if not is_mostly_tables(graph):
        divided_experts(graph, degree)
