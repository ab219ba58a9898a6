"""Append ops to a program: rewrites draft them here, many at a time, and join them at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.columns import join_tables
from paceline.model.graph.graph import NUM_DIMS, NUM_MONOMIALS, FloatArray, IntArray, OpKind, Owner
from paceline.model.graph.program import (
    OUTLIVES,
    Accesses,
    Ops,
    Program,
    Stores,
)
from paceline.model.ops.shapes import op_flop

_FP32_BYTES = 4.0


class Draft:
    """New ops and activations of a program, in groups of equal role (one per rewritten op).

    A new activation lives from the first op that touches it to the last; births and deaths of
    storages that were there before are the caller's business.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self._ops: list[Ops] = []
        self._dims: list[FloatArray] = []
        self._reads: list[Accesses] = []
        self._writes: list[Accesses] = []
        self._stores: list[Stores] = []
        self._num_ops = len(program.ops)
        self._num_stores = len(program.stores)

    def stores(
        self, elements: FloatArray, *, is_wide: bool, element_bytes: float = _FP32_BYTES
    ) -> IntArray:
        """Numbers of new activations of (count, 9) elements each."""
        return self._new(elements, Owner.ACTIVATION, is_wide, element_bytes)

    def parameters(self, elements: FloatArray, *, element_bytes: float = _FP32_BYTES) -> IntArray:
        """Numbers of new trainable parameters."""
        return self._new(elements, Owner.PARAMETER, True, element_bytes)

    def gradients(self, elements: FloatArray) -> IntArray:
        """Numbers of new gradients."""
        return self._new(elements, Owner.GRADIENT, True, _FP32_BYTES)

    def states(self, elements: FloatArray, *, element_bytes: float) -> IntArray:
        """Numbers of new optimizer states."""
        return self._new(elements, Owner.OPTIMIZER_STATE, True, element_bytes)

    def workspaces(self, elements: FloatArray, *, element_bytes: float) -> IntArray:
        """Numbers of new workspaces, of a format that no precision changes."""
        return self._new(elements, Owner.WORKSPACE, True, element_bytes)

    def _new(
        self, elements: FloatArray, owner: Owner, is_wide: bool, element_bytes: float
    ) -> IntArray:
        count = len(elements)
        is_resident = owner in (Owner.PARAMETER, Owner.OPTIMIZER_STATE)
        self._stores.append(
            Stores(
                elements=elements,
                element_bytes=np.full(count, element_bytes),
                is_floating=np.full(count, element_bytes == _FP32_BYTES),
                is_wide=np.full(count, is_wide),
                is_trainable=np.full(count, owner == Owner.PARAMETER),
                owner=np.full(count, int(owner)),
                birth=np.full(count, -1),
                death=np.full(count, OUTLIVES if is_resident else -1),
            )
        )
        self._num_stores += count
        return np.arange(self._num_stores - count, self._num_stores)

    def ops(
        self,
        kind: OpKind,
        beside: IntArray,
        offset: float,
        *,
        dims: FloatArray,
        reads: Sequence[tuple[IntArray, FloatArray]],
        writes: Sequence[tuple[IntArray, FloatArray]],
        variant: int = 0,
    ) -> IntArray:
        """Numbers of new ops next to the ops ``beside``, whose phase and module they share."""
        count = len(beside)
        numbers = np.arange(self._num_ops, self._num_ops + count)
        old = self.program.ops
        kinds = np.full(count, int(kind))
        first_dims = len(self.program.dims) + sum(map(len, self._dims))
        self._ops.append(
            Ops(
                kind=kinds,
                variant=np.full(count, variant),
                phase=old.phase[beside],
                module=old.module[beside],
                flop=op_flop(kinds, dims),
                dims=first_dims + np.arange(count),
                position=old.position[beside] + offset,
            )
        )
        self._dims.append(dims)
        for accesses, given in ((self._reads, reads), (self._writes, writes)):
            for storage, elements in given:
                accesses.append(Accesses(op=numbers, storage=storage, elements=elements))
        self._num_ops += count
        return numbers

    def joined(self) -> Program:
        """The program with everything that was drafted; not ordered."""
        old, num_old = self.program, len(self.program.stores)
        program = replace(
            old,
            ops=join_tables(old.ops, *self._ops),
            dims=np.concatenate((old.dims, *self._dims)),
            reads=join_tables(old.reads, *self._reads),
            writes=join_tables(old.writes, *self._writes),
            stores=join_tables(old.stores, *self._stores),
        )
        first, last = program.first_and_last_use()
        birth, death = program.stores.birth.copy(), program.stores.death.copy()
        passing = num_old + np.flatnonzero(death[num_old:] != OUTLIVES)
        birth[passing], death[passing] = first[passing], last[passing]
        return replace(program, stores=replace(program.stores, birth=birth, death=death))


def matmul_dims(batch: FloatArray, m: FloatArray, n: FloatArray, k: FloatArray) -> FloatArray:
    """Shape numbers of products, each argument (count, 9)."""
    dims = np.zeros((len(batch), NUM_DIMS, NUM_MONOMIALS))
    dims[:, 0], dims[:, 1], dims[:, 2], dims[:, 3] = batch, m, n, k
    return dims


def row_dims(rows: FloatArray, columns: FloatArray, operands: float) -> FloatArray:
    """Shape numbers of ops on rows × columns, each argument (count, 9)."""
    dims = np.zeros((len(rows), NUM_DIMS, NUM_MONOMIALS))
    dims[:, 0], dims[:, 1], dims[:, 2, 0] = rows, columns, operands
    return dims
