"""Fused attention."""

from __future__ import annotations

from dataclasses import replace

from paceline.model.graph import polynomial
from paceline.model.graph.graph import FloatArray, IntArray
from paceline.model.graph.kinds import OpKind
from paceline.model.graph.raw import RawPass
from paceline.model.ops.extents import extent, leading, no_dims
from paceline.model.ops.facts import KindFacts


def _attention_dims(raw: RawPass, rows: IntArray, _first: IntArray, _part: IntArray) -> FloatArray:
    query, key = raw.inputs.at(rows, 0), raw.inputs.at(rows, 1)
    dims = no_dims(len(rows))
    dims[:, 0] = leading(raw, query, 3)
    dims[:, 1] = extent(raw, query, -3)
    dims[:, 2] = extent(raw, key, -3)
    dims[:, 3] = extent(raw, query, -2)
    dims[:, 4] = extent(raw, key, -2)
    dims[:, 5] = extent(raw, query, -1)
    dims[:, 6, 0] = raw.attributes.at(rows, 0)
    dims[:, 7, 0] = raw.attributes.at(rows, 1)
    return dims


def _attention_flop(dims: FloatArray) -> FloatArray:
    """Two products over the whole square, causal or not, as `FlopCounterMode` counts them."""
    return 4 * polynomial.product(dims[:, [0, 1, 3, 4, 5]])


def _attention_backward_flop(dims: FloatArray) -> FloatArray:
    """Five products: the scores are computed again."""
    return 2.5 * _attention_flop(dims)


_FORWARD = KindFacts(
    kind=OpKind.ATTENTION,
    dims=(
        "batch", "q_heads", "kv_heads", "q_len", "kv_len", "head_size", "is_causal", "has_dropout",
    ),
    read_dims=_attention_dims,
    count_flop=_attention_flop,
    efficiency="attention",
    is_narrow=True,
    has_statistics=True,
    features="apart",
    feature_dims=("q_heads", "kv_heads"),
    sequence="looks",
    ring_tensors=2.0,
)  # fmt: skip
KINDS = (
    _FORWARD,
    replace(
        _FORWARD,
        kind=OpKind.ATTENTION_BACKWARD,
        count_flop=_attention_backward_flop,
        efficiency="attention_backward",
        backward_of=OpKind.ATTENTION,
        has_statistics=False,
        features="all",
        ring_tensors=4.0,
    ),
)
