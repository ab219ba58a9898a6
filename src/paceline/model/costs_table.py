"""Distinct ops of a program with their counts: what predicting its time needs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt

from paceline.dtypes import ELEMENT_BYTES, DType, Precision
from paceline.model.graph.costs import Configuration, CostTable
from paceline.model.graph.distinct import among, distinct_rows, summed_rows
from paceline.model.graph.graph import (
    NUM_DIMS,
    NUM_MONOMIALS,
    FloatArray,
    IntArray,
    OpKind,
    Owner,
    Phase,
)
from paceline.model.graph.program import Accesses, BoolArray, Program
from paceline.model.ops.optable import read_table, variants
from paceline.model.ops.registry import column, kinds_where
from paceline.model.ops.turns import without_turns
from paceline.model.rewrite.optimizer import optimizer_by_variant

_FOREACH_TENSORS = 30
#: Compilers that make one graph of a whole pass, in which no loop over items is left.
_STATIC = ("xla", "tensorrt")
_ATTENTION = kinds_where(lambda facts: facts.sequence == "looks")


def cost_table(program: Program, configuration: Configuration, precision: Precision) -> CostTable:
    """Costs of an ordered program.

    Args:
        program: What runs, in order.
        configuration: Platform and kernels.
        precision: Gives the format of matrix products.
    """
    ops = program.ops
    reads = _rows_looked_up(program)
    accessed = accesses_of_updates(program, configuration)[:, None]
    read = _moved(program, reads) * accessed
    write = _moved(program, program.writes) * accessed
    is_weight = program.stores.owner[reads.storage] == Owner.PARAMETER
    weight = _moved(program, reads, keep=is_weight)
    kernels = num_kernels(program, configuration)
    matmul_dtype = matmul_dtypes(program, precision)
    # Of shape numbers there are few, which many ops have.
    _, shape, _ = distinct_rows(program.dims.reshape(-1, NUM_DIMS * NUM_MONOMIALS))
    codes = (ops.kind, ops.variant, ops.phase, matmul_dtype, shape[ops.dims], kernels)
    coded = np.stack(codes, axis=1).astype(np.float64)
    numbers = np.concatenate((coded, ops.flop, read, write, weight), axis=1)
    first, order, count = distinct_rows(numbers)
    dims = program.dims[ops.dims[first]]
    if configuration.compiler in _STATIC:
        dims = without_turns(ops.kind[first], dims)
    return CostTable(
        kind=ops.kind[first].astype(np.int16),
        variant=ops.variant[first].astype(np.int16),
        phase=ops.phase[first].astype(np.int8),
        matmul_dtype=matmul_dtype[first].astype(np.int8),
        count=count.astype(np.float64),
        num_kernels=kernels[first],
        flop=ops.flop[first],
        read_bytes=read[first],
        write_bytes=write[first],
        dims=dims,
        weight_bytes=weight[first],
        order=order.astype(np.int32),
        module=ops.module.astype(np.int32),
        modules=program.modules,
    )


def matmul_dtypes(program: Program, precision: Precision) -> IntArray:
    """Format in which each op multiplies, (num_ops,); FP32 where it does not.

    FP8 training keeps attention in the format of activations, as Transformer Engine does unless it
    is told otherwise (``fp8_dpa=False`` in its recipes), and so are the logits: Megatron-LM's
    output layer is none of Transformer Engine's (megatron/core/models/gpt/gpt_model.py), and
    TorchTitan leaves ``output`` out (``--float8.filter_fqns``).
    """
    kind = program.ops.kind
    is_product = column("is_narrow")[kind]
    own = np.where(is_product, int(precision.matmul_dtype), int(DType.FP32))
    if precision.matmul_dtype in (DType.FP8, DType.FP4):
        is_wide = among(kind, _ATTENTION) | _is_of_logits(program)
        own = np.where(is_wide, int(precision.activation_dtype), own)
    return np.where(_stays_wide(program), int(DType.FP32), own)


def _stays_wide(program: Program) -> BoolArray:
    """Ops all of whose operands are in 32 bits that no precision changes."""
    stores, reads = program.stores, program.reads
    is_wide = ~stores.is_floating & (stores.element_bytes == ELEMENT_BYTES[DType.FP32])
    num_reads, num_wide = (
        np.bincount(reads.op[rows], minlength=len(program.ops))
        for rows in (slice(None), is_wide[reads.storage])
    )
    return np.asarray((num_reads > 0) & (num_wide == num_reads))


def _is_of_logits(program: Program) -> BoolArray:
    """The last product before the loss, and those of its module with its columns in backward."""
    ops, start = program.ops, program.first_backward()
    is_product = ops.kind == OpKind.MATMUL
    forward = np.flatnonzero(is_product & (ops.position < start))
    if not (forward.size and np.isfinite(start)):
        return np.zeros(len(ops), dtype=bool)
    last = forward[np.argmax(ops.position[forward])]
    sides = program.dims[ops.dims, 1:4, 0]
    has_columns = (sides == sides[last, 1]).any(axis=1)
    return np.asarray(is_product & has_columns & (ops.module == ops.module[last]))


def num_kernels(program: Program, configuration: Configuration) -> FloatArray:
    """Kernels that each op launches, (num_ops,)."""
    table = _calls()[0][configuration.platform]
    ops = program.ops
    kernels: FloatArray = table[ops.kind, np.minimum(ops.variant, table.shape[1] - 1)]
    for row in np.flatnonzero(ops.kind == OpKind.OPTIMIZER).tolist():
        num_tensors = float(program.dims[ops.dims[row], 1, 0])
        kernels[row] = _optimizer_kernels(int(ops.variant[row]), num_tensors, configuration)
    return kernels


def views_with(
    kind: npt.NDArray[np.integer], phase: npt.NDArray[np.integer], num_kernels: FloatArray
) -> FloatArray:
    """Views of tensors that come with ops, as counted in networks (``data/host_views.csv``).

    Graphs keep none.

    Args:
        kind: ``OpKind`` of each op.
        phase: ``Phase`` of each, same shape.
        num_kernels: Kernels that each launches, same shape.
    """
    is_backward = (phase == Phase.BACKWARD).astype(np.intp)
    views: FloatArray = num_kernels * _calls()[1][kind, is_backward]
    return views


def _optimizer_kernels(variant: int, num_tensors: float, configuration: Configuration) -> float:
    rule = optimizer_by_variant(variant)
    chunks = float(np.ceil(num_tensors / _FOREACH_TENSORS))
    kernels = {
        "plain": num_tensors * rule.plain_kernels_per_tensor,
        "foreach": chunks * rule.foreach_kernels,
        "fused": chunks,
    }
    return kernels[configuration.optimizer_kernel]


def accesses_of_updates(program: Program, configuration: Configuration) -> FloatArray:
    """Bytes that each op moves over those of its operands, moved once, (num_ops,)."""
    accessed = np.ones(len(program.ops))
    for row in np.flatnonzero(program.ops.kind == OpKind.OPTIMIZER).tolist():
        rule = optimizer_by_variant(int(program.ops.variant[row]))
        accessed[row] = rule.accessed(configuration.optimizer_kernel)
    return accessed


@cache
def _calls() -> tuple[dict[str, FloatArray], FloatArray]:
    """What ops ask of a host: kernels and views.

    Returns:
        Per platform, kernels by (kind, variant), where a kind's plain row holds for all its
        variants; and views per kernel, by kind, forward and backward, (num_kinds, 2).
    """
    rows = read_table("kernels.csv")
    width = 1 + max(variants().values())
    kernels = {}
    for platform in ("cuda", "rocm", "cpu", "xla"):
        table = np.ones((len(OpKind), width))
        for row in rows:
            kind = OpKind[row["kind"]]
            variant = variants()[row["kind"], row["variant"]] if row["variant"] else slice(None)
            table[kind, variant] = float(row[platform])
        kernels[platform] = table
    views = np.zeros((len(OpKind), 2))
    for row in read_table("host_views.csv"):
        views[OpKind[row["kind"]]] = float(row["forward"]), float(row["backward"])
    return kernels, views


def _rows_looked_up(program: Program) -> Accesses:
    """The reads, where an embedding touches the rows that its indices name and not its table.

    A table is what a lookup reads first: parameters, or states of nodes whose neighbours are added.
    """
    reads, ops = program.read_at_all, program.ops
    of_lookup = ops.kind[reads.op] == OpKind.EMBEDDING
    is_table = of_lookup & (program.stores.owner[reads.storage] == Owner.PARAMETER)
    is_table |= of_lookup & (np.diff(reads.op, prepend=-1) != 0)
    lookup, first = np.unique(reads.op[of_lookup & ~is_table], return_index=True)
    index_of_op = np.full(len(ops), -1)
    index_of_op[lookup] = np.flatnonzero(of_lookup & ~is_table)[first]
    tables = np.flatnonzero(is_table & (index_of_op[reads.op] >= 0))
    width = program.dims[ops.dims[reads.op[tables]], 1, 0]
    elements = reads.elements.copy()
    elements[tables] = elements[index_of_op[reads.op[tables]]] * width[:, None]
    return replace(reads, elements=elements)


def _moved(program: Program, accesses: Accesses, keep: np.ndarray | None = None) -> FloatArray:
    """Bytes per op, (num_ops, 9)."""
    num_bytes = accesses.elements * program.stores.element_bytes[accesses.storage][:, None]
    if keep is not None:
        num_bytes = num_bytes * keep[:, None]
    return summed_rows(num_bytes, accesses.op, len(program.ops))
