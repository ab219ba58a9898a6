"""What kernels keep and need beside the tensors of the graph, per platform.

The graph is traced as an accelerator runs it. On a CPU dropout keeps a mask of the activations'
format, and recurrent layers keep other things; optimizers need temporaries everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import get_args

import numpy as np

from paceline.columns import join_tables
from paceline.model.graph.costs import AttentionKernels, Configuration, Platform
from paceline.model.graph.graph import NUM_MONOMIALS, FloatArray, IntArray, OpKind, Owner
from paceline.model.graph.polynomial import constant, multiply, product
from paceline.model.graph.program import Program, Stores
from paceline.model.ops.optable import read_table
from paceline.model.rewrite.attention import with_attention_kernel
from paceline.model.rewrite.optimizer import optimizer_by_variant

_FP32_BYTES = 4.0
_GATES, _DIRECTIONS, _HIDDEN = 6, 5, 3
_BATCH, _Q_HEADS, _Q_LEN, _HEAD_SIZE = 0, 1, 3, 5


def on_platform(program: Program, configuration: Configuration) -> Program:
    """``program`` with what the platform's kernels keep and need."""
    program = with_attention_kernel(program, configuration)
    program = _with_attention_workspaces(program, configuration)
    program = _with_recurrent_reserves(program, configuration.platform)
    if configuration.platform == "cpu":
        program = _with_wide_dropout_masks(program)
    return _with_optimizer_temporaries(program, configuration)


def first_platform_alike(program: Program, configuration: Configuration) -> Platform:
    """The first platform on which `on_platform` gives the same program."""
    kinds = frozenset(program.ops.kind.tolist())
    own = _needs(kinds, configuration, configuration.platform)
    platforms: tuple[Platform, ...] = get_args(Platform)
    return next(one for one in platforms if _needs(kinds, configuration, one) == own)


def _needs(
    kinds: frozenset[int], configuration: Configuration, platform: Platform
) -> tuple[object, ...]:
    """What tells a platform from another for ops of some kinds."""
    is_fused, is_recurrent = OpKind.ATTENTION_BACKWARD in kinds, OpKind.RECURRENT in kinds
    return (
        _attention(configuration.attention, platform) if is_fused else None,
        _recurrent(platform) if is_recurrent else None,
        platform == "cpu" and not kinds.isdisjoint((OpKind.DROPOUT, OpKind.ATTENTION)),
        platform == "cpu" and configuration.compiler == "tensorrt",
    )


def _with_attention_workspaces(program: Program, configuration: Configuration) -> Program:
    """The backward pass of a fused kernel sums the query gradient in FP32."""
    ops = np.flatnonzero(program.ops.kind == OpKind.ATTENTION_BACKWARD)
    in_queries, in_rows = _attention(configuration.attention, configuration.platform)
    if not ops.size:
        return program
    dims = program.dims[program.ops.dims[ops]]
    rows = product(dims[:, [_BATCH, _Q_HEADS, _Q_LEN]])
    queries = product(np.stack((rows, dims[:, _HEAD_SIZE]), axis=1))
    return _with_workspace(program, ops, in_queries * queries + in_rows * rows)


def _with_wide_dropout_masks(program: Program) -> Program:
    """On a CPU the mask is noise in the format of the activations."""
    masks = program.written(np.flatnonzero(program.ops.kind == OpKind.DROPOUT), 1)
    width = program.stores.element_bytes.copy()
    width[masks] = _FP32_BYTES
    is_floating = program.stores.is_floating.copy()
    is_floating[masks] = True
    stores = replace(program.stores, element_bytes=width, is_floating=is_floating)
    return replace(program, stores=stores)


def _with_recurrent_reserves(program: Program, platform: Platform) -> Program:
    for kind, column in ((OpKind.RECURRENT, 1), (OpKind.RECURRENT_BACKWARD, 2)):
        ops = np.flatnonzero(program.ops.kind == kind)
        if not ops.size:
            continue
        dims = program.dims[program.ops.dims[ops]]
        needs = np.array([_recurrent(platform)[int(g)] for g in dims[:, _GATES, 0]])
        hidden = _steps_times_hidden(dims)
        if kind == OpKind.RECURRENT:
            program = _with_reserve(program, ops, hidden * needs[:, :1])
        workspace = hidden * needs[:, column, None]
        if kind == OpKind.RECURRENT_BACKWARD:
            workspace = workspace + needs[:, 3:] * _weight_elements(program, ops)
        program = _with_workspace(program, ops, workspace)
    return program


def _weight_elements(program: Program, ops: IntArray) -> FloatArray:
    """Elements of the parameters that each op reads, (num_ops, 9)."""
    is_weight = program.stores.owner[program.reads.storage] == Owner.PARAMETER
    elements = np.zeros((len(program.ops), NUM_MONOMIALS))
    rows = np.flatnonzero(is_weight)
    np.add.at(elements, program.reads.op[rows], program.reads.elements[rows])
    weights: FloatArray = elements[ops]
    return weights


def _with_reserve(program: Program, ops: IntArray, elements: FloatArray) -> Program:
    """Replace the traced placeholder (the second output) by what the platform keeps."""
    reserve = program.written(ops, 1)
    sizes = program.stores.elements.copy()
    is_kept = sizes[reserve].any(axis=1, keepdims=True)
    sizes[reserve] = elements * is_kept
    return replace(program, stores=replace(program.stores, elements=sizes))


def _steps_times_hidden(dims: FloatArray) -> FloatArray:
    steps = multiply(dims[:, 0], dims[:, 1])
    layers, directions, hidden = dims[:, 4, 0], dims[:, _DIRECTIONS, 0], dims[:, _HIDDEN, 0]
    return steps * (layers * directions * hidden)[:, None]


def _with_optimizer_temporaries(program: Program, configuration: Configuration) -> Program:
    """Foreach kernels need temporaries of all parameters at once, plain ones of the largest.

    A script's own loop has no foreach kernels: it goes through the tensors one by one.
    """
    ops = np.flatnonzero(program.ops.kind == OpKind.OPTIMIZER)
    kernel = configuration.optimizer_kernel
    if not ops.size or kernel == "fused":
        return program
    for op in ops.tolist():
        rule = optimizer_by_variant(int(program.ops.variant[op]))
        sizes = _parameter_sizes(program, op)
        is_foreach = kernel == "foreach" and not rule.is_script
        count = rule.foreach_temporaries if is_foreach else rule.plain_temporaries
        temporaries = np.tile(sizes if is_foreach else sizes.max(initial=0.0), count)
        workers = np.full(len(temporaries), op)
        program = _with_workspace(program, workers, constant(temporaries))
    return program


def _parameter_sizes(program: Program, op: int) -> FloatArray:
    storage = program.writes.storage[program.writes.op == op]
    storage = storage[program.stores.owner[storage] == Owner.PARAMETER]
    sizes: FloatArray = program.stores.elements[storage, 0]
    return sizes


def _with_workspace(program: Program, ops: IntArray, elements: FloatArray) -> Program:
    """FP32 storages that live during one op each."""
    rows = np.flatnonzero(elements.any(axis=1))
    count = len(rows)
    workspaces = Stores(
        elements=elements[rows],
        element_bytes=np.full(count, _FP32_BYTES),
        is_floating=np.ones(count, dtype=bool),
        is_wide=np.ones(count, dtype=bool),
        is_trainable=np.zeros(count, dtype=bool),
        owner=np.full(count, int(Owner.WORKSPACE)),
        birth=ops[rows],
        death=ops[rows],
    )
    return replace(program, stores=join_tables(program.stores, workspaces))


@cache
def _attention(kernels: AttentionKernels, platform: Platform) -> tuple[float, float]:
    """FP32 numbers that a backward pass needs per query element and per row of scores."""
    for row in read_table("attention.csv"):
        if (row["kernels"], row["platform"]) == (kernels, platform):
            return float(row["queries"]), float(row["rows"])
    return 0.0, 0.0


@cache
def _recurrent(platform: Platform) -> dict[int, tuple[float, float, float, float]]:
    """What a cell keeps and needs, by its number of gates.

    (reserve, forward workspace, backward workspace) per step and unit, and backward workspace in
    sizes of its weights.
    """
    return {
        int(row["gates"]): (
            float(row["reserve"]),
            float(row["forward_workspace"]),
            float(row["backward_workspace"]),
            float(row["weight_workspace"]),
        )
        for row in read_table("recurrent.csv")
        if row["platform"] == platform
    }
