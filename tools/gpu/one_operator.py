"""A pass of one operator, from the shape numbers of its record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.dtypes import ELEMENT_BYTES, find_precision
from paceline.trace.costs import Configuration, CostTable, LoweredPass, MemoryTable
from paceline.trace.graph import DIM_NAMES, NUM_DIMS, NUM_MONOMIALS, OpKind, Owner, Phase

#: Products of a backward pass over those of the forward one: attention recomputes its scores.
_ATTENTION_BACKWARD = 2.5


def operator_pass(kind: OpKind, shape: Sequence[float], precision: str) -> LoweredPass:
    """The operator alone, launched once by eager kernels.

    Args:
        kind: What runs.
        shape: In the order of ``DIM_NAMES``; (elements, row length, streams) for kinds that have
            no names there.
        precision: Name in ``dtypes.PRECISIONS``.
    """
    flop, moved_bytes = work_of(kind, shape, _element_bytes(precision))
    dims = np.zeros((1, NUM_DIMS, NUM_MONOMIALS))
    dims[0, : len(shape), 0] = shape
    costs = CostTable(
        kind=np.array([kind], np.int16),
        variant=np.zeros(1, np.int16),
        phase=np.array([Phase.FORWARD], np.int8),
        matmul_dtype=np.array([find_precision(precision).matmul_dtype], np.int8),
        count=np.ones(1),
        num_kernels=np.ones(1),
        flop=_constant(flop),
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
        configuration=Configuration(precision=precision),
        costs=costs,
        memory=_memory(moved_bytes),
        num_parameters=0,
        num_trainable_parameters=0,
        gradient_bytes=0.0,
        parameter_bytes=0.0,
        optimizer_state_bytes=0.0,
        gradient_ready=np.zeros((0, 2)),
    )


def work_of(kind: OpKind, shape: Sequence[float], element_bytes: float) -> tuple[float, float]:
    """Operations, a multiply-add counting as two, and bytes with every operand moved once.

    >>> work_of(OpKind.MATMUL, (1, 2, 3, 4), 2)
    (48, 52)
    >>> work_of(OpKind.ELEMENTWISE, (100, 1, 3), 4)
    (100, 1200)
    """
    names = DIM_NAMES.get(kind, ("elements", "row", "streams"))
    d = dict(zip(names, shape, strict=True))
    if kind == OpKind.MATMUL:
        b, m, n, k = shape
        return 2 * b * m * n * k, element_bytes * b * (m * k + k * n + m * n)
    if "out_h" in names:
        small, large = d["k"] * d["out_h"] * d["out_w"], d["c"] * d["h"] * d["w"]
        window = d["c"] / d["groups"] * d["r"] * d["s"]
        elements = d["n"] * (small + large) + d["k"] * window
        return 2 * d["n"] * small * window, element_bytes * elements
    if "head_size" in names:
        return _attention_work(kind, d, element_bytes)
    if "gates" in names:
        per_step = d["gates"] * d["hidden"] * (d["input"] + d["hidden"])
        weights = d["layers"] * d["directions"] * per_step
        state = d["batch"] * d["steps"] * (d["input"] + d["hidden"])
        return 2 * d["batch"] * d["steps"] * weights, element_bytes * (weights + state)
    if kind == OpKind.OPTIMIZER:
        states = d["state_tensors"] / max(d["tensors"], 1)
        return 4 * d["elements"], 4 * d["elements"] * (3 + 2 * min(states, 2))
    return d["elements"], element_bytes * d["elements"] * d["streams"]


def _attention_work(kind: OpKind, d: dict[str, float], element_bytes: float) -> tuple[float, float]:
    seen = 0.5 if d["is_causal"] else 1.0
    flop = 4 * d["batch"] * d["q_heads"] * d["q_len"] * d["kv_len"] * d["head_size"] * seen
    queries = 2 * d["q_heads"] * d["q_len"]
    elements = d["batch"] * d["head_size"] * (queries + 2 * d["kv_heads"] * d["kv_len"])
    is_backward = kind == OpKind.ATTENTION_BACKWARD
    repeats = _ATTENTION_BACKWARD if is_backward else 1.0
    return repeats * flop, element_bytes * elements * (2 if is_backward else 1)


def _element_bytes(precision: str) -> float:
    return ELEMENT_BYTES[find_precision(precision).activation_dtype]


def _constant(value: float) -> np.ndarray:
    values = np.zeros((1, NUM_MONOMIALS))
    values[0, 0] = value
    return values


def _memory(moved_bytes: float) -> MemoryTable:
    by_owner = np.zeros((1, len(Owner), NUM_MONOMIALS))
    by_owner[0, Owner.INPUT, 0] = moved_bytes
    return MemoryTable(
        by_owner=by_owner,
        op=np.zeros(1, np.int32),
        largest_bytes=np.zeros((1, NUM_MONOMIALS)),
        num_allocations=np.ones(1),
    )
