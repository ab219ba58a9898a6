"""Weight-only quantisation: dense weights stored in 8 or 4 bits, arithmetic as before.

Eager libraries widen a weight into a temporary before each product; fused kernels widen inside.
Embeddings, norms, the last product (the head of a language model) and weights that are trained keep
their format, as in bitsandbytes, GPTQ and AWQ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from paceline.model.graph.graph import FloatArray, IntArray, OpKind, Owner, Phase
from paceline.model.graph.polynomial import constant
from paceline.model.graph.program import BoolArray, Program
from paceline.model.ops.optable import read_table
from paceline.model.rewrite.draft import Draft, row_dims


def quantised(
    program: Program, weight_format: str, *, is_fused: bool, keeps_inputs: bool = False,
    has_convolutions: bool = False,
) -> Program:  # fmt: skip
    """``program`` with its untrained dense weights quantised.

    Args:
        program: Of an inference, or of a training step whose base is frozen; ordered.
        weight_format: ``fp8``, ``int8``, ``nvfp4`` or ``int4``.
        is_fused: Whether kernels widen the weights themselves.
        keeps_inputs: Whether what is multiplied with a weight stays until the weight's last use.
        has_convolutions: Whether weights of convolutions are quantised too.
    """
    kinds = (OpKind.MATMUL, OpKind.CONV) if has_convolutions else (OpKind.MATMUL,)
    chosen = _dense_weights(program, kinds)
    if keeps_inputs:
        program = _with_inputs_kept(program, chosen)
    stores = program.stores
    whole_bytes = stores.element_bytes
    width = np.where(chosen, bytes_per_element(weight_format), stores.element_bytes)
    stores = replace(stores, element_bytes=width, is_floating=stores.is_floating & ~chosen)
    program = replace(program, stores=stores)
    return program if is_fused else _with_dequantisation(program, chosen, whole_bytes)


@cache
def bytes_per_element(weight_format: str) -> float:
    """Bytes of one weight with its share of the scales.

    >>> bytes_per_element("int4")
    0.515625
    """
    rows = {
        row["format"]: float(row["bytes_per_element"]) for row in read_table("quantisation.csv")
    }
    return rows[weight_format]


def _dense_weights(program: Program, kinds: Sequence[OpKind]) -> BoolArray:
    """Parameters that are read as matrices by some ops only: what is trained, its update reads."""
    stores, reads = program.stores, program.reads
    is_product = np.isin(program.ops.kind, kinds)[reads.op]
    by_product = np.bincount(reads.storage[is_product], minlength=len(stores))
    by_others = np.bincount(reads.storage[~is_product], minlength=len(stores))
    is_matrix = stores.elements[:, 0] > _largest_bias(program)
    is_weight = (stores.owner == Owner.PARAMETER) & is_matrix
    is_weight[_read_by_head(program)] = False
    return np.asarray(is_weight & (by_product > 0) & (by_others == 0))


def _read_by_head(program: Program) -> IntArray:
    """What the last product of the forward pass reads."""
    is_forward = (program.ops.kind == OpKind.MATMUL) & (program.ops.phase == Phase.FORWARD)
    head = np.flatnonzero(is_forward)[-1:]
    storages: IntArray = program.reads.storage[np.isin(program.reads.op, head)]
    return storages


def _largest_bias(program: Program) -> float:
    """No vector of a product is longer than its longest side."""
    rows = program.ops.dims[program.ops.kind == OpKind.MATMUL]
    return float(program.dims[rows][:, 2:4, 0].max(initial=0.0))


def _with_inputs_kept(program: Program, chosen: BoolArray) -> Program:
    """Operands of forward products with chosen weights live as long as the weight is read.

    Source: bitsandbytes 0.41, autograd/_functions.py, `MatMul4Bit.forward`, which keeps
    ``ctx.tensors = (A, B)``; later releases keep ``(None, B)``.
    """
    reads, stores = program.reads, program.stores
    of_weight = np.flatnonzero(chosen[reads.storage])
    last = np.full(len(stores), -1)
    np.maximum.at(last, reads.storage[of_weight], reads.op[of_weight])
    until = np.full(len(program.ops), -1)
    until[reads.op[of_weight]] = last[reads.storage[of_weight]]
    is_forward = program.ops.phase == Phase.FORWARD
    kept = np.flatnonzero(is_forward[reads.op] & (until[reads.op] >= 0))
    death = stores.death.copy()
    np.maximum.at(death, reads.storage[kept], until[reads.op[kept]])
    return replace(program, stores=replace(stores, death=death))


def _with_dequantisation(program: Program, chosen: BoolArray, whole_bytes: FloatArray) -> Program:
    reads = program.reads
    rows = np.flatnonzero(chosen[reads.storage])
    weight, op = reads.storage[rows], reads.op[rows]
    size = program.stores.elements[weight]
    draft = Draft(program)
    widened = draft.stores(size, is_wide=False)
    draft.ops(
        OpKind.DEQUANTIZE, op, -0.5, dims=row_dims(size, constant(np.ones(len(rows))), 1.0),
        reads=[(weight, size)], writes=[(widened, size)],
    )  # fmt: skip
    joined = draft.joined()
    storage, death = joined.reads.storage.copy(), joined.stores.death.copy()
    width = joined.stores.element_bytes.copy()
    storage[rows], death[widened], width[widened] = widened, op, whole_bytes[weight]
    return replace(
        joined,
        reads=replace(joined.reads, storage=storage),
        stores=replace(joined.stores, death=death, element_bytes=width),
    ).ordered()
