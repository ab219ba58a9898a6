"""What optimizers keep: the state of each update in a traced step.

An update is one op over all its parameters; how many kernels it launches is the lowering's
business. State is kept per element in the formats of ``data/optimizers.csv``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from paceline.columns import take_rows
from paceline.dtypes import DType
from paceline.errors import UnknownNameError
from paceline.model.graph.costs import OptimizerKernel
from paceline.model.graph.graph import Graph, IntArray, OpKind, Owner, StorageTable, TensorTable
from paceline.model.ops.optable import UPDATE, read_table, variants
from paceline.model.table_updates import looked_up
from paceline.shipped import read_as
from paceline.values import dataclass

_Scalar = TypeVar("_Scalar", bound=np.generic)
_Pointers: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRule:
    """What an optimizer keeps and launches.

    Attributes:
        name: As users type it.
        variant: Variant code of its op.
        states_per_element: Numbers kept per parameter element.
        state_dtype: Format they are kept in.
        embedding_dtype: The same of parameters that are looked up.
        embedding_states: Whether tables that are looked up have states of each ``element``, or of
            each ``row`` alone.
        plain_accesses: Times that the plain kernels read or write each element, all together.
        foreach_accesses: The same of foreach kernels.
        plain_kernels_per_tensor: Kernels per tensor without foreach.
        foreach_kernels: Kernels per chunk of tensors with foreach.
        plain_temporaries: Temporaries of one tensor's size alive at once without foreach.
        foreach_temporaries: Temporaries of all parameters' size alive at once with foreach.
        is_script: Whether a script's own loop goes through the tensors, and not the library's.
    """

    name: str
    variant: int
    states_per_element: int
    state_dtype: DType
    embedding_dtype: DType
    embedding_states: Literal["element", "row"]
    plain_accesses: int
    foreach_accesses: int
    plain_kernels_per_tensor: int
    foreach_kernels: int
    plain_temporaries: int
    foreach_temporaries: int
    is_script: bool

    @property
    def fused_accesses(self) -> int:
        """Reads of gradient, parameter and states, and writes of the last two."""
        return 3 + 2 * self.states_per_element

    def accessed(self, kernel: OptimizerKernel) -> float:
        """Bytes that an update moves with such kernels, over those of a fused one."""
        accesses = {"plain": self.plain_accesses, "foreach": self.foreach_accesses}
        return accesses.get(kernel, self.fused_accesses) / self.fused_accesses


@cache
def _rules() -> dict[str, OptimizerRule]:
    return {
        row["name"]: read_as(
            OptimizerRule,
            row,
            variant=variants()["OPTIMIZER", row["variant"]],
            state_dtype=DType[row["state_dtype"]],
            embedding_dtype=DType[row["embedding_dtype"]],
            is_script=row["loop"] == "script",
        )
        for row in read_table("optimizers.csv")
    }


def find_optimizer(name: str) -> OptimizerRule:
    """The rule of an optimizer.

    Raises:
        UnknownNameError: No such optimizer.

    >>> find_optimizer("adamw").states_per_element, find_optimizer("PagedAdamW8bit").name
    (2, 'adamw-8bit')
    >>> find_optimizer("paged_adamw_bnb_8bit").name
    'adamw-bnb-8bit'
    """
    plain = name.lower().replace("_", "-").removeprefix("paged").removeprefix("-")
    spelled = plain.removesuffix("8bit").rstrip("-") + "-8bit" if plain.endswith("8bit") else plain
    try:
        return _rules()[spelled]
    except KeyError:
        message = f"no optimizer named `{name}`"
        raise UnknownNameError(message, hint=f"known are {', '.join(_rules())}") from None


def optimizer_by_variant(variant: int) -> OptimizerRule:
    """The rule of an optimizer op."""
    return next(rule for rule in _rules().values() if rule.variant == variant)


def named_optimizer(op_name: str, default: str) -> str:
    """The worker's name of an op, with ``default`` for an update whose optimizer it leaves open.

    Raises:
        UnknownNameError: No such optimizer.

    >>> named_optimizer("paceline::optimizer|", "sgd")
    'paceline::optimizer|sgd'
    """
    name, _, optimizer = op_name.partition("|")
    if name != UPDATE:
        return op_name
    return f"{UPDATE}|{find_optimizer(optimizer or default).name}"


def with_states(graph: Graph) -> Graph:
    """``graph`` with the state that each of its optimizer ops keeps, reads and writes."""
    for op in np.flatnonzero(graph.ops.kind == OpKind.OPTIMIZER).tolist():
        graph = _with_states_of(graph, op)
    return graph


def graphs_with_optimizer(graphs: Sequence[Graph], optimizer: str) -> tuple[Graph, ...]:
    """Passes of one job whose updates are another optimizer's, as if traced with that one.

    An update stays one op on the same parameters and gradients; its old states go, and those of
    ``optimizer`` come.

    Args:
        graphs: All passes of the job: each also holds the states that only the others update.
        optimizer: Of every update.

    Raises:
        UnknownNameError: No such optimizer.
    """
    variant = find_optimizer(optimizer).variant
    return with_resident_states([with_states(_updated_by(variant, one)) for one in graphs])


def _updated_by(variant: int, graph: Graph) -> Graph:
    """The graph without optimizer states, its updates of another variant."""
    bare = _without_states(graph)
    is_update = bare.ops.kind == OpKind.OPTIMIZER
    variants = np.where(is_update, variant, bare.ops.variant).astype(bare.ops.variant.dtype)
    return replace(bare, ops=replace(bare.ops, variant=variants))


def _without_states(graph: Graph) -> Graph:
    """The graph without the storages of optimizer states, and without what points at them."""
    ops, tensors, storages = graph.ops, graph.tensors, graph.storages
    stays = storages.owner != Owner.OPTIMIZER_STATE
    is_used = stays[tensors.storage]
    input_start, input_tensor = _kept(ops.input_start, ops.input_tensor, is_used)
    output_start, output_tensor = _kept(ops.output_start, ops.output_tensor, is_used)
    used = take_rows(tensors, is_used)
    return replace(
        graph,
        ops=replace(
            ops,
            input_start=input_start,
            input_tensor=input_tensor,
            output_start=output_start,
            output_tensor=output_tensor,
        ),
        tensors=replace(used, storage=_renumbered(used.storage, stays)),
        storages=take_rows(storages, stays),
    )


def _kept(
    start: _Pointers, tensor: _Pointers, is_used: npt.NDArray[np.bool_]
) -> tuple[_Pointers, _Pointers]:
    """Row pointers and tensors without the tensors that go."""
    stays = is_used[tensor]
    num_before = np.concatenate(([0], np.cumsum(stays)))
    return num_before[start].astype(np.int32), _renumbered(tensor[stays], is_used)


def _renumbered(numbers: _Pointers, stays: npt.NDArray[np.bool_]) -> _Pointers:
    """Numbers of rows that stay, among those that stay."""
    return (np.cumsum(stays) - 1)[numbers].astype(np.int32)


def with_resident_states(graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """Passes of one job, each also holding the state that only the others update.

    All graphs must come from the same model: its parameters stand in the same order in each.
    """
    kept = [_states_per_parameter(graph) for graph in graphs]
    most = np.max(np.stack(kept), axis=0) if kept else np.zeros(0, dtype=np.int64)
    return tuple(
        _with_idle_states(graph, most - own) for graph, own in zip(graphs, kept, strict=True)
    )


def first_optimizer(graphs: Sequence[Graph]) -> str | None:
    """Name of the first update's optimizer; None where nothing is updated."""
    variants = [v for one in graphs for v in one.ops.variant[one.ops.kind == OpKind.OPTIMIZER]]
    return optimizer_by_variant(int(variants[0])).name if variants else None


def _states_per_parameter(graph: Graph) -> IntArray:
    parameters = np.flatnonzero(graph.storages.owner == Owner.PARAMETER)
    count = np.zeros(len(graph.storages.owner), dtype=np.int64)
    for op in np.flatnonzero(graph.ops.kind == OpKind.OPTIMIZER).tolist():
        first, last = graph.ops.output_start[op : op + 2]
        touched = graph.tensors.storage[graph.ops.output_tensor[first:last]]
        updated = touched[graph.storages.owner[touched] == Owner.PARAMETER]
        rule = optimizer_by_variant(int(graph.ops.variant[op]))
        count[updated] += rule.states_per_element
    states: IntArray = count[parameters]
    return states


def _with_idle_states(graph: Graph, missing: IntArray) -> Graph:
    parameters = np.flatnonzero(graph.storages.owner == Owner.PARAMETER)
    rows = np.repeat(parameters, missing)
    if not rows.size:
        return graph
    formats = np.full(len(rows), DType.FP32)
    storages = _with_state_storages(graph.storages, rows, formats, len(graph.ops.kind))
    return replace(graph, storages=storages)


def _with_states_of(graph: Graph, op: int) -> Graph:
    rule = optimizer_by_variant(int(graph.ops.variant[op]))
    first, last = graph.ops.output_start[op : op + 2]
    parameters = graph.tensors.storage[graph.ops.output_tensor[first:last]].astype(np.int64)
    rows = np.tile(parameters, rule.states_per_element)
    formats = np.where(looked_up(graph)[rows], rule.embedding_dtype, rule.state_dtype)
    widths = _widths_of_tables(graph) if rule.embedding_states == "row" else 1.0
    storages = _with_state_storages(graph.storages, rows, formats, len(graph.ops.kind))
    sizes, num_before = storages.elements.copy(), len(graph.storages.dtype)
    sizes[num_before:] /= np.broadcast_to(widths, num_before)[rows, None]
    storages = replace(storages, elements=sizes)
    states = len(graph.storages.dtype) + np.arange(len(rows))
    new_tensors = len(graph.tensors.storage) + np.arange(len(rows))
    tensors = TensorTable(
        storage=np.concatenate((graph.tensors.storage, states)).astype(np.int32),
        elements=np.concatenate((graph.tensors.elements, storages.elements[states])),
        dtype=np.concatenate((graph.tensors.dtype, storages.dtype[states])).astype(np.int8),
    )
    dims = graph.ops.dims.copy()
    dims[op] = 0.0
    dims[op, :3, 0] = storages.elements[parameters, 0].sum(), len(parameters), len(rows)
    input_start, input_tensor = _inserted(
        graph.ops.input_start, graph.ops.input_tensor, op, new_tensors
    )
    output_start, output_tensor = _inserted(
        graph.ops.output_start, graph.ops.output_tensor, op, new_tensors
    )
    ops = replace(
        graph.ops,
        dims=dims,
        input_start=input_start,
        input_tensor=input_tensor,
        output_start=output_start,
        output_tensor=output_tensor,
    )
    return replace(graph, ops=ops, tensors=tensors, storages=storages)


def _widths_of_tables(graph: Graph) -> npt.NDArray[np.float64]:
    """Numbers of a row of each storage that lookups read, one of any other, (num_storages,)."""
    ops, widths = graph.ops, np.ones(len(graph.storages.owner))
    lookups = np.flatnonzero(ops.kind == OpKind.EMBEDDING)
    for op in lookups.tolist():
        first, last = ops.input_start[op : op + 2]
        read = graph.tensors.storage[ops.input_tensor[first:last]]
        is_table = graph.storages.owner[read] == Owner.PARAMETER
        widths[read[is_table]] = ops.dims[op, 1, 0]
    return widths


def _with_state_storages(
    storages: StorageTable, rows: IntArray, formats: npt.NDArray[np.int64], num_ops: int
) -> StorageTable:
    count = len(rows)

    def joined(array: npt.NDArray[_Scalar], value: npt.ArrayLike) -> npt.NDArray[_Scalar]:
        """The column with ``value`` for every state that is added."""
        return np.concatenate((array, np.full(count, value, dtype=array.dtype)))

    return StorageTable(
        elements=np.concatenate((storages.elements, storages.elements[rows])),
        dtype=joined(storages.dtype, formats),
        owner=joined(storages.owner, Owner.OPTIMIZER_STATE),
        birth=joined(storages.birth, -1),
        death=joined(storages.death, num_ops),
        is_saved=joined(storages.is_saved, 0),
        is_trainable=joined(storages.is_trainable, 0),
        is_wide=joined(storages.is_wide, 1),
    )


def _inserted(
    start: _Pointers, tensor: _Pointers, op: int, new: IntArray
) -> tuple[_Pointers, _Pointers]:
    """Row pointers and tensors with ``new`` appended to one op's."""
    moved = start.copy()
    moved[op + 1 :] += len(new)
    return moved, np.insert(tensor, start[op + 1], new).astype(np.int32)
