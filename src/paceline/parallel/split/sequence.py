"""Context parallel as graph → graph: every rank has a part of each sequence, in all layers.

Only attention looks beyond a rank's part: keys and values travel round a ring of ranks while each
rank works on those it has. Parts are dealt out so that causal ranks have equal work (first and
last pieces together).

Sources:
    Liu, Zaharia, Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context",
    arXiv 2310.01889; NVIDIA Megatron-LM, context parallel (two pieces per rank).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.parallel.collectives import RankGroup, send_recv_s
from paceline.predict import Points
from paceline.trace.graph import (
    DIM_NAMES,
    EXPONENTS,
    FloatArray,
    Graph,
    IntArray,
    OpKind,
    monomials,
)
from paceline.trace.program import Program

#: Ops that walk the sequence in order, or across the borders of parts.
_IN_ORDER = (
    OpKind.RECURRENT, OpKind.RECURRENT_BACKWARD, OpKind.SCAN, OpKind.FFT,
    OpKind.CONV, OpKind.CONV_BACKWARD_INPUT, OpKind.CONV_BACKWARD_WEIGHT,
)  # fmt: skip
_HAS_SEQ = np.array([seq > 0 for _, seq in EXPONENTS])
_ATTENTION = (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD)
_KEYS = DIM_NAMES[OpKind.ATTENTION].index("kv_len")
_CAUSAL = DIM_NAMES[OpKind.ATTENTION].index("is_causal")
#: Tensors as large as the keys that an op hands to the next rank.
_COPIES = np.zeros(len(OpKind))
_COPIES[[OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD]] = 2.0, 4.0
#: Columns whose product is the number of elements of the keys.
_KEY_DIMS = [
    DIM_NAMES[OpKind.ATTENTION].index(name) for name in ("batch", "kv_heads", "kv_len", "head_size")
]


@lru_cache(maxsize=8)
def split_sequence(graph: Graph, degree: int) -> Graph:
    """What one of ``degree`` context-parallel ranks runs: same ops, its part of the sequence.

    Whatever grows with the sequence shrinks by the degree. Of scores, which grow with its square,
    the queries are split and the keys stay whole, or are those that a causal mask leaves to a rank
    in the mean.

    Args:
        graph: One pass of a model.
        degree: Ranks that share each sequence; 1 returns the graph as it is.

    Raises:
        InvalidInputError: The model has no sequence, or no attention that can pass keys on, or
            walks the sequence in order.
    """
    if degree == 1:
        return graph
    check_sequence(graph)
    share = np.where(_HAS_SEQ, 1.0 / degree, 1.0)
    tensors, storages = graph.tensors, graph.storages
    seen_frac = _seen_frac(graph.ops.kind, graph.ops.dims, degree)
    dims, attention = _split_dims(graph, share), np.isin(graph.ops.kind, _ATTENTION)
    dims[attention, _KEYS] *= seen_frac[attention, None]
    return replace(
        graph,
        ops=replace(graph.ops, flop=graph.ops.flop * share * seen_frac[:, None], dims=dims),
        tensors=replace(tensors, elements=tensors.elements * share),
        storages=replace(storages, elements=storages.elements * share),
    )


def _seen_frac(kind: npt.NDArray[np.integer], dims: FloatArray, degree: int) -> FloatArray:
    """Share of the keys that a rank's queries meet in the mean, the masked ones of its own too.

    A rank's last piece is masked within itself alone, as in a prefix with as many queries, so that
    of all keys half, and half a part, are met.
    """
    is_causal = np.isin(kind, _ATTENTION) & (dims[:, _CAUSAL, 0] > 0)
    return np.where(is_causal, (1.0 + 1.0 / degree) / 2.0, 1.0)


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
    return np.asarray((dims[..., _HAS_SEQ] != 0).any(axis=-1))


def check_sequence(graph: Graph) -> None:
    """Raise unless ranks can share the sequences of a model.

    Args:
        graph: One pass of it.

    Raises:
        InvalidInputError: The model has no sequence, or no attention that can pass keys on, or
            walks the sequence in order.
    """

    def refuse(why: str) -> InvalidInputError:
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
    if (np.isin(graph.ops.kind, _IN_ORDER) & follows.any(axis=1)).any():
        raise refuse("some of its ops walk the sequence in order")


def ring_messages(
    program: Program, points: Points, degree: int, *, element_bytes: float
) -> tuple[IntArray, FloatArray]:
    """Ops that pass keys and values on, and the bytes of one of their ``degree - 1`` messages.

    In forward a rank sends the keys and values that it has just used; in backward their gradients
    travel as well.

    Args:
        program: What a rank runs, split by `split_sequence`.
        points: Microbatch sizes and whole sequence lengths.
        degree: Ranks of the ring.
        element_bytes: Of keys and values.

    Returns:
        Ops, (num_ring_ops,), and bytes, (num_points, num_ring_ops).
    """
    copies = _COPIES[program.ops.kind]
    op = np.flatnonzero(copies)
    op = op[_follows(program.dims[program.ops.dims[op]])[:, _KEYS]]
    dims, powers = program.dims[program.ops.dims[op]], monomials(points.batch, points.seq)
    seen_frac = _seen_frac(program.ops.kind[op], dims, degree)
    keys = (dims[:, _KEY_DIMS] @ powers.T).prod(axis=1).T / seen_frac
    return op, np.asarray(keys * copies[op] * element_bytes / degree)


def ring_s(
    program: Program, busy_s: FloatArray, points: Points, group: RankGroup, *, element_bytes: float
) -> FloatArray:
    """Seconds that passing keys and values on adds to each op, (num_points, num_ops).

    A message hides behind the attention of one part. Equal messages are evaluated once.

    Args:
        program: What a rank runs, split by `split_sequence`.
        busy_s: Device time of its ops, (num_points, num_ops).
        points: Microbatch sizes and whole sequence lengths.
        group: The ring, one element per point.
        element_bytes: Of keys and values.
    """
    added, degree = np.zeros_like(busy_s), int(group.num_ranks[0])
    if degree > 1:
        op, messages = ring_messages(program, points, degree, element_bytes=element_bytes)
        distinct, of_op = np.unique(messages, axis=1, return_inverse=True)
        send_s = np.array([send_recv_s(column, group) for column in distinct.T]).T[:, of_op.ravel()]
        added[:, op] = (degree - 1) * np.maximum(send_s - busy_s[:, op] / degree, 0.0)
    return added
