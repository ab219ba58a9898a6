"""Tensor parallel as graph → graph: what one rank of a tensor group computes, keeps and sends.

Sources:
    Shoeybi et al., arXiv 1909.08053 (column and row pairs); Korthikanti et al., "Reducing
    Activation Recomputation in Large Transformer Models", arXiv 2205.05198 (sequence parallel).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, Graph, OpKind, Owner, Phase
from paceline.model.ops.registry import FACTS, dims_of, kinds_where
from paceline.model.updates import of_what_is_kept
from paceline.parallelism.collectives.links import Collective
from paceline.parallelism.split.calls import Call, CallTable
from paceline.parallelism.split.roles import (
    OpView,
    Role,
    evaluate,
    find_roles,
    head_modules,
    mark_states,
    normed,
    sums_features,
    view_ops,
)
from paceline.values import dataclass

_FILTER_BACKWARD = kinds_where(lambda facts: facts.backward_of == OpKind.CONV)
#: Forward kinds with a matrix or a filter.
_PRODUCTS = kinds_where(lambda facts: facts.weight_dims is not None and facts.backward_of is None)
_HEADS = np.array(dims_of(OpKind.ATTENTION, "q_heads", "kv_heads"))
#: Shape number of the inputs of the matrix of each forward kind; -1 where it has none.
_INPUTS = np.full(max(OpKind) + 1, -1)
_INPUTS[list(_PRODUCTS)] = [dims_of(k, *(FACTS[k].weight_dims or ()))[0] for k in _PRODUCTS]
#: What a filter of each feature has of them.
_FEATURES = ("c", "k", "groups")
#: Split loss: the largest logit, the sum of exponentials and the target's logit, per row.
_LOSS_REDUCTIONS = 3
#: Bytes of those: they stay FP32 under autocast.
_LOSS_BYTES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorPart:
    """A graph as one rank of a tensor group sees it.

    Attributes:
        graph: Same ops; their sizes are this rank's.
        calls: What the group exchanges.
        split_parameter_frac: Share of all parameters that are split.
    """

    graph: Graph
    calls: CallTable
    split_parameter_frac: float


def split_tensor(
    graph: Graph,
    degree: int,
    *,
    sequence_parallel: bool = False,
    splits_words: bool = True,
    whole: Graph | None = None,
) -> TensorPart:
    """What one of ``degree`` tensor-parallel ranks runs.

    Pairs, heads and vocabulary are found in the graph (`roles`). With sequence parallel,
    activations between the pairs are split along the sequence too.

    Args:
        graph: One pass of a model.
        degree: Ranks of the group; 1 returns the graph as it is.
        sequence_parallel: Whether reductions become scatters and gathers along the sequence.
        splits_words: Whether tables of words, the output head and the loss are split, too.
        whole: The pass with all items and experts, if the graph has a rank's part of them: split
            data flows the same way through all parts, so it is followed once.

    Raises:
        InvalidInputError: The degree does not divide heads or widths, or nothing can be split.
    """
    if degree == 1:
        return TensorPart(graph=graph, calls=CallTable.of([]), split_parameter_frac=0.0)
    followed = graph if whole is None else whole
    flow = _flow_of(followed, _least_width(followed, degree), splits_words=splits_words)
    if flow is None:
        raise InvalidInputError(
            f"tensor parallel finds nothing to split in {graph.name}",
            hint="use data parallel (`dp`) or a pipeline (`pp`) for this model",
        )
    _check_heads(graph, flow, degree)
    _check_widths(graph, flow, degree)
    parameters = graph.storages.owner == Owner.PARAMETER
    size = graph.storages.elements[:, 0]
    return TensorPart(
        graph=_scaled(graph, flow, degree, sequence_parallel=sequence_parallel),
        calls=_calls(graph, flow, sequence_parallel=sequence_parallel),
        split_parameter_frac=float(size[parameters & flow.is_split].sum() / size[parameters].sum()),
    )


def _least_width(graph: Graph, degree: int) -> float:
    """Width of the narrowest weight that so many ranks can share; degrees are alike up to it."""
    widths = _widths(graph)
    wide = widths[widths >= 2.0 * degree]
    return float(wide.min()) if wide.size else math.inf


@lru_cache(maxsize=4)
def _widths(graph: Graph) -> FloatArray:
    weights = (op for op in view_ops(graph) if op.weight_dims is not None)
    return np.array([op.dims[op.weight_dims[1]] for op in weights if op.weight_dims])


@lru_cache(maxsize=4)
def _flow_of(graph: Graph, least_width: float, *, splits_words: bool) -> _Flow | None:
    """Where split data goes if weights of such a width are split; None where none can be."""
    views = view_ops(graph)
    roles = find_roles(views, least_width / 2.0, splits_words=splits_words)
    by_heads = head_modules(views, graph.modules, roles)
    if by_heads:
        width = least_width / 2.0
        roles = find_roles(views, width, splits_words=splits_words, by_heads=by_heads)
    return _follow(views, roles, graph, by_heads) if roles else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Flow:
    """Where split data goes, and what each op does about it.

    Attributes:
        is_split: Storage is split along features, (num_storages,).
        dims: (op, dim) pairs that shrink.
        touches: Op works on split data, (num_ops,).
        reduced: (op, storage) whose value is a partial sum after the op.
        gathered_again: Ops that need a whole saved input once more under sequence parallel.
        loss_rows: Ops that reduce over a split vocabulary.
        summed_rows: Ops beside which ranks add up their features of rows, and ops that have these.
    """

    is_split: npt.NDArray[np.bool_]
    dims: list[tuple[int, int]]
    touches: npt.NDArray[np.bool_]
    reduced: list[tuple[int, int]]
    gathered_again: list[tuple[int, int]]
    loss_rows: list[int]
    summed_rows: list[tuple[int, int]]


class _Tracker:
    """Follows split data through forward and backward, given the roles of all weights."""

    def __init__(
        self, roles: Mapping[int, Role], num_storages: int, num_ops: int, by_heads: frozenset[int]
    ) -> None:
        self.roles = roles
        self.by_heads = by_heads
        self.is_split = np.zeros(num_storages, dtype=np.bool_)
        self.is_split[list(roles)] = True
        self.touches = np.zeros(num_ops, dtype=np.bool_)
        self.dims: list[tuple[int, int]] = []
        self.reduced: list[tuple[int, int]] = []
        self.gathered_again: list[tuple[int, int]] = []
        self.loss_rows: list[int] = []
        self.summed_rows: dict[int, int] = {}
        self.weight_of_module: dict[int, int] = {}
        self.table_of_module: dict[int, int] = {}
        self.input_of_weight: dict[int, int] = {}
        self.last_input_gradient: dict[int, tuple[int, int]] = {}
        self.width: dict[int, float] = {}

    def step(self, op: OpView) -> None:
        """Follow data through one op."""
        if op.phase == Phase.OPTIMIZER:
            return
        if op.phase != Phase.BACKWARD and op.weight in self.roles:
            self._forward_product(op, int(op.weight or 0))
        elif op.kind == OpKind.EMBEDDING and self.roles.get(op.parameters[0][0]) is not None:
            self.table_of_module[op.module] = op.parameters[0][0]
            self.reduced.append((op.index, op.outputs[0]))
        elif op.kind == OpKind.EMBEDDING_BACKWARD and op.module in self.table_of_module:
            self._mark(op, (0,))
        elif op.phase == Phase.BACKWARD and self._is_product(op):
            self._backward_product(op, self.weight_of_module[op.module])
        elif any(self.is_split[s] for s, _ in op.inputs):
            self._pass(op)

    def _is_product(self, op: OpView) -> bool:
        kinds = (OpKind.MATMUL, *_FILTER_BACKWARD)
        return op.kind in kinds and op.module in self.weight_of_module

    def _forward_product(self, op: OpView, weight: int) -> None:
        self.weight_of_module[op.module] = weight
        self.touches[op.index] = True
        inputs, outputs = op.weight_dims or (0, 0)
        if self.roles[weight] == Role.ROW:
            self.dims.append((op.index, inputs))
            self.reduced.append((op.index, op.outputs[0]))
            return
        self.input_of_weight[weight] = op.inputs[0][0]
        self.dims.append((op.index, outputs))
        self.is_split[list(op.outputs)] = True
        self.is_split[[s for s, _ in op.parameters]] = True
        self.width.update(dict.fromkeys(op.outputs, op.dims[outputs]))

    def _backward_product(self, op: OpView, weight: int) -> None:
        """Gradient of the input or of the weight of a split module."""
        is_row = self.roles[weight] == Role.ROW
        self.touches[op.index] = True
        if not is_row:
            self.is_split[op.inputs[0][0]] = True
        if op.kind in _FILTER_BACKWARD:
            inputs, outputs = dims_of(op.kind, *(FACTS[op.kind].weight_dims or ()))
            self.dims.append((op.index, inputs if is_row else outputs))
            makes_input_gradient = op.kind == OpKind.CONV_BACKWARD_INPUT
        else:
            makes_input_gradient = any(s == weight for s, _ in op.parameters)
            shrinking = (2 if is_row else 3) if makes_input_gradient else (2 if is_row else 1)
            self.dims.append((op.index, shrinking))
        if not makes_input_gradient:
            self.is_split[list(op.outputs)] = True
            if not is_row:
                self.gathered_again.append((op.index, self.input_of_weight[weight]))
        elif is_row:
            self.is_split[list(op.outputs)] = True
        else:
            source = self.input_of_weight[weight]
            self.last_input_gradient[source] = (op.index, op.outputs[0])

    def _pass(self, op: OpView) -> None:
        facts = FACTS[op.kind]
        widths = {self.width[s] for s, _ in op.inputs if s in self.width}
        if op.phase == Phase.FORWARD and sums_features(op, widths):
            self._sum(op)
            return
        names = facts.feature_dims
        if facts.loss_dims and op.is_loss:
            self.loss_rows.append(op.index)
            names = facts.loss_dims
        if op.module in self.by_heads:
            self._mark(op, _head_dims(op))
            if op.weight is not None:
                self.is_split[[s for s, _ in op.parameters]] = True
        else:
            self._mark(op, dims_of(op.kind, *names))
        if op.phase == Phase.FORWARD and op.weight is None:
            self._split_own(op)

    def _sum(self, op: OpView) -> None:
        """Features of this rank summed for each row; backward sums as many numbers again."""
        (columns,) = dims_of(op.kind, "columns")
        self.touches[op.index] = True
        self.dims.append((op.index, columns))
        self.summed_rows[op.module] = op.index
        if normed(op):
            self.is_split[list(op.outputs)] = True
            self._split_own(op)

    def _split_own(self, op: OpView) -> None:
        """Parameters with values of every feature, such as a norm's, are split with the features.

        Those of one head, which all heads share, stay whole.
        """
        width = max((self.width.get(s, 0.0) for s, _ in op.inputs), default=0.0)
        if width:
            self.width.update(dict.fromkeys(op.outputs, width))
            self.is_split[[s for s, elements in op.parameters if not elements % width]] = True

    def _mark(self, op: OpView, dims: tuple[int, ...]) -> None:
        self.touches[op.index] = True
        self.is_split[[*op.outputs, *op.caches]] = True
        self.dims.extend((op.index, dim) for dim in dims)


def _head_dims(op: OpView) -> tuple[int, ...]:
    """Shape numbers that shrink where heads are dealt out, whichever axis they were written as.

    Of a filter of each feature its features; of a product its largest size but the one it sums.
    """
    if op.kind in (OpKind.CONV, *_FILTER_BACKWARD):
        return dims_of(op.kind, *_FEATURES)
    if op.kind == OpKind.MATMUL:
        batch, m, n, _ = dims_of(op.kind, "batch", "m", "n", "k")
        return (max((batch, m, n), key=lambda dim: op.dims[dim]),)
    return dims_of(op.kind, *FACTS[op.kind].feature_dims)


def _follow(
    views: Sequence[OpView], roles: Mapping[int, Role], graph: Graph, by_heads: frozenset[int]
) -> _Flow:
    tracker = _Tracker(roles, len(graph.storages.owner), len(views), by_heads)
    for op in views:
        tracker.step(op)
    mark_states(views, tracker.is_split, graph)
    return _Flow(
        is_split=tracker.is_split,
        dims=tracker.dims,
        touches=tracker.touches,
        reduced=tracker.reduced + sorted(tracker.last_input_gradient.values()),
        gathered_again=_once_per_input(tracker.gathered_again),
        loss_rows=tracker.loss_rows,
        summed_rows=_summed_once(views, tracker.summed_rows, graph),
    )


def _summed_once(
    views: Sequence[OpView], summed: Mapping[int, int], graph: Graph
) -> list[tuple[int, int]]:
    """One op in forward and one in backward for all norms of a layer: their sums go together."""
    passes = (Phase.FORWARD, Phase.BACKWARD)
    found: dict[tuple[str, Phase], tuple[int, int]] = {}
    for op in views:
        if op.module in summed and op.phase in passes:
            home = graph.modules[op.module].rpartition(".")[0]
            found.setdefault((home, op.phase), (op.index, summed[op.module]))
    return list(found.values())


def _once_per_input(entries: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """One gather serves all weights that read the same input."""
    return sorted({storage: (op, storage) for op, storage in reversed(entries)}.values())


def _check_heads(graph: Graph, flow: _Flow, degree: int) -> None:
    attention = np.flatnonzero((graph.ops.kind == OpKind.ATTENTION) & flow.touches)
    heads = evaluate(graph.ops.dims[attention[:, None], _HEADS])
    for row, column in np.argwhere(heads % degree)[:1]:
        name = ("attention heads", "key-value heads")[column]
        raise InvalidInputError(
            f"tensor parallel over {degree} ranks does not divide {heads[row, column]:.0f} {name}",
            hint="choose a tensor degree that divides the number of heads",
        )


def _check_widths(graph: Graph, flow: _Flow, degree: int) -> None:
    """What lies between the columns and the rows of a pair must divide; a vocabulary is padded."""
    ops, (op, dim) = graph.ops, np.array(flow.dims, dtype=np.int64).reshape(-1, 2).T
    takes_in = (ops.phase[op] == Phase.FORWARD) & (_INPUTS[ops.kind[op]] == dim)
    widths = evaluate(ops.dims[op[takes_in], dim[takes_in]])
    for width in widths[widths % degree != 0][:1]:
        raise InvalidInputError(
            f"tensor parallel over {degree} ranks does not divide {width:.0f} features",
            hint="choose a tensor degree that divides the widths of the model",
        )


def _scaled(graph: Graph, flow: _Flow, degree: int, *, sequence_parallel: bool) -> Graph:
    """The graph with this rank's sizes."""
    ops, is_product = graph.ops, among(graph.ops.kind, _PRODUCTS)
    stored = flow.is_split | (_follows_batch(graph) & sequence_parallel)
    elements = graph.storages.elements * np.where(stored, 1.0 / degree, 1.0)[:, None]
    dims, flop = of_what_is_kept(ops, graph.storages, elements)
    shrunk = np.array(flow.dims, dtype=np.int64).reshape(-1, 2)
    dims[shrunk[:, 0], shrunk[:, 1]] /= degree
    flop[flow.touches] /= degree
    moved = flow.is_split[graph.tensors.storage]
    if sequence_parallel:
        between = ~flow.touches & ~is_product & (ops.phase != Phase.OPTIMIZER)
        dims[between, 0] /= degree
        flop[between] /= degree
        along = _follows_batch(graph) & ~flow.is_split
        moved = moved | (along[graph.tensors.storage] & between[_op_of_tensor(graph)])
    return replace(
        graph,
        ops=replace(ops, dims=dims, flop=flop),
        tensors=replace(
            graph.tensors,
            elements=graph.tensors.elements * np.where(moved, 1.0 / degree, 1.0)[:, None],
        ),
        storages=replace(graph.storages, elements=elements),
    )


def _follows_batch(graph: Graph) -> npt.NDArray[np.bool_]:
    """Activations whose size grows with the batch, (num_storages,)."""
    grows = graph.storages.elements[:, 1:].any(axis=1)
    return np.asarray(grows & (graph.storages.owner == Owner.ACTIVATION))


def _op_of_tensor(graph: Graph) -> npt.NDArray[np.int64]:
    """An op that touches each tensor, (num_tensors,)."""
    found = np.zeros(len(graph.tensors.storage), dtype=np.int64)
    for start, tensor in (
        (graph.ops.input_start, graph.ops.input_tensor),
        (graph.ops.output_start, graph.ops.output_tensor),
    ):
        found[tensor] = np.repeat(np.arange(len(start) - 1), np.diff(start))
    return found


def _calls(graph: Graph, flow: _Flow, *, sequence_parallel: bool) -> CallTable:
    """What the group exchanges: a reduction at both ends of each pair, and the loss."""
    elements = graph.storages.elements
    calls: list[Call] = []
    for op, storage in flow.reduced:
        names: tuple[Collective, ...] = ("all_reduce",)
        if sequence_parallel:
            names = ("reduce_scatter", "all_gather")
        calls.extend((op, "tensor", name, elements[storage], np.nan) for name in names)
    if sequence_parallel:
        again: Collective = "all_gather"
        calls.extend((op, "tensor", again, elements[s], np.nan) for op, s in flow.gathered_again)
    for op in flow.loss_rows[:1]:
        rows = graph.ops.dims[op, 0]
        calls.extend([(op, "tensor", "all_reduce", rows, _LOSS_BYTES)] * _LOSS_REDUCTIONS)
    summed = ((op, graph.ops.dims[has_rows, 0]) for op, has_rows in flow.summed_rows)
    calls.extend((op, "tensor", "all_reduce", rows, _LOSS_BYTES) for op, rows in summed)
    return CallTable.of(calls)
