"""Low-rank adapters: beside each chosen dense layer two thin ones, and the base frozen.

A layer ``y = x W`` becomes ``y = x W + (x A) B`` with ``A`` of k × r and ``B`` of r × n. The base
keeps its input gradient; the adapter adds four products to the backward pass and saves ``x`` and
``x A``. Adapters in FP32 beside a narrow base also move memory from kernel to kernel: their copy of
``x`` through dropout, what they add through its scale, and that and its sum from one format to the
other (huggingface/peft, tuners/lora/layer.py, ``Linear.forward``, recalled 2026-11-26). A kernel
that takes adapters with their layer (``shared``) does none of that.

Source: Hu et al., "LoRA", 2021 (arXiv:2106.09685); for quantised bases Dettmers et al., "QLoRA",
2023 (arXiv:2305.14314).

Experts that lie in one tensor are no linear layers, and PEFT leaves them as they are unless they
are named (``target_parameters``; Transformers 5 keeps all mixtures so; huggingface/transformers
issue 36518, read 2026-11-27). Where a pattern names them, each has an adapter.

DoRA learns the length of each column of a weight beside its direction: every forward pass makes
``A B``, adds it to the weight and takes the norm of each column, scales what the layer and its
adapter make by it, and keeps both for the gradient of the lengths (Liu et al., "DoRA", 2024,
arXiv:2402.09353; huggingface/peft, tuners/lora/dora.py, ``DoraLinearLayer.forward``, recalled
2026-11-28; norms receive no gradient, as its section 4.3 has it).

LoHa adds a matrix of the weight's own shape: every forward pass makes it as the product, element by
element, of two of rank R, and multiplies the input by it beside the weight; backward makes it and
its factors again (Hyeon-Woo et al., "FedPara", 2022, arXiv:2108.06098; huggingface/peft,
tuners/loha/layer.py, ``HadaWeight``, and tuners/lycoris_utils.py, ``_get_delta_activations``; read
2026-11-28). Adapters in FP32 multiply in FP32.

Modules may be trained whole beside adapters, as embedding and head are for new words. Their
weights are there twice then: PEFT trains a copy and keeps the original (huggingface/peft,
utils/other.py, ``ModulesToSaveWrapper``; recalled 2026-11-26).

Shape legend: N adapted layers; E experts (1 of a dense layer), M rows of each, K inputs, R rank, C
outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import AdapterInputs, AdapterKind
from paceline.model.graph.graph import FloatArray, IntArray, OpKind, Owner, Phase
from paceline.model.graph.polynomial import constant, multiply
from paceline.model.graph.program import BoolArray, Program
from paceline.model.rewrite.draft import Draft, matmul_dims, row_dims
from paceline.model.rewrite.freezing import (
    matches,
    stays_trained,
    updates_of,
    with_updates_of,
    without_gradients,
)
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Layers:
    """N dense layers in the forward and backward pass.

    Attributes:
        op: Forward product.
        source: Storage of its input.
        result: Storage of its output.
        to_source: Backward product that makes the gradient of the input; -1 where there is none.
        to_weight: Backward product that makes the gradient of the weight.
        upstream: Storage of the gradient of the output.
        experts: E, (N, 9).
        rows: M, (N, 9).
        inputs: K, (N, 9).
        outputs: C, (N, 9).
    """

    op: IntArray
    source: IntArray
    result: IntArray
    to_source: IntArray
    to_weight: IntArray
    upstream: IntArray
    experts: FloatArray
    rows: FloatArray
    inputs: FloatArray
    outputs: FloatArray


def with_adapters(
    program: Program,
    *,
    rank: int,
    patterns: Sequence[str],
    inputs: AdapterInputs = "shared",
    width_ratio: float = 1.0,
    trained: Sequence[str] = (),
    kind: AdapterKind = "lora",
) -> Program:
    """``program`` with adapters of a rank on dense layers, and everything else frozen.

    Args:
        program: Of a training step; ordered.
        rank: R.
        patterns: Of module paths; without one, every dense layer but experts and the last.
        inputs: What adapters read.
        width_ratio: Bytes of what adapters make over those of what layers make, if not shared.
        trained: Patterns after ``except:`` of modules that are trained whole.
        kind: What adapters add, and whether lengths of columns are learned too.

    Raises:
        InvalidInputError: No dense layer matches, or no module that is to be trained.
    """
    whole = stays_trained(program, trained) & program.stores.is_trainable
    layers = _dense_layers(program, patterns)
    draft = Draft(program)
    draft.parameters(program.stores.elements[whole])
    rank_rows = constant(np.full(len(layers.op), float(rank)))
    down = draft.parameters(_product(layers.experts, layers.inputs, rank_rows))
    up = draft.parameters(_product(layers.experts, rank_rows, layers.outputs))
    seen, copies = _draft_inputs(draft, layers, inputs)
    new, made = [down, up], list[IntArray]()
    if kind == "loha":
        new += [draft.parameters(size) for size in _factor_sizes(layers, rank_rows)]
        matrix = _draft_whole(draft, layers, rank_rows, new, seen)
        made, upstream = _draft_whole_backward(draft, layers, rank_rows, new, (matrix, seen))
        if inputs != "shared":
            copies = np.concatenate((copies, matrix, upstream))
    else:
        hidden = _draft_forward(draft, layers, rank_rows, (down, up, seen))
        made = [*_draft_backward(draft, layers, rank_rows, (down, up, hidden, seen))]
    if kind == "dora":
        lengths, to_lengths = _draft_lengths(draft, layers, rank_rows, (down, up))
        new, made = [*new, lengths], [*made, to_lengths]
    if inputs != "shared":
        _draft_conversions(draft, layers, seen, inputs, width_ratio)
    is_base = (program.stores.owner == Owner.PARAMETER) & program.stores.is_trainable & ~whole
    adapted = _with_fixed_formats(draft.joined(), copies)
    adapted = with_updates_of(adapted, np.concatenate(new), np.concatenate(made))
    is_base = np.pad(is_base, (0, len(adapted.stores) - len(is_base)))
    is_base[len(whole) : len(whole) + whole.sum()] = True
    return without_gradients(adapted.ordered(), is_base)


def _product(one: FloatArray, two: FloatArray, three: FloatArray) -> FloatArray:
    return multiply(multiply(one, two), three)


def _dense_layers(program: Program, patterns: Sequence[str]) -> _Layers:
    weight = _weight_read(program)
    op = np.flatnonzero(
        (program.ops.kind == OpKind.MATMUL)
        & (program.ops.phase == Phase.FORWARD)
        & (weight >= 0)
        & _chosen(program, patterns)
    )
    op = op if patterns else _without_experts(program, op[:-1])
    to_weight, to_source = _backward_products(program, weight, op)
    op, to_source, to_weight = (a[to_weight >= 0] for a in (op, to_source, to_weight))
    if not op.size:
        raise InvalidInputError(
            "no dense layer takes an adapter",
            hint="name modules that hold linear layers; several patterns are joined by `|`",
        )
    dims = program.dims[program.ops.dims[op]]
    source = _other_operand(program, op, weight[op])
    return _Layers(
        op=op,
        source=source,
        result=program.written(op, 0),
        to_source=to_source,
        to_weight=to_weight,
        upstream=_other_operand(program, to_weight, source),
        experts=dims[:, 0],
        rows=dims[:, 1],
        inputs=dims[:, 3],
        outputs=dims[:, 2],
    )


def _without_experts(program: Program, op: IntArray) -> IntArray:
    """Ops that are no products of experts, which a rank may have one of, or a module each."""
    num_matrices = program.dims[program.ops.dims[op]][:, 0]
    is_single = (num_matrices == constant(np.ones(len(op)))).all(axis=1)
    is_expert = np.array(["experts" in path.split(".") for path in program.modules], dtype=bool)
    plain: IntArray = op[is_single & ~is_expert[program.ops.module[op]]]
    return plain


def _weight_read(program: Program) -> IntArray:
    """The parameter matrix that each op reads last; -1 where it reads none."""
    is_parameter = program.stores.owner[program.reads.storage] == Owner.PARAMETER
    weight = np.full(len(program.ops), -1)
    weight[program.reads.op[is_parameter]] = program.reads.storage[is_parameter]
    return weight


def _chosen(program: Program, patterns: Sequence[str]) -> BoolArray:
    if not patterns:
        return np.ones(len(program.ops), dtype=bool)
    named = [one for pattern in patterns for one in _as_targets(pattern)]
    hits = np.array([matches(path, named) for path in program.modules])
    chosen: BoolArray = hits[program.ops.module]
    return chosen


def _as_targets(pattern: str) -> tuple[str, ...]:
    """A pattern, and what it names as PEFT's ``target_modules`` does: a word, the ends of paths.

    Layers of our own graphs lack the ``_proj`` that those of Transformers have.

    >>> _as_targets("*.attention.q"), _as_targets("q_proj")
    (('*.attention.q',), ('q_proj', '*.q_proj', '*.q'))
    """
    if "." in pattern or "*" in pattern:
        return (pattern,)
    return tuple(dict.fromkeys((pattern, f"*.{pattern}", f"*.{pattern.removesuffix('_proj')}")))


def _backward_products(
    program: Program, weight: IntArray, forward: IntArray
) -> tuple[IntArray, IntArray]:
    """(product that writes the weight's gradient, product that reads the weight) per layer."""
    gradient_of = np.full(len(program.stores), -1)
    for op in np.flatnonzero(program.ops.kind == OpKind.OPTIMIZER).tolist():
        one = updates_of(program, op)
        gradient_of[one.parameter] = one.gradient
    is_backward = (program.ops.phase == Phase.BACKWARD) & (program.ops.kind == OpKind.MATMUL)
    writer = np.full(len(program.stores) + 1, -1)
    rows = is_backward[program.writes.op]
    writer[program.writes.storage[rows]] = program.writes.op[rows]
    reader = np.full(len(program.stores) + 1, -1)
    rows = is_backward[program.reads.op]
    reader[program.reads.storage[rows]] = program.reads.op[rows]
    return writer[gradient_of[weight[forward]]], reader[weight[forward]]


def _other_operand(program: Program, ops: IntArray, known: IntArray) -> IntArray:
    """The last activation that each op reads beside the operand ``known``."""
    known_of = np.full(len(program.ops), -1)
    known_of[ops] = known
    reads = program.reads
    rows = np.flatnonzero(
        (known_of[reads.op] >= 0)
        & (reads.storage != known_of[reads.op])
        & (program.stores.owner[reads.storage] != Owner.PARAMETER)
    )
    other = np.full(len(program.ops), -1)
    other[reads.op[rows]] = reads.storage[rows]
    return np.where(other[ops] >= 0, other[ops], known)


def _draft_inputs(
    draft: Draft, layers: _Layers, inputs: AdapterInputs
) -> tuple[IntArray, IntArray]:
    """Storage that each adapter reads, and those whose format no precision changes."""
    if inputs == "shared":
        return layers.source, np.zeros(0, dtype=np.int64)
    deep = _product(layers.experts, layers.rows, layers.inputs)
    once = constant(np.ones(len(deep)))
    copies = draft.stores(deep, is_wide=True)
    written = [(copies, deep)]
    if inputs == "dropped":
        masks = draft.stores(deep, is_wide=True, element_bytes=1.0)
        written.append((masks, deep))
        draft.ops(
            OpKind.ELEMENTWISE, layers.to_weight, 0.45, dims=row_dims(deep, once, 2.0),
            reads=[(masks, deep)], writes=[],
        )  # fmt: skip
    draft.ops(
        OpKind.CAST, layers.op, 0.05, dims=row_dims(deep, once, 1.0),
        reads=[(layers.source, deep)], writes=written,
    )  # fmt: skip
    return copies, copies


def _with_fixed_formats(program: Program, storages: IntArray) -> Program:
    """Some storages in the format that they have, whatever the precision."""
    is_floating = program.stores.is_floating.copy()
    is_floating[storages] = False
    return replace(program, stores=replace(program.stores, is_floating=is_floating))


def _draft_forward(
    draft: Draft, layers: _Layers, rank: FloatArray, kept: tuple[IntArray, IntArray, IntArray]
) -> IntArray:
    down, up, seen = kept
    each, one = layers.experts, constant(np.ones(len(layers.op)))
    thin = _product(each, layers.rows, rank)
    wide = _product(each, layers.rows, layers.outputs)
    deep = _product(each, layers.rows, layers.inputs)
    down_size, up_size = _product(each, layers.inputs, rank), _product(each, rank, layers.outputs)
    hidden, added = draft.stores(thin, is_wide=False), draft.stores(wide, is_wide=False)
    draft.ops(
        OpKind.MATMUL, layers.op, 0.1, dims=matmul_dims(each, layers.rows, rank, layers.inputs),
        reads=[(seen, deep), (down, down_size)], writes=[(hidden, thin)],
    )  # fmt: skip
    draft.ops(
        OpKind.MATMUL, layers.op, 0.2, dims=matmul_dims(each, layers.rows, layers.outputs, rank),
        reads=[(hidden, thin), (up, up_size)], writes=[(added, wide)],
    )  # fmt: skip
    draft.ops(
        OpKind.ELEMENTWISE, layers.op, 0.3, dims=row_dims(wide, one, 2.0),
        reads=[(layers.result, wide), (added, wide)], writes=[(layers.result, wide)],
    )  # fmt: skip
    return hidden


def _draft_backward(
    draft: Draft, layers: _Layers, rank: FloatArray,
    kept: tuple[IntArray, IntArray, IntArray, IntArray],
) -> tuple[IntArray, IntArray]:  # fmt: skip
    """Products of the adapter's backward pass; the gradients of ``down`` and of ``up``."""
    down, up, hidden, seen = kept
    one, beside = constant(np.ones(len(layers.op))), layers.to_weight
    each = layers.experts
    thin = _product(each, layers.rows, rank)
    wide = _product(each, layers.rows, layers.outputs)
    deep = _product(each, layers.rows, layers.inputs)
    down_size, up_size = _product(each, layers.inputs, rank), _product(each, rank, layers.outputs)
    to_hidden = draft.stores(thin, is_wide=False)
    to_down, to_up = draft.gradients(down_size), draft.gradients(up_size)
    draft.ops(
        OpKind.MATMUL, beside, 0.1, dims=matmul_dims(each, rank, layers.outputs, layers.rows),
        reads=[(hidden, thin), (layers.upstream, wide)], writes=[(to_up, up_size)],
    )  # fmt: skip
    draft.ops(
        OpKind.MATMUL, beside, 0.2, dims=matmul_dims(each, layers.rows, rank, layers.outputs),
        reads=[(layers.upstream, wide), (up, up_size)], writes=[(to_hidden, thin)],
    )  # fmt: skip
    draft.ops(
        OpKind.MATMUL, beside, 0.3, dims=matmul_dims(each, layers.inputs, rank, layers.rows),
        reads=[(seen, deep), (to_hidden, thin)], writes=[(to_down, down_size)],
    )  # fmt: skip
    rows = np.flatnonzero(layers.to_source >= 0)
    to_source = draft.program.written(layers.to_source[rows], 0)
    added = draft.stores(deep[rows], is_wide=False)
    draft.ops(
        OpKind.MATMUL, beside[rows], 0.4,
        dims=matmul_dims(each[rows], layers.rows[rows], layers.inputs[rows], rank[rows]),
        reads=[(to_hidden[rows], thin[rows]), (down[rows], down_size[rows])],
        writes=[(added, deep[rows])],
    )  # fmt: skip
    draft.ops(
        OpKind.ELEMENTWISE, beside[rows], 0.45, dims=row_dims(deep[rows], one[rows], 2.0),
        reads=[(to_source, deep[rows]), (added, deep[rows])], writes=[(to_source, deep[rows])],
    )  # fmt: skip
    return to_down, to_up


def _draft_lengths(
    draft: Draft, layers: _Layers, rank: FloatArray, kept: tuple[IntArray, IntArray]
) -> tuple[IntArray, IntArray]:
    """The lengths of columns that DoRA learns, and their gradients."""
    (down, up), each, op = kept, layers.experts, layers.op
    one, beside = constant(np.ones(len(op))), layers.to_weight
    weight = _weight_read(draft.program)[op]
    wide = _product(each, layers.rows, layers.outputs)
    square, columns = _product(each, layers.inputs, layers.outputs), multiply(each, layers.outputs)
    lengths, to_lengths = draft.parameters(columns), draft.gradients(columns)
    whole = draft.stores(square, is_wide=False)
    base, added = draft.stores(wide, is_wide=False), draft.stores(wide, is_wide=False)
    draft.ops(
        OpKind.MATMUL, op, 0.21, dims=matmul_dims(each, layers.inputs, layers.outputs, rank),
        reads=[(down, _product(each, layers.inputs, rank)),
               (up, _product(each, rank, layers.outputs))],
        writes=[(whole, square)],
    )  # fmt: skip
    for offset, reads, writes, size in (
        (0.22, [(weight, square), (whole, square)], [(whole, square)], square),
        (0.23, [(whole, square)], [], square),
        (0.31, [(layers.result, wide)], [(base, wide), (added, wide)], wide),
        (0.32, [(base, wide), (lengths, columns)], [(layers.result, wide)], wide),
        (0.33, [(added, wide)], [(layers.result, wide)], wide),
    ):
        draft.ops(OpKind.ELEMENTWISE, op, offset, dims=row_dims(size, one, 2.0),
                  reads=reads, writes=writes)  # fmt: skip
    for offset, store in ((0.06, base), (0.07, added)):
        draft.ops(
            OpKind.ELEMENTWISE, beside, offset, dims=row_dims(wide, one, 2.0),
            reads=[(layers.upstream, wide), (store, wide)], writes=[(to_lengths, columns)],
        )  # fmt: skip
    return lengths, to_lengths


def _factor_sizes(layers: _Layers, rank: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Elements of the first and the second factor of each layer's adapter."""
    each = layers.experts
    return _product(each, layers.inputs, rank), _product(each, rank, layers.outputs)


def _draft_whole(
    draft: Draft, layers: _Layers, rank: FloatArray, factors: Sequence[IntArray], seen: IntArray
) -> IntArray:
    """A matrix of each weight's shape, of two pairs of factors, and its product with the input."""
    op, one = layers.op, constant(np.ones(len(layers.op)))
    each, rows, inputs, outputs = layers.experts, layers.rows, layers.inputs, layers.outputs
    square, wide = _product(each, inputs, outputs), _product(each, rows, outputs)
    whole, added = draft.stores(square, is_wide=False), draft.stores(wide, is_wide=False)
    halves = [
        _draft_half(draft, layers, rank, factors[pair : pair + 2], op, 0.1 + 0.005 * pair)
        for pair in (0, 2)
    ]
    draft.ops(
        OpKind.ELEMENTWISE, op, 0.13, dims=row_dims(square, one, 2.0),
        reads=[(half, square) for half in halves], writes=[(whole, square)],
    )  # fmt: skip
    draft.ops(
        OpKind.ELEMENTWISE, op, 0.14, dims=row_dims(square, one, 1.0),
        reads=[(whole, square)], writes=[(whole, square)],
    )  # fmt: skip
    draft.ops(
        OpKind.MATMUL, op, 0.2, dims=matmul_dims(each, rows, outputs, inputs),
        reads=[(seen, _product(each, rows, inputs)), (whole, square)], writes=[(added, wide)],
    )  # fmt: skip
    draft.ops(
        OpKind.ELEMENTWISE, op, 0.3, dims=row_dims(wide, one, 2.0),
        reads=[(layers.result, wide), (added, wide)], writes=[(layers.result, wide)],
    )  # fmt: skip
    return whole


def _draft_half(
    draft: Draft, layers: _Layers, rank: FloatArray, pair: Sequence[IntArray],
    beside: IntArray, offset: float,
) -> IntArray:  # fmt: skip
    """The product of one pair of factors."""
    each, inputs, outputs = layers.experts, layers.inputs, layers.outputs
    square = _product(each, inputs, outputs)
    half = draft.stores(square, is_wide=False)
    draft.ops(
        OpKind.MATMUL, beside, offset, dims=matmul_dims(each, inputs, outputs, rank),
        reads=list(zip(pair, _factor_sizes(layers, rank), strict=True)), writes=[(half, square)],
    )  # fmt: skip
    return half


def _draft_whole_backward(
    draft: Draft, layers: _Layers, rank: FloatArray, factors: Sequence[IntArray],
    kept: tuple[IntArray, IntArray],
) -> tuple[list[IntArray], IntArray]:  # fmt: skip
    """Gradients of the factors, and the gradient of the output in their format."""
    (whole, seen), beside = kept, layers.to_weight
    one = constant(np.ones(len(beside)))
    each, rows, inputs, outputs = layers.experts, layers.rows, layers.inputs, layers.outputs
    square, sizes = _product(each, inputs, outputs), _factor_sizes(layers, rank)
    wide, deep = _product(each, rows, outputs), _product(each, rows, inputs)
    upstream = draft.stores(wide, is_wide=False)
    to_whole, to_half = (draft.stores(square, is_wide=False) for _ in range(2))
    draft.ops(
        OpKind.CAST, beside, 0.1, dims=row_dims(wide, one, 1.0),
        reads=[(layers.upstream, wide)], writes=[(upstream, wide)],
    )  # fmt: skip
    draft.ops(
        OpKind.MATMUL, beside, 0.11, dims=matmul_dims(each, inputs, outputs, rows),
        reads=[(seen, deep), (upstream, wide)], writes=[(to_whole, square)],
    )  # fmt: skip
    made = []
    for pair, offset in ((0, 0.12), (2, 0.2)):
        mine, others = factors[pair : pair + 2], factors[2 - pair : 4 - pair]
        half = _draft_half(draft, layers, rank, others, beside, offset)
        draft.ops(
            OpKind.ELEMENTWISE, beside, offset + 0.01, dims=row_dims(square, one, 2.0),
            reads=[(to_whole, square), (half, square)], writes=[(to_half, square)],
        )  # fmt: skip
        shapes = ((inputs, rank, outputs), (rank, outputs, inputs))
        for number, (size, shape) in enumerate(zip(sizes, shapes, strict=True)):
            gradient = draft.gradients(size)
            draft.ops(
                OpKind.MATMUL, beside, offset + 0.02 * (1 + number),
                dims=matmul_dims(each, *shape),
                reads=[(to_half, square), (mine[1 - number], sizes[1 - number])],
                writes=[(gradient, size)],
            )  # fmt: skip
            made.append(gradient)
    _draft_to_source(draft, layers, upstream, whole)
    return made, upstream


def _draft_to_source(draft: Draft, layers: _Layers, upstream: IntArray, whole: IntArray) -> None:
    """What the added matrix hands back to the input, where anything asks for it."""
    at = np.flatnonzero(layers.to_source >= 0)
    beside, one = layers.to_weight[at], constant(np.ones(len(at)))
    each, rows = layers.experts[at], layers.rows[at]
    inputs, outputs = layers.inputs[at], layers.outputs[at]
    deep = _product(each, rows, inputs)
    to_source, added = (
        draft.program.written(layers.to_source[at], 0),
        draft.stores(deep, is_wide=False),
    )
    draft.ops(
        OpKind.MATMUL, beside, 0.4, dims=matmul_dims(each, rows, inputs, outputs),
        reads=[(upstream[at], _product(each, rows, outputs)),
               (whole[at], _product(each, inputs, outputs))],
        writes=[(added, deep)],
    )  # fmt: skip
    draft.ops(
        OpKind.ELEMENTWISE, beside, 0.45, dims=row_dims(deep, one, 2.0),
        reads=[(to_source, deep), (added, deep)], writes=[(to_source, deep)],
    )  # fmt: skip


def _draft_conversions(
    draft: Draft, layers: _Layers, seen: IntArray, inputs: AdapterInputs, ratio: float
) -> None:
    """Kernels that copy, scale and drop what a layer and its adapter hand each other.

    They work on what is there already, as far as the peak of memory goes.
    """
    ones = constant(np.ones(len(layers.op)))
    wide = _product(layers.experts, layers.rows, layers.outputs)
    deep = _product(layers.experts, layers.rows, layers.inputs)

    def moved(
        beside: IntArray, offset: float, store: IntArray, size: FloatArray, by: float
    ) -> None:
        """Ops that copy storages beside others."""
        draft.ops(
            OpKind.ELEMENTWISE, beside, offset, dims=row_dims(size, ones, 1.0),
            reads=[(store, by * size)], writes=[],
        )  # fmt: skip

    scale, convert = 2.0 * ratio, (1.0 + ratio) * (ratio > 1.0)
    moved(layers.op, 0.25, layers.result, wide, scale)
    moved(layers.to_weight, 0.01, layers.upstream, wide, scale)
    if convert:
        # The sum reads and writes the wider format, too.
        moved(layers.op, 0.35, layers.result, wide, convert + scale - 2.0)
        moved(layers.to_weight, 0.02, layers.upstream, wide, convert)
        moved(layers.to_weight, 0.03, layers.upstream, wide, convert)
        moved(layers.to_weight, 0.04, layers.upstream, deep, convert)
    if inputs == "dropped":
        moved(layers.op, 0.06, seen, deep, 2.0)
        moved(layers.to_weight, 0.05, layers.upstream, deep, scale)
