"""The op graph: what one pass of a model asks for, as flat arrays in execution order.

Every number that depends on batch and sequence length is a polynomial in ``B`` and ``S`` (``P``,
the past length, takes the place of ``S`` in a decode graph), kept as nine coefficients over
`EXPONENTS`.
Evaluating a graph at many points is then one matrix product::

    monomials(batch, seq) @ coefficients.T        # (num_points, num_rows)
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from paceline.model.graph.kinds import OpKind as OpKind
from paceline.values import dataclass

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]

#: Exponents (of B, of S) of the nine monomials, in the order of the coefficients.
EXPONENTS: tuple[tuple[int, int], ...] = (
    (0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 0), (2, 1), (2, 2),
)  # fmt: skip
NUM_MONOMIALS = len(EXPONENTS)
#: The second variable of a pass that looks back on tokens of before.
PAST = "past"

#: Width of the shape-number table; the meaning of each column is in `paceline.model.ops`.
NUM_DIMS = 10


class Phase(IntEnum):
    """Part of a step. The numbers are written in workload files: never renumber."""

    FORWARD = 0
    LOSS = 1
    BACKWARD = 2
    OPTIMIZER = 3
    RECOMPUTE = 4


class Owner(IntEnum):
    """Whose bytes a storage holds. The numbers are written in workload files: never renumber."""

    PARAMETER = 0
    GRADIENT = 1
    OPTIMIZER_STATE = 2
    ACTIVATION = 3
    INPUT = 4
    WORKSPACE = 5
    BUFFER = 6
    KV_CACHE = 7
    MASTER_WEIGHT = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpTable:
    """Operations in execution order, one row each.

    Attributes:
        kind: ``OpKind`` per op, int16 (num_ops,).
        variant: Meaning within the kind (which norm, which pool, which optimizer), int16; see the
            kind's lowering.
        phase: ``Phase`` per op, int8.
        module: Index into ``Graph.modules``, int32.
        flop: Floating-point operations, a multiply-add counting as two; (num_ops, 9).
        dims: Shape numbers of the kind; (num_ops, NUM_DIMS, 9).
        input_start: Row pointers into ``input_tensor``, int32 (num_ops + 1,).
        input_tensor: Tensor read, int32.
        output_start: Row pointers into ``output_tensor``, int32 (num_ops + 1,).
        output_tensor: Tensor written, int32.
    """

    kind: npt.NDArray[np.int16]
    variant: npt.NDArray[np.int16]
    phase: npt.NDArray[np.int8]
    module: npt.NDArray[np.int32]
    flop: FloatArray
    dims: FloatArray
    input_start: npt.NDArray[np.int32]
    input_tensor: npt.NDArray[np.int32]
    output_start: npt.NDArray[np.int32]
    output_tensor: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorTable:
    """Views of storages that ops read and write.

    Attributes:
        storage: Index into the storage table, int32 (num_tensors,).
        elements: Number of elements the op touches, (num_tensors, 9).
        dtype: ``DType`` code, int8.
    """

    storage: npt.NDArray[np.int32]
    elements: FloatArray
    dtype: npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StorageTable:
    """Allocations, as weak references saw them.

    Attributes:
        elements: Size in elements of ``dtype``, (num_storages, 9).
        dtype: ``DType`` code, int8.
        owner: ``Owner`` code, int8.
        birth: Op before which it exists; -1 means it exists before the pass, int32.
        death: Op after which it is gone; num_ops means it outlives the pass, int32.
        is_saved: Whether it was kept for the backward pass, bool.
        is_trainable: For parameters: whether it receives gradients, bool.
        is_wide: Whether it stays FP32 when the pass runs under autocast, bool.
    """

    elements: FloatArray
    dtype: npt.NDArray[np.int8]
    owner: npt.NDArray[np.int8]
    birth: npt.NDArray[np.int32]
    death: npt.NDArray[np.int32]
    is_saved: npt.NDArray[np.bool_]
    is_trainable: npt.NDArray[np.bool_]
    is_wide: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Graph:
    """One pass of a model: a training step, an inference, a prefill or a decode step.

    Attributes:
        name: Model and pass, such as ``resnet50/train``.
        variables: Names of the free variables ``B`` and ``S``: ``("batch", "seq")`` or
            ``("batch", "past")``; ``("batch", "")`` where nothing depends on the second.
        modules: Dotted module paths that ``OpTable.module`` points into.
        ops: Operations.
        tensors: What they read and write.
        storages: Where that lives, and for how long.
    """

    name: str
    variables: tuple[str, str]
    modules: tuple[str, ...]
    ops: OpTable
    tensors: TensorTable
    storages: StorageTable


def monomials(batch: npt.ArrayLike, seq: npt.ArrayLike = 1.0) -> FloatArray:
    """The nine monomials at each (batch, seq) point, shape (num_points, 9).

    Args:
        batch: Batch sizes; broadcast against ``seq``.
        seq: Sequence or past lengths.

    >>> monomials([2], [3]).tolist()
    [[1.0, 2.0, 3.0, 6.0, 9.0, 18.0, 4.0, 12.0, 36.0]]
    """
    b, s = np.broadcast_arrays(
        np.atleast_1d(np.asarray(batch, dtype=np.float64)),
        np.atleast_1d(np.asarray(seq, dtype=np.float64)),
    )
    return np.stack([b**i * s**j for i, j in EXPONENTS], axis=-1)
