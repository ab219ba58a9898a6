"""Context parallel as graph → graph: every rank has a part of each sequence, in all layers.

Only attention looks beyond a rank's part. *Ring*: keys and values travel round a ring of ranks
while each rank works on those that it has; parts are dealt out so that causal ranks have equal work
(first and last pieces together). *Gather*: the same ranks gather all keys and values before they
work, which nothing hides. *Ulysses*: before attention each rank hands its part of the tokens
to the ranks of their heads, after it the heads to the ranks of their tokens. Both multiply: the
heads of Ulysses within each part of the ring.

Sources:
    Liu, Zaharia, Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context",
    arXiv 2310.01889; NVIDIA Megatron-LM, context parallel (two pieces per rank); Jacobs et al.,
    "DeepSpeed Ulysses", arXiv 2309.14509, section 3; Fang and Zhao, "USP: A Unified Sequence
    Parallelism Approach for Long Context Generative AI", arXiv 2405.07719 (both at once);
    Grattafiori et al., "The Llama 3 Herd of Models", arXiv 2407.21783, section 3.3.2 (gathered).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.model.graph.distinct import among, distinct
from paceline.model.graph.graph import EXPONENTS, FloatArray, Graph, OpKind, Phase
from paceline.model.graph.polynomial import product
from paceline.model.graph.program import Program
from paceline.model.ops.facts import KindFacts
from paceline.model.ops.registry import FACTS, dims_of, kinds_where
from paceline.parallelism.split.calls import Call, CallTable
from paceline.parallelism.split.shape import SplitShape

#: Ops that walk the sequence in order, or across the borders of parts.
_IN_ORDER = kinds_where(lambda facts: facts.sequence == "in_order")
_HAS_SEQ = np.array([seq > 0 for _, seq in EXPONENTS])
_ATTENTION = kinds_where(lambda facts: facts.sequence == "looks")
_BATCH, _HEADS, _KEY_HEADS, _QUERIES, _KEYS, _HEAD_SIZE, _CAUSAL = dims_of(
    OpKind.ATTENTION, "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_size", "is_causal"
)


def split_sequence(graph: Graph, ring: int, ulysses: int = 1) -> Graph:
    """What one of ``ring · ulysses`` context-parallel ranks runs: same ops, its part of sequences.

    Whatever grows with the sequence shrinks by the degree. Of scores, which grow with its square,
    the queries are split and the keys stay whole, or are those that a causal mask leaves to a rank
    of the ring in the mean; ranks of Ulysses have some heads of all queries of their part.

    Args:
        graph: One pass of a model.
        ring: Parts that go round; 1 of both returns the graph as it is.
        ulysses: Ranks that share the heads of a part.

    Raises:
        InvalidInputError: The model has no sequence, or no attention that can look beyond a part,
            or walks the sequence in order; or its heads do not divide.
    """
    degree = ring * ulysses
    if degree == 1:
        return graph
    check_sequence(graph)
    share = np.where(_HAS_SEQ, 1.0 / degree, 1.0)
    tensors, storages, ops = graph.tensors, graph.storages, graph.ops
    dims, seen_frac = _split_dims(graph, share), _seen_frac(ops.kind, ops.dims, ring)
    dims[among(ops.kind, _ATTENTION), _KEYS] *= seen_frac[among(ops.kind, _ATTENTION), None]
    looking = looking_ops(graph)
    _check_heads(graph, looking, ulysses)
    dims[looking, _QUERIES] *= ulysses
    dims[looking, _HEADS] /= ulysses
    dims[looking, _KEY_HEADS] /= ulysses
    return replace(
        graph,
        ops=replace(ops, flop=ops.flop * share * seen_frac[:, None], dims=dims),
        tensors=replace(tensors, elements=tensors.elements * share),
        storages=replace(storages, elements=storages.elements * share),
    )


def has_free_length(graph: Graph) -> bool:
    """Whether ranks share sequences of any length: a model with one, or a training step.

    Inference of a model whose items have a fixed number of tokens is split by `tokens`.
    """
    return graph.variables[1] != "" or bool((graph.ops.phase == Phase.BACKWARD).any())


def sequence_calls(graph: Graph, shape: SplitShape) -> CallTable:
    """What ranks exchange that have a part of each sequence.

    In forward a rank of the ring sends the keys and values that it has just used; in backward their
    gradients travel as well. Where keys are gathered, all of both are, in backward once more, and
    their gradients are summed and scattered. Ranks of Ulysses hand over queries, keys, values and
    outputs; in backward their gradients.

    Args:
        graph: What a rank runs, split by `split_sequence`, and over tensor ranks if there are any.
        shape: How ranks share sequences.
    """
    calls: list[Call] = []
    ring, ulysses = shape.ring, shape.ulysses
    if shape.sequence == 1:
        return CallTable.of(calls)
    looking = looking_ops(graph)
    dims, seen_frac = graph.ops.dims[looking], _seen_frac(graph.ops.kind, graph.ops.dims, ring)
    keys_of = _elements(dims, _KEY_HEADS, _KEYS) / seen_frac[looking, None] / ring
    queries_of = _elements(dims, _HEADS, _QUERIES)
    for op, keys, queries in zip(looking.tolist(), keys_of, queries_of, strict=True):
        if ulysses > 1:
            calls += [
                (op, "ulysses", "all_to_all", n, np.nan) for n in (queries, keys, keys, queries)
            ]
        if ring > 1:
            facts = FACTS[OpKind(graph.ops.kind[op])]
            calls += (
                _gathers(op, facts, keys * ring)
                if shape.gathers_keys
                else [(op, "ring", "send_recv", facts.ring_tensors * keys, np.nan)]
            )
    return CallTable.of(calls)


def _gathers(op: int, facts: KindFacts, keys: FloatArray) -> list[Call]:
    """Keys and values of all ranks, and in backward their gradients, as large."""
    calls: list[Call] = [(op, "ring", "all_gather", 2.0 * keys, np.nan)]
    if facts.backward_of is not None:
        calls.append((op, "ring", "reduce_scatter", 2.0 * keys, np.nan))
    return calls


def _elements(dims: FloatArray, heads: int, length: int) -> FloatArray:
    """Of queries or keys that a rank holds in each op of attention, (num_ops, 9)."""
    return product(dims[:, [_BATCH, heads, length, _HEAD_SIZE]])


def looking_ops(graph: Graph) -> npt.NDArray[np.int64]:
    """Ops of attention whose keys follow the sequence, so that a rank looks beyond its part."""
    attention = np.flatnonzero(among(graph.ops.kind, _ATTENTION))
    return attention[_follows(graph.ops.dims[attention, _KEYS])]


def shared_heads(graph: Graph) -> int:
    """Heads that every degree of Ulysses must divide: a common divisor over all attention."""
    heads = graph.ops.dims[looking_ops(graph)][:, [_HEADS, _KEY_HEADS], 0]
    return int(np.gcd.reduce(heads.astype(np.int64), axis=None))


def _check_heads(graph: Graph, looking: npt.NDArray[np.int64], ulysses: int) -> None:
    for heads in distinct(graph.ops.dims[looking][:, [_HEADS, _KEY_HEADS], 0]).tolist():
        if heads % ulysses:
            raise InvalidInputError(
                f"{ulysses} ranks of Ulysses do not divide {heads:.0f} heads of {graph.name}",
                hint="choose a degree that divides the heads, and a ring for the rest",
            )


def _seen_frac(kind: npt.NDArray[np.integer], dims: FloatArray, ring: int) -> FloatArray:
    """Share of the keys that a rank's queries meet in the mean, the masked ones of its own too.

    A rank's last piece is masked within itself alone, as in a prefix with as many queries, so that
    of all keys half, and half a part, are met.
    """
    is_causal = among(kind, _ATTENTION) & (dims[:, _CAUSAL, 0] > 0)
    return np.where(is_causal, (1.0 + 1.0 / ring) / 2.0, 1.0)


def _split_dims(graph: Graph, share: FloatArray) -> FloatArray:
    """Shape numbers with the first dim that follows the sequence split: rows, queries."""
    dims = graph.ops.dims.copy()
    follows = _follows(dims)
    op = np.flatnonzero(follows.any(axis=1))
    first = follows[op].argmax(axis=1)
    dims[op, first] *= share
    return dims


def _follows(dims: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether each shape number depends on the sequence length."""
    columns = np.flatnonzero(_HAS_SEQ).tolist()
    return np.asarray(np.logical_or.reduce([dims[..., column] != 0 for column in columns]))


def check_shared(graph: Graph, shape: SplitShape, seq: float, *, name: str) -> None:
    """Raise unless ranks can share the sequences of a model at a length.

    Args:
        graph: One pass of it.
        shape: How they share it.
        seq: Tokens of a sequence.
        name: Of the strategy, for the message.

    Raises:
        InvalidInputError: The model's sequences cannot be shared, or do not divide; or a training
            step would be split by guidance. Tokens of a fixed number are looked at when they are
            split.
    """
    if shape.guidance > 1 and (graph.ops.phase == Phase.BACKWARD).any():
        raise InvalidInputError(
            f"`{name}` runs the halves of guidance apart, and a training step has none",
            hint="give each device its own items (`dp`)",
        )
    if not has_free_length(graph):
        return
    if shape.sequence > 1:
        check_sequence(graph)
        _check_heads(graph, looking_ops(graph), shape.ulysses)
    if seq % shape.num_pieces:
        raise InvalidInputError(
            f"`{name}` cuts each sequence into {shape.num_pieces} pieces; {seq:.0f} does not "
            "divide",
            hint=f"take a sequence length that is a multiple of {shape.num_pieces}, or smaller "
            "degrees",
        )


def check_sequence(graph: Graph) -> None:
    """Raise unless ranks can share the sequences of a model.

    Raises:
        InvalidInputError: The model has no sequence, or no attention that can pass keys on, or
            walks the sequence in order.
    """

    def refuse(why: str) -> InvalidInputError:
        """The error, with why."""
        return InvalidInputError(
            f"context parallel cannot split {graph.name}: {why}",
            hint="use `tp` with `+sp`, or `dp`, for this model",
        )

    is_attention = graph.ops.kind == OpKind.ATTENTION
    follows = _follows(graph.ops.dims)
    if graph.variables[1] != "seq":
        raise refuse("it has no sequence")
    if not follows[is_attention, _KEYS].any():
        raise refuse("it has no fused attention over the sequence")
    if (among(graph.ops.kind, _IN_ORDER) & follows.any(axis=1)).any():
        raise refuse("some of its ops walk the sequence in order")


def check_ring(program: Program) -> None:
    """Raise unless attention runs in kernels that can take keys part by part.

    Raises:
        InvalidInputError: Attention is made of products of all scores.
    """
    if not among(program.ops.kind, _ATTENTION).any():
        raise InvalidInputError(
            "context parallel passes keys from rank to rank, and this attention has all scores at "
            "once",
            hint="take `attention=flash` with `cp`, or split with `tp` or `dp`",
        )
