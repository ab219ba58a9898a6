"""A pass of one operator, from the shape numbers of its record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.model.graph.costs import Configuration, CostTable, LoweredPass, MemoryTable
from paceline.model.graph.graph import NUM_DIMS, NUM_MONOMIALS, FloatArray, OpKind, Owner, Phase
from paceline.model.ops.registry import DIM_NAMES
from paceline.model.ops.shapes import op_flop

_FP32_BYTES = 4


def operator_pass(kind: OpKind, shape: Sequence[float], precision: str) -> LoweredPass:
    """The operator alone, launched once by eager kernels.

    Args:
        kind: What runs.
        shape: In the order of ``DIM_NAMES``; (elements, row length, streams) for kinds that have
            no names there.
        precision: Name in ``dtypes.PRECISIONS``.
    """
    kinds, dims = np.array([kind], np.int64), _dims(kind, shape)
    moved_bytes = bytes_of(kind, shape, _element_bytes(precision))
    costs = CostTable(
        kind=kinds.astype(np.int16),
        variant=np.zeros(1, np.int16),
        phase=np.array([Phase.FORWARD], np.int8),
        matmul_dtype=np.array([find_precision(precision).matmul_dtype], np.int8),
        count=np.ones(1),
        num_kernels=np.ones(1),
        flop=op_flop(kinds, dims),
        read_bytes=_constant(moved_bytes),
        write_bytes=_constant(0.0),
        dims=dims,
        weight_bytes=_constant(0.0),
        order=np.zeros(1, np.int32),
        module=np.zeros(1, np.int32),
        modules=("",),
    )
    return LoweredPass(
        name=kind.name,
        configuration=Configuration(
            precision=precision, channels_last=precision not in ("fp32", "tf32")
        ),
        costs=costs,
        memory=_memory(moved_bytes),
        num_parameters=0,
        num_trainable_parameters=0,
        gradient_bytes=0.0,
        parameter_bytes=0.0,
        optimizer_state_bytes=0.0,
        gradient_ready=np.zeros((0, 2)),
    )


def _dims(kind: OpKind, shape: Sequence[float]) -> FloatArray:
    """Shape numbers as graphs have them, of which streams are (rows, columns, operands)."""
    if kind not in DIM_NAMES:
        elements, row, streams = shape
        shape = (elements / row, row, streams - 1)
    dims = np.zeros((1, NUM_DIMS, NUM_MONOMIALS))
    dims[0, : len(shape), 0] = shape
    return dims


def bytes_of(kind: OpKind, shape: Sequence[float], element_bytes: float) -> float:
    """Bytes with every operand moved once; an optimizer's are in FP32.

    >>> bytes_of(OpKind.MATMUL, (1, 2, 3, 4), 2)
    52
    >>> bytes_of(OpKind.ELEMENTWISE, (100, 1, 3), 4)
    1200
    """
    names = DIM_NAMES.get(kind, ("elements", "row", "streams"))
    d = dict(zip(names, shape, strict=True))
    if kind == OpKind.OPTIMIZER:
        streams = 3 + 2 * d["state_tensors"] / d["tensors"]  # gradient, parameter twice, states
        return _FP32_BYTES * d["elements"] * streams
    return element_bytes * _elements_moved(kind, d)


def _elements_moved(kind: OpKind, d: dict[str, float]) -> float:
    if kind == OpKind.MATMUL:
        return d["batch"] * (d["m"] * d["k"] + d["k"] * d["n"] + d["m"] * d["n"])
    if "out_h" in d:
        window = d["c"] / d["groups"] * d["r"] * d["s"]
        images = d["k"] * d["out_h"] * d["out_w"] + d["c"] * d["h"] * d["w"]
        return d["n"] * images + d["k"] * window
    if "head_size" in d:
        heads = 2 * d["q_heads"] * d["q_len"] + 2 * d["kv_heads"] * d["kv_len"]
        passes = 2 if kind == OpKind.ATTENTION_BACKWARD else 1
        return passes * d["batch"] * d["head_size"] * heads
    if "gates" in d:
        weights = d["directions"] * d["gates"] * d["hidden"] * (d["input"] + d["hidden"])
        return d["layers"] * weights + d["batch"] * d["steps"] * (d["input"] + d["hidden"])
    return d["elements"] * d["streams"]


def _element_bytes(precision: str) -> float:
    return ELEMENT_BYTES[find_precision(precision).activation_dtype]


def _constant(value: float) -> FloatArray:
    values = np.zeros((1, NUM_MONOMIALS))
    values[0, 0] = value
    return values


def _memory(moved_bytes: float) -> MemoryTable:
    by_owner = np.zeros((1, len(Owner), NUM_MONOMIALS))
    by_owner[0, Owner.INPUT, 0] = moved_bytes
    return MemoryTable(
        by_owner=by_owner,
        op=np.zeros(1, np.int32),
        weight_copies=np.zeros((1, NUM_MONOMIALS)),
        largest_bytes=np.zeros((1, NUM_MONOMIALS)),
        num_allocations=np.ones(1),
    )
