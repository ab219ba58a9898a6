"""Append an optimizer to a traced training step.

The update is one op over all trainable parameters; how many kernels it launches is the lowering's
business. State is kept per element in the formats of ``data/optimizers.csv``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from paceline.dtypes import DType
from paceline.errors import UnknownNameError
from paceline.trace import polynomial
from paceline.trace.graph import (
    NUM_DIMS,
    NUM_MONOMIALS,
    Graph,
    IntArray,
    OpKind,
    OpTable,
    Owner,
    Phase,
    StorageTable,
    TensorTable,
)
from paceline.trace.optable import read_table, variants


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRule:
    """What an optimizer keeps and launches.

    Attributes:
        name: As users type it.
        variant: Variant code of its op.
        states_per_element: Numbers kept per parameter element.
        state_dtype: Format they are kept in.
        plain_kernels_per_tensor: Kernels per tensor without foreach.
        foreach_kernels: Kernels per chunk of tensors with foreach.
    """

    name: str
    variant: int
    states_per_element: int
    state_dtype: DType
    plain_kernels_per_tensor: int
    foreach_kernels: int


@cache
def _rules() -> dict[str, OptimizerRule]:
    return {
        row["name"]: OptimizerRule(
            name=row["name"],
            variant=variants()["OPTIMIZER", row["variant"]],
            states_per_element=int(row["states_per_element"]),
            state_dtype=DType[row["state_dtype"]],
            plain_kernels_per_tensor=int(row["plain_kernels_per_tensor"]),
            foreach_kernels=int(row["foreach_kernels"]),
        )
        for row in read_table("optimizers.csv")
    }


def find_optimizer(name: str) -> OptimizerRule:
    """The rule of an optimizer.

    Raises:
        UnknownNameError: No such optimizer.

    >>> find_optimizer("adamw").states_per_element
    2
    """
    try:
        return _rules()[name.lower()]
    except KeyError:
        raise UnknownNameError.from_name(
            "optimizer", name, _rules(), command="paceline trace --help"
        ) from None


def optimizer_by_variant(variant: int) -> OptimizerRule:
    """The rule of an optimizer op."""
    return next(rule for rule in _rules().values() if rule.variant == variant)


def with_optimizer(graph: Graph, name: str) -> Graph:
    """``graph`` with one update of every trainable parameter that has a gradient.

    Raises:
        UnknownNameError: No such optimizer.
    """
    rule = find_optimizer(name)
    storages = graph.storages
    gradients = np.flatnonzero(storages.owner == Owner.GRADIENT)
    parameters = np.flatnonzero((storages.owner == Owner.PARAMETER) & storages.is_trainable)
    num_ops, num_storages = len(graph.ops.kind), len(storages.dtype)
    states = num_storages + np.arange(len(parameters) * rule.states_per_element)
    stored = _with_states(storages, parameters, rule, num_ops)
    read = np.concatenate((parameters, gradients, states))
    written = np.concatenate((parameters, states))
    touched = np.concatenate((read, written))
    first = len(graph.tensors.storage)
    tensors = TensorTable(
        storage=np.concatenate((graph.tensors.storage, touched)).astype(np.int32),
        elements=np.concatenate((graph.tensors.elements, stored.elements[touched])),
        dtype=np.concatenate((graph.tensors.dtype, stored.dtype[touched])).astype(np.int8),
    )
    ops = _with_update(graph.ops, rule, stored, parameters, (first, len(read), len(written)))
    return replace(graph, ops=ops, tensors=tensors, storages=stored)


def _with_states(
    storages: StorageTable, parameters: IntArray, rule: OptimizerRule, num_ops: int
) -> StorageTable:
    rows = np.tile(parameters, rule.states_per_element)
    count = len(rows)
    death = storages.death.copy()
    death[death >= num_ops] = num_ops + 1
    death[storages.owner == Owner.GRADIENT] = num_ops + 1

    def joined(array: np.ndarray, value: object) -> np.ndarray:
        return np.concatenate((array, np.full(count, value, dtype=array.dtype)))

    return StorageTable(
        elements=np.concatenate((storages.elements, storages.elements[rows])),
        dtype=joined(storages.dtype, rule.state_dtype),
        owner=joined(storages.owner, Owner.OPTIMIZER_STATE),
        birth=joined(storages.birth, -1),
        death=joined(death, num_ops + 1),
        is_saved=joined(storages.is_saved, False),
        is_trainable=joined(storages.is_trainable, False),
        is_wide=joined(storages.is_wide, True),
    )


def _with_update(
    ops: OpTable,
    rule: OptimizerRule,
    storages: StorageTable,
    parameters: IntArray,
    tensor_range: tuple[int, int, int],
) -> OpTable:
    first, num_read, num_written = tensor_range
    dims = np.zeros((1, NUM_DIMS, NUM_MONOMIALS))
    dims[0, 0, 0] = storages.elements[parameters, 0].sum()
    dims[0, 1, 0] = len(parameters)
    dims[0, 2, 0] = len(parameters) * rule.states_per_element
    read = np.arange(first, first + num_read)
    written = np.arange(first + num_read, first + num_read + num_written)
    return OpTable(
        kind=np.append(ops.kind, np.int16(OpKind.OPTIMIZER)),
        variant=np.append(ops.variant, np.int16(rule.variant)),
        phase=np.append(ops.phase, np.int8(Phase.OPTIMIZER)),
        module=np.append(ops.module, np.int32(0)),
        flop=np.concatenate((ops.flop, polynomial.constant(np.zeros(1)))),
        dims=np.concatenate((ops.dims, dims)),
        input_start=np.append(ops.input_start, ops.input_start[-1] + num_read).astype(np.int32),
        input_tensor=np.concatenate((ops.input_tensor, read)).astype(np.int32),
        output_start=np.append(ops.output_start, ops.output_start[-1] + num_written).astype(
            np.int32
        ),
        output_tensor=np.concatenate((ops.output_tensor, written)).astype(np.int32),
    )
