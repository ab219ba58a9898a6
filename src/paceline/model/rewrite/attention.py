"""Attention without a fused kernel: two batched products with a softmax between them.

The graph holds attention as one op that keeps what FlashAttention keeps. The *math* kernel makes
contiguous copies of scaled queries and keys, writes the whole square of scores, and keeps for the
backward pass the probabilities, and with dropout its mask and its result. *Eager* is what models of
Hugging Face write out themselves: *math* with a softmax in FP32, whose result is kept beside its
narrow copy. *Memory-efficient* keeps what flash keeps, in other kernels.

No fused kernel of PyTorch makes the gradient of what is added to scores: attention whose bias is
trained (T5, SAM) is *math*, unless a vendor's library runs it (Transformer Engine returns that
gradient). Backward sums the gradient of the scores over the batch. An H200 ran 24 of the 36
attention layers of T5 so (``benchmarks/gpu_asked.jsonl``).

Sources:
    aten/src/ATen/native/transformers/attention.cpp, `_scaled_dot_product_attention_math`;
    huggingface/transformers, models/llama/modeling_llama.py, `eager_attention_forward`: softmax
    with ``dtype=torch.float32``, then ``.to(query.dtype)`` (recalled 2026-11-27).

Shape legend: N attention ops.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

import numpy as np

from paceline.model.graph.costs import AttentionKernels, Configuration
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, IntArray, OpKind, Owner
from paceline.model.graph.polynomial import constant, divide, product
from paceline.model.graph.program import Accesses, BoolArray, Program
from paceline.model.ops.optable import variants
from paceline.model.rewrite.draft import Draft, matmul_dims, row_dims
from paceline.values import dataclass

#: Ways that write the whole square of scores.
UNFUSED: tuple[AttentionKernels, ...] = ("math", "eager")
_FP32_BYTES = 4.0
_NUM_OPERANDS = 3
_BATCH, _Q_HEADS, _KV_HEADS, _Q_LEN, _KV_LEN, _HEAD, _CAUSAL, _DROPOUT = range(8)


class Bias(IntEnum):
    """What is added to scores: nothing, what is not trained, or what is, for all items or each."""

    NONE = 0
    CONSTANT = 1
    SUMMED = 2
    WHOLE = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Attention:
    """N attention ops with their sizes and the storages that they keep.

    Attributes:
        op: Forward op, (N,).
        backward: Backward op, (N,); -1 where there is none.
        heads: Batch × query heads, (N, 9).
        q_len: Query length, (N, 9).
        kv_len: Key length, (N, 9).
        head: Head size, (N, 9).
    """

    op: IntArray
    backward: IntArray
    heads: FloatArray
    q_len: FloatArray
    kv_len: FloatArray
    head: FloatArray

    def square(self) -> FloatArray:
        """Elements of the scores."""
        return product(np.stack((self.heads, self.q_len, self.kv_len), axis=1))

    def rows(self) -> FloatArray:
        """Rows of the scores."""
        return product(np.stack((self.heads, self.q_len), axis=1))

    def queries(self) -> FloatArray:
        """Elements of queries, or of the output."""
        return product(np.stack((self.heads, self.q_len, self.head), axis=1))

    def keys(self) -> FloatArray:
        """Elements of keys or values, repeated for every query head."""
        return product(np.stack((self.heads, self.kv_len, self.head), axis=1))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kept:
    """What the forward pass keeps, (N,) storages each."""

    query: IntArray
    key: IntArray
    value: IntArray
    probability: IntArray
    dropped: IntArray
    mask: IntArray | None


def with_attention_kernel(program: Program, configuration: Configuration) -> Program:
    """``program`` with attention as the configuration's kernel computes it.

    On a CPU the fused kernel has no dropout, so that attention with dropout is *math* there.
    """
    while (ops := _alike(program, _unfused_ops(program, configuration))).size:
        program = _unfused(program, ops).ordered()
    return _with_variant(program, configuration.attention)


def _unfused_ops(program: Program, configuration: Configuration) -> IntArray:
    """Attention ops that no fused kernel runs."""
    ops = np.flatnonzero(program.ops.kind == OpKind.ATTENTION)
    if configuration.attention in UNFUSED:
        return ops
    is_unfused = _bias_of(program, ops) >= Bias.SUMMED
    is_unfused &= configuration.attention != "vendor"
    if configuration.platform == "cpu":
        is_unfused |= _has_dropout(program, ops)
    return ops[is_unfused]


def _alike(program: Program, ops: IntArray) -> IntArray:
    """Those of some attention ops that are written out as the first of them is."""
    kind = np.stack((_bias_of(program, ops), _has_dropout(program, ops)))
    return np.asarray(ops[(kind == kind[:, :1]).all(axis=0)])


def _has_dropout(program: Program, ops: IntArray) -> BoolArray:
    return np.asarray(program.dims[program.ops.dims[ops], _DROPOUT, 0] > 0)


def _bias_of(program: Program, ops: IntArray) -> IntArray:
    """`Bias` of each attention op: it reads a fourth operand, whose gradient may be wanted."""
    count = len(program.ops)
    read, written = (
        np.bincount(one.op, minlength=count) for one in (program.reads, program.writes)
    )
    found = np.where(read[ops] > _NUM_OPERANDS, Bias.CONSTANT, Bias.NONE).astype(np.int64)
    backward = _backward_of(program, ops)
    trained = np.flatnonzero((backward >= 0) & (written[backward] > _NUM_OPERANDS))
    gradient = program.written(backward[trained], _NUM_OPERANDS)
    is_wanted = np.isin(gradient, program.reads.storage)
    trained, gradient = trained[is_wanted], gradient[is_wanted]
    is_whole = program.stores.elements[gradient] == _sizes(program, ops[trained]).square()
    found[trained] = np.where(is_whole.all(axis=1), Bias.WHOLE, Bias.SUMMED)
    return found


def with_wide_softmax(program: Program) -> Program:
    """``program`` with softmax of scores in FP32, between narrow scores and probabilities.

    Args:
        program: At its precision; where that is FP32 nothing changes.
    """
    ops = np.flatnonzero(program.ops.kind == OpKind.SOFTMAX)
    narrow = program.written(ops, 0)
    weighs = among(program.ops.kind[program.reads.op], (OpKind.MATMUL, OpKind.DROPOUT))
    is_narrow = program.stores.element_bytes[narrow] < _FP32_BYTES
    is_narrow &= np.isin(narrow, program.reads.storage[weighs])
    ops, narrow = ops[is_narrow], narrow[is_narrow]
    if not ops.size:
        return program
    draft, size = Draft(program), program.stores.elements[narrow]
    wide = draft.stores(size, is_wide=True)
    draft.ops(
        OpKind.COPY, ops, 0.01, dims=row_dims(size, constant(np.ones(len(ops))), 1.0),
        reads=[(wide, size)], writes=[(narrow, size)],
    )  # fmt: skip
    place = np.arange(len(program.stores) + len(ops))
    place[narrow] = wide
    drafted = draft.joined()
    wanted = among(drafted.ops.kind, (OpKind.SOFTMAX, OpKind.SOFTMAX_BACKWARD))
    moved = replace(
        drafted,
        reads=_moved(drafted.reads, wanted, place),
        writes=_moved(drafted.writes, wanted, place),
    )
    first, last = moved.first_and_last_use()
    birth, death = moved.stores.birth.copy(), moved.stores.death.copy()
    both = np.concatenate((narrow, wide))
    birth[both], death[both] = first[both], last[both]
    return replace(moved, stores=replace(moved.stores, birth=birth, death=death)).ordered()


def _moved(accesses: Accesses, wanted: BoolArray, place: IntArray) -> Accesses:
    storage = np.where(wanted[accesses.op], place[accesses.storage], accesses.storage)
    return replace(accesses, storage=storage)


def _with_variant(program: Program, kernels: AttentionKernels) -> Program:
    """Fused attention of the kernel family; the graph's own is flash."""
    if kernels != "memory-efficient":
        return program
    is_fused = among(program.ops.kind, (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD))
    variant = np.where(is_fused, variants()["ATTENTION", kernels], program.ops.variant)
    return replace(program, ops=replace(program.ops, variant=variant))


def _unfused(program: Program, ops: IntArray) -> Program:
    """``program`` with attention ops that are alike written out."""
    one, bias = _sizes(program, ops), Bias(_bias_of(program, ops[:1])[0])
    draft = Draft(program)
    kept = _draft_forward(draft, program, one, bias)
    if (one.backward >= 0).all():
        _draft_backward(draft, program, one, kept, bias)
    before = program
    program = _without_fused(draft.joined(), one)
    return _with_shorter_lives(before, program)


def _sizes(program: Program, ops: IntArray) -> _Attention:
    dims = program.dims[program.ops.dims[ops]]
    return _Attention(
        op=ops,
        backward=_backward_of(program, ops),
        heads=product(dims[:, [_BATCH, _Q_HEADS]]),
        q_len=dims[:, _Q_LEN],
        kv_len=dims[:, _KV_LEN],
        head=dims[:, _HEAD],
    )


def _backward_of(program: Program, ops: IntArray) -> IntArray:
    """The backward op of each: it reads the statistics that the forward op writes second, if any.

    Attention that stands alone writes none, and has no backward op: -1.
    """
    is_backward = program.ops.kind[program.reads.op] == OpKind.ATTENTION_BACKWARD
    reader = np.full(len(program.stores), -1)
    reader[program.reads.storage[is_backward]] = program.reads.op[is_backward]
    has_statistics = np.bincount(program.writes.op, minlength=len(program.ops))[ops] > 1
    backward = np.full(len(ops), -1)
    backward[has_statistics] = reader[program.written(ops[has_statistics], 1)]
    return backward


def _draft_forward(draft: Draft, program: Program, one: _Attention, bias: Bias) -> _Kept:
    query, key, value = (program.read(one.op, position) for position in range(3))
    queries, keys, square = one.queries(), one.keys(), one.square()
    own_query, own_key = draft.stores(queries, is_wide=False), draft.stores(keys, is_wide=False)
    own_value = draft.stores(keys, is_wide=False)
    places = ((query, own_query, queries), (key, own_key, keys), (value, own_value, keys))
    for step, (source, copied, size) in enumerate(places):
        draft.ops(
            OpKind.COPY, one.op, -0.40 + 0.02 * step, dims=row_dims(size, _ones(one), 1.0),
            reads=[(source, size)], writes=[(copied, size)],
        )  # fmt: skip
    scores = draft.stores(square, is_wide=False)
    draft.ops(
        OpKind.MATMUL, one.op, -0.30,
        dims=matmul_dims(one.heads, one.q_len, one.kv_len, one.head),
        reads=[(own_query, queries), (own_key, keys)], writes=[(scores, square)],
    )  # fmt: skip
    if bias != Bias.NONE:
        added = program.read(one.op, _NUM_OPERANDS)
        draft.ops(
            OpKind.ELEMENTWISE, one.op, -0.25, dims=row_dims(square, _ones(one), 2.0),
            reads=[(scores, square), (added, program.stores.elements[added])],
            writes=[(scores, square)],
        )  # fmt: skip
    probability = draft.stores(square, is_wide=True)
    draft.ops(
        OpKind.SOFTMAX, one.op, -0.20, dims=row_dims(one.rows(), one.kv_len, 1.0),
        reads=[(scores, square)], writes=[(probability, square)],
    )  # fmt: skip
    dropped, mask = probability, None
    if _has_dropout(program, one.op).any():
        dropped = draft.stores(square, is_wide=True)
        mask = draft.stores(square, is_wide=True, element_bytes=1.0)
        draft.ops(
            OpKind.DROPOUT, one.op, -0.10, dims=row_dims(square, _ones(one), 1.0),
            reads=[(probability, square)], writes=[(dropped, square), (mask, square)],
        )  # fmt: skip
    draft.ops(
        OpKind.MATMUL, one.op, 0.0,
        dims=matmul_dims(one.heads, one.q_len, one.head, one.kv_len),
        reads=[(dropped, square), (own_value, keys)],
        writes=[(program.written(one.op, 0), queries)],
    )  # fmt: skip
    return _Kept(
        query=own_query, key=own_key, value=own_value, probability=probability, dropped=dropped,
        mask=mask,
    )  # fmt: skip


def _draft_backward(
    draft: Draft, program: Program, one: _Attention, kept: _Kept, bias: Bias
) -> None:
    queries, keys, square = one.queries(), one.keys(), one.square()
    gradient = program.read(one.backward, 3)
    to_query, to_key, to_value = (program.written(one.backward, n) for n in range(3))
    draft.ops(
        OpKind.MATMUL, one.backward, -0.40,
        dims=matmul_dims(one.heads, one.kv_len, one.head, one.q_len),
        reads=[(kept.dropped, square), (gradient, queries)], writes=[(to_value, keys)],
    )  # fmt: skip
    to_dropped = draft.stores(square, is_wide=False)
    draft.ops(
        OpKind.MATMUL, one.backward, -0.35,
        dims=matmul_dims(one.heads, one.q_len, one.kv_len, one.head),
        reads=[(gradient, queries), (kept.value, keys)], writes=[(to_dropped, square)],
    )  # fmt: skip
    to_probability = to_dropped
    if kept.mask is not None:
        to_probability = draft.stores(square, is_wide=True)
        draft.ops(
            OpKind.DROPOUT_BACKWARD, one.backward, -0.30,
            dims=row_dims(square, _ones(one), 2.0),
            reads=[(to_dropped, square), (kept.mask, square)],
            writes=[(to_probability, square)],
        )  # fmt: skip
    to_scores = (
        program.written(one.backward, _NUM_OPERANDS)
        if bias == Bias.WHOLE
        else draft.stores(square, is_wide=True)
    )
    draft.ops(
        OpKind.SOFTMAX_BACKWARD, one.backward, -0.25, dims=row_dims(one.rows(), one.kv_len, 2.0),
        reads=[(to_probability, square), (kept.probability, square)],
        writes=[(to_scores, square)],
    )  # fmt: skip
    draft.ops(
        OpKind.MATMUL, one.backward, -0.10,
        dims=matmul_dims(one.heads, one.q_len, one.head, one.kv_len),
        reads=[(to_scores, square), (kept.key, keys)], writes=[(to_query, queries)],
    )  # fmt: skip
    draft.ops(
        OpKind.MATMUL, one.backward, 0.0,
        dims=matmul_dims(one.heads, one.kv_len, one.head, one.q_len),
        reads=[(to_scores, square), (kept.query, queries)], writes=[(to_key, keys)],
    )  # fmt: skip
    if bias == Bias.SUMMED:
        to_bias = program.written(one.backward, _NUM_OPERANDS)
        size = program.stores.elements[to_bias]
        draft.ops(
            OpKind.REDUCE, one.backward, 0.01, dims=row_dims(size, divide(square, size), 1.0),
            reads=[(to_scores, square)], writes=[(to_bias, size)],
        )  # fmt: skip


def _without_fused(program: Program, one: _Attention) -> Program:
    """Drop the fused ops and their statistics; what they wrote is now born with its first use."""
    dropped = np.concatenate((one.op, one.backward[one.backward >= 0]))
    statistics = program.written(one.op, 1)
    elements = program.stores.elements.copy()
    elements[statistics] = 0.0
    born = np.isin(program.stores.birth, dropped)
    program = program.without_ops(dropped)
    first, _ = program.first_and_last_use()
    birth = np.where(born & (first >= 0), first, program.stores.birth)
    stores = replace(program.stores, elements=elements, birth=birth)
    return replace(program, stores=stores)


def _with_shorter_lives(before: Program, after: Program) -> Program:
    """What was kept for the fused backward only now dies with the last use that is left."""
    count = len(before.stores)
    is_held: BoolArray = before.stores.death != before.last_use()
    is_held |= before.stores.owner != Owner.ACTIVATION
    last = after.first_and_last_use()[1]
    death = after.stores.death.copy()
    moved = np.flatnonzero(~is_held & (last[:count] >= 0))
    death[moved] = last[moved]
    return replace(after, stores=replace(after.stores, death=death))


def _ones(one: _Attention) -> FloatArray:
    return constant(np.ones(len(one.op)))
