"""Encoder–decoders that are trained on targets of another length than their sources.

A traced step has one length, for what is read and for what is written. Which of both a tensor has
follows from the graph: what the decoder is given has the target's length, and so has all that is
made of it; keys and values of cross-attention are made of the encoder's output alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from paceline.model.graph.graph import EXPONENTS, FloatArray, Graph, IntArray, OpKind
from paceline.values import dataclass

#: Lengths that an op or a tensor may have: the source's, the target's, or one of each.
_NONE, _SOURCE, _TARGET, _BOTH = range(4)
#: Shape number of attention that is the length of its queries.
_QUERY_DIM = 3
#: Where attention reads what is added to its scores, and where its backward does.
_BIAS_INPUT = {OpKind.ATTENTION: 3, OpKind.ATTENTION_BACKWARD: 4}
_DEPENDS = np.array([power > 0 for _, power in EXPONENTS])


@lru_cache(maxsize=8)
def has_targets(graph: Graph) -> bool:
    """Whether a graph has a decoder that looks at what an encoder makes of sources of any length.

    Recordings are no such sources: they have one length, and the target has the other.
    """
    if not any("encoder" in path.split(".") for path in graph.modules):
        return False
    return bool((_lengths(graph).of_op == _BOTH).any())


def with_target(graph: Graph, num_tokens: int) -> Graph:
    """The same step with targets of so many tokens, whatever the length of the source.

    Args:
        graph: A training step whose sources and targets have one length.
        num_tokens: Of the target.
    """
    found, ops, storages = _lengths(graph), graph.ops, graph.storages
    of_tensor = found.of_storage[graph.tensors.storage]
    dims = _fixed(ops.dims, found.of_op[:, None], num_tokens)
    is_cross = found.of_op == _BOTH
    is_cross &= np.isin(ops.kind, list(_BIAS_INPUT))
    dims[is_cross] = ops.dims[is_cross]
    dims[is_cross, _QUERY_DIM] = _fixed(ops.dims[is_cross, _QUERY_DIM], _TARGET, num_tokens)
    return replace(
        graph,
        ops=replace(ops, dims=dims, flop=_fixed(ops.flop, found.of_op, num_tokens)),
        tensors=replace(
            graph.tensors, elements=_fixed(graph.tensors.elements, of_tensor, num_tokens)
        ),
        storages=replace(
            storages, elements=_fixed(storages.elements, found.of_storage, num_tokens)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lengths:
    """Whose length ops (num_ops,) and storages (num_storages,) have."""

    of_op: IntArray
    of_storage: IntArray


def _lengths(graph: Graph) -> _Lengths:
    ops = graph.ops
    depends = np.asarray(graph.storages.elements[:, _DEPENDS].any(axis=1))
    of_op = np.full(len(ops.kind), _NONE)
    of_storage = np.full(len(depends), _NONE)
    for op, (read, made) in enumerate(_used(graph)):
        bias = _BIAS_INPUT.get(OpKind(int(ops.kind[op])))
        if bias is not None:
            query, key = of_storage[read[:2]].tolist()
            is_cross = (query, key) == (_TARGET, _SOURCE)
            of_op[op] = _BOTH if is_cross else query
            # Backward makes gradients of queries, keys and values, and of what is added.
            of_made = (query, key, key, of_op[op]) if bias > 3 else (query,) * len(made)
            of_storage[made] = of_made[: len(made)]
            is_added = is_cross and len(read) > bias
            of_storage[read[bias : bias + is_added]] = _BOTH
            continue
        known = int(of_storage[read].max(initial=_NONE))
        of_op[op] = known or _of_module(graph.modules[ops.module[op]])
        for some in (read, made):
            is_open = np.asarray(depends[some] & (of_storage[some] == _NONE))
            of_storage[some[is_open]] = of_op[op]
    for op, (_, made) in enumerate(_used(graph)):
        if (of_storage[made] == _BOTH).any() and of_op[op] == _TARGET:
            of_op[op] = _BOTH
    return _Lengths(of_op=of_op, of_storage=np.where(depends, of_storage, _NONE))


def _used(graph: Graph) -> Iterator[tuple[IntArray, IntArray]]:
    """Storages that each op reads, and those that it writes."""
    ops, storage = graph.ops, graph.tensors.storage.astype(np.int64)
    for op in range(len(ops.kind)):
        read = ops.input_tensor[ops.input_start[op] : ops.input_start[op + 1]]
        made = ops.output_tensor[ops.output_start[op] : ops.output_start[op + 1]]
        yield storage[read], storage[made]


def _of_module(path: str) -> int:
    """Whose length an op has that reads nothing of a known one."""
    parts = [part for part in path.split(".") if part in ("encoder", "decoder")]
    return _SOURCE if parts[:1] == ["encoder"] else _TARGET


def _fixed(coefficients: FloatArray, length: IntArray | int, num_tokens: int) -> FloatArray:
    """Polynomials with the target's length for all lengths, or of two lengths for one."""
    found = coefficients.copy()
    lengths = np.broadcast_to(np.asarray(length), coefficients.shape[:-1])
    for column, (batch, power) in enumerate(EXPONENTS):
        for kind, taken in ((_TARGET, power), (_BOTH, power - 1)):
            if taken < 1:
                continue
            here = np.where(lengths == kind, coefficients[..., column], 0.0)
            found[..., column] -= here
            found[..., EXPONENTS.index((batch, power - taken))] += here * num_tokens**taken
    return found
