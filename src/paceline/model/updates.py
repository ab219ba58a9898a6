"""What an update works on where a rank, or a part of a model, has less of the parameters."""

from __future__ import annotations

import numpy as np

from paceline.model.graph.graph import FloatArray, OpKind, OpTable, Owner, StorageTable


def of_elements(
    dims: FloatArray, flop: FloatArray, had: float, has: float
) -> tuple[FloatArray, FloatArray]:
    """Shape numbers and operations of an update of ``has`` elements in place of ``had``.

    Whole numbers stay whole, to the last bit.
    """
    dims, each = dims.copy(), flop / max(float(dims[0, 0]), 1.0)
    dims[0] = np.where(dims[0] == had, has, dims[0] * (has / max(had, 1.0)))
    return dims, each * dims[0, 0]


def of_what_is_kept(
    ops: OpTable, storages: StorageTable, elements: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Shape numbers and operations of all ops, with updates of what a rank keeps.

    Args:
        ops: Of the pass.
        storages: Of the pass.
        elements: Sizes of the storages that the rank keeps, (num_storages, 9).
    """
    dims, flop = ops.dims.copy(), ops.flop.copy()
    trained = (storages.owner == Owner.PARAMETER) & storages.is_trainable
    had, has = (float(size[trained, 0].sum()) for size in (storages.elements, elements))
    for op in np.flatnonzero(ops.kind == OpKind.OPTIMIZER).tolist():
        dims[op], flop[op] = of_elements(dims[op], flop[op], had, has)
    return dims, flop
