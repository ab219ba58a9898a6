"""From a worker's report to the op graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.model.graph import polynomial
from paceline.model.graph.graph import (
    Graph,
    IntArray,
    OpKind,
    OpTable,
    Owner,
    Phase,
    StorageTable,
    TensorTable,
)
from paceline.model.graph.raw import Ragged, RawPass
from paceline.model.ops.optable import OpRule, find_rule
from paceline.model.ops.shapes import op_dims, op_flop
from paceline.model.ops.turns import with_turns
from paceline.model.reading.autocast_rule import wide_storages
from paceline.model.rewrite.optimizer import named_optimizer, with_states

_INPUT, _WEIGHT, _BIAS = 0, 1, 2


def build_graph(raw: RawPass, *, name: str, optimizer: str) -> Graph:
    """The graph of one traced pass.

    Args:
        raw: What the worker saw.
        name: Name of the graph, such as ``resnet50/step``.
        optimizer: Of the updates that leave it open.

    Raises:
        UnknownNameError: No such optimizer.
        InvalidInputError: A tensor grows faster than a second power.
    """
    raw, part = _split_convolution_backward(raw)
    rules = [find_rule(named_optimizer(n, optimizer)) for n in raw.op_names]
    kind = _kinds(raw, rules, part)
    dims = with_turns(kind, op_dims(raw, kind, rules, part), raw.is_per_item)
    is_wide = wide_storages(raw, rules)
    ops = OpTable(
        kind=kind.astype(np.int16),
        variant=np.array([r.variant for r in rules], dtype=np.int16)[raw.op_name],
        phase=np.where(kind == OpKind.OPTIMIZER, Phase.OPTIMIZER, raw.phase).astype(np.int8),
        module=raw.module.astype(np.int32),
        flop=op_flop(kind, dims),
        dims=dims,
        **_references(raw, rules),
    )
    graph = Graph(
        name=name,
        variables=raw.variables,
        modules=raw.modules,
        ops=ops,
        tensors=_tensors(raw),
        storages=_storages(raw, is_wide),
    )
    return with_states(graph)


def _references(raw: RawPass, rules: list[OpRule]) -> dict[str, npt.NDArray[np.int32]]:
    """Row pointers of what ops read and write; a target that is only overwritten is not read."""
    unread = np.array([r.written_only for r in rules])[raw.op_name] & (raw.inputs.lengths() > 0)
    keep = np.ones(len(raw.inputs.values), dtype=bool)
    keep[raw.inputs.start[:-1][unread]] = False
    lengths = raw.inputs.lengths() - unread
    return {
        "input_start": np.concatenate(([0], np.cumsum(lengths))).astype(np.int32),
        "input_tensor": raw.inputs.values[keep].astype(np.int32),
        "output_start": raw.outputs.start.astype(np.int32),
        "output_tensor": raw.outputs.values.astype(np.int32),
    }


def _tensors(raw: RawPass) -> TensorTable:
    elements = polynomial.product(raw.dims)
    available = raw.storage_elements[raw.tensor_storage]
    probe = np.array([1.0, 2, 3, 6, 9, 18, 4, 12, 36])
    is_expanded = elements @ probe > available @ probe
    return TensorTable(
        storage=raw.tensor_storage.astype(np.int32),
        elements=np.where(is_expanded[:, None], available, elements),
        dtype=raw.tensor_dtype.astype(np.int8),
    )


def _storages(raw: RawPass, is_wide: npt.NDArray[np.bool_]) -> StorageTable:
    backward = np.flatnonzero(raw.phase == Phase.BACKWARD)
    first_backward = backward[0] if backward.size else len(raw.phase)
    is_activation = raw.owner == Owner.ACTIVATION
    is_saved = is_activation & (raw.birth < first_backward) & (raw.death > first_backward)
    return StorageTable(
        elements=raw.storage_elements,
        dtype=raw.storage_dtype.astype(np.int8),
        owner=raw.owner.astype(np.int8),
        birth=raw.birth.astype(np.int32),
        death=raw.death.astype(np.int32),
        is_saved=is_saved,
        is_trainable=raw.is_trainable,
        is_wide=is_wide,
    )


def _kinds(raw: RawPass, rules: list[OpRule], part: IntArray) -> IntArray:
    kind = np.array([r.kind for r in rules], dtype=np.int64)[raw.op_name]
    kind[part == _WEIGHT] = OpKind.CONV_BACKWARD_WEIGHT
    kind[part == _BIAS] = OpKind.REDUCE
    return _transposed(raw, kind)


def _transposed(raw: RawPass, kind: IntArray) -> IntArray:
    """A transposed convolution computes what a convolution's input gradient does."""
    is_conv = np.isin(kind, (OpKind.CONV, OpKind.CONV_BACKWARD_INPUT))
    rows = np.flatnonzero(is_conv & (raw.attributes.lengths() > 0))
    rows = rows[raw.attributes.at(rows, 0) != 0]
    swapped = {
        int(OpKind.CONV): OpKind.CONV_BACKWARD_INPUT,
        int(OpKind.CONV_BACKWARD_INPUT): OpKind.CONV,
    }
    kind = kind.copy()
    kind[rows] = [swapped[int(k)] for k in kind[rows]]
    return kind


def _split_convolution_backward(raw: RawPass) -> tuple[RawPass, IntArray]:
    """Make the two products (and the bias sum) of a convolution's backward separate ops.

    Returns:
        The pass, and which part each op is (-1 for ops that were not split).
    """
    names = [n.partition("|")[0] for n in raw.op_names]
    if "aten::convolution_backward" not in names:
        return raw, np.full(len(raw.op_name), -1)
    is_split = raw.op_name == names.index("aten::convolution_backward")
    mask = np.zeros(len(is_split), dtype=np.int64)
    split = np.flatnonzero(is_split)
    mask[split] = raw.attributes.at(split, 1)
    has_part = (mask[:, None] >> np.arange(3)) & 1
    counts = np.where(is_split, np.maximum(has_part.sum(axis=1), 1), 1)
    source = np.repeat(np.arange(len(counts)), counts)
    first = np.cumsum(counts) - counts
    part = np.full(len(source), -1)
    rank = np.cumsum(has_part, axis=1) - 1
    for number in (_INPUT, _WEIGHT, _BIAS):
        rows = np.flatnonzero(is_split & (has_part[:, number] == 1))
        part[first[rows] + rank[rows, number]] = number
    return _with_parts(raw, source, part, first, counts), part


def _with_parts(
    raw: RawPass, source: IntArray, part: IntArray, first: IntArray, counts: IntArray
) -> RawPass:
    last = first + counts - 1
    inputs, outputs = [], []
    for op, number in zip(source.tolist(), part.tolist(), strict=True):
        read = raw.inputs.values[raw.inputs.start[op] : raw.inputs.start[op + 1]]
        written = raw.outputs.values[raw.outputs.start[op] : raw.outputs.start[op + 1]]
        if number >= 0:
            mask = int(raw.attributes.at(np.array([op]), 1)[0])
            read = read[[[0, 2], [0, 1], [0]][number]]
            written = written[[(mask & ((1 << number) - 1)).bit_count()]]
        inputs.append(read.tolist())
        outputs.append(written.tolist())
    birth, death = raw.birth.copy(), raw.death.copy()
    born, dead = birth >= 0, death < len(counts)
    birth[born], death[~dead] = first[birth[born]], len(source)
    death[dead] = np.where(death[dead] >= 0, last[np.maximum(death[dead], 0)], -1)
    attributes = Ragged.from_lists(
        [raw.attributes.values[a:b].tolist() for a, b in _bounds(raw.attributes, source)]
    )
    return replace(
        raw,
        op_name=raw.op_name[source],
        is_per_item=raw.is_per_item[source],
        phase=raw.phase[source],
        module=raw.module[source],
        inputs=Ragged.from_lists(inputs),
        outputs=Ragged.from_lists(outputs),
        attributes=attributes,
        birth=birth,
        death=death,
    )


def _bounds(ragged: Ragged, rows: IntArray) -> zip[tuple[int, int]]:
    return zip(ragged.start[rows].tolist(), ragged.start[rows + 1].tolist(), strict=True)
