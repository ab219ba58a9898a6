"""Tokens of a fixed number on ranks that share them: pictures and videos of a denoiser.

Legend: a rank has ``1 / (ring · ulysses)`` of the picture's tokens in all layers and all weights.
Ulysses: before attention each rank hands its tokens to the ranks of their heads, after it the heads
to the ranks of their tokens. Ring: keys and values go round while each rank works on those that it
has. Text that does not divide is copied to all ranks, and joins attention on each. Text encoders
and decoders of pictures are no part of the graph. Sequences of a length that is free are split in
`sequence`.

Sources:
    Jacobs et al., "DeepSpeed Ulysses", arXiv 2309.14509; Liu, Zaharia, Abbeel, "Ring Attention with
    Blockwise Transformers for Near-Infinite Context", arXiv 2310.01889; Fang et al., "xDiT: an
    Inference Engine for Diffusion Transformers (DiTs) with Massive Parallelism", arXiv 2411.01738,
    and its code: ``split_text_embed_in_sp`` (text is split where it divides),
    ``hybrid/attn_layer.py`` (queries of copied text travel with those of the picture),
    ``xdit_sana_ring_flash_attn_forward`` (linear attention sees all keys, ring or not); Li et al.,
    "DistriFusion", arXiv 2402.19481 (filters take the border rows of their neighbours). What a host
    issues besides: feifeibear/long-context-attention, ``comm/all_to_all.py`` and ``ring/utils.py``
    (read 2026-11-22), which xDiT's attention of several ranks calls.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.errors import InvalidInputError
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import EXPONENTS, FloatArray, Graph, IntArray, OpKind, Owner
from paceline.model.ops.registry import dims_of
from paceline.parallelism.split.calls import Call, CallTable
from paceline.parallelism.split.roles import OpView, view_ops
from paceline.parallelism.split.shape import SplitShape
from paceline.values import dataclass

_ONE_ITEM = EXPONENTS.index((1, 0))
_BATCH, _M, _N, _K = dims_of(OpKind.MATMUL, "batch", "m", "n", "k")
_Q_HEADS, _KV_HEADS, _Q_LEN, _KV_LEN, _HEAD = dims_of(
    OpKind.ATTENTION, "q_heads", "kv_heads", "q_len", "kv_len", "head_size"
)
_CHANNELS, _FILTER, _OUT_H, _OUT_W = dims_of(OpKind.CONV, "c", "r", "out_h", "out_w")
_HEIGHT, _WIDTH = dims_of(OpKind.CONV, "h", "w")
#: Queries, keys, values and outputs change places; keys and values go round.
_CHANGE_PLACES, _GO_ROUND = 4, 2
#: Copies of each tensor that changes places, made whether other ranks share the heads or not;
#: outputs are widened and narrowed again.
_COPIES, _CASTS = 2, 2
#: Of each further round: sends and receives of two tensors, attention, and joining its outputs,
#: which TorchScript makes one kernel.
_ROUND_OPS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Tokens of one item, as attention meets them.

    Attributes:
        picture: Of the picture or video.
        text: That joins the picture's in attention; 0 where text is only looked at.
        items: Rows of a batch for each item: 2 with guidance.
    """

    picture: float
    text: float
    items: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenPart:
    """A pass as a rank runs it that has a part of the tokens.

    Attributes:
        graph: Same ops; their sizes are this rank's.
        calls: What ranks exchange.
        attention: Ops that attend over the whole picture.
        host_ops: What the host issues beyond the ops of the graph.
    """

    graph: Graph
    calls: CallTable
    attention: IntArray
    host_ops: int


def split_tokens(graph: Graph, shape: SplitShape, streams: Streams) -> TokenPart:
    """What one of the ranks runs that share the tokens of each item.

    Args:
        graph: An inference; with guidance on two ranks, one half of it.
        shape: How ranks share the tokens.
        streams: Tokens of the whole inference.

    Raises:
        InvalidInputError: Heads or tokens do not divide.
    """
    split = _Split(graph, shape, streams)
    return TokenPart(
        graph=split.graph(),
        calls=CallTable.of(split.calls),
        attention=np.array(split.attention, dtype=np.int64),
        host_ops=split.num_exchanging * issued_around_attention(shape),
    )


def issued_around_attention(shape: SplitShape) -> int:
    """Ops that the host issues for one attention of several ranks beyond that of one.

    >>> issued_around_attention(SplitShape(ulysses=2))
    14
    >>> issued_around_attention(SplitShape(guidance=2))
    0
    """
    if shape.sequence == 1:
        return 0
    each = _COPIES + (1 if shape.ulysses > 1 else 0)
    return _CHANGE_PLACES * each + _CASTS + _ROUND_OPS * (shape.ring - 1)


def gathered_results(graph: Graph) -> CallTable:
    """What the last op makes, put together from the ranks that have its parts."""
    ops = graph.ops
    last = ops.output_tensor[ops.output_start[-2] : ops.output_start[-1]]
    elements = np.asarray(graph.tensors.elements[last].sum(axis=0))
    return CallTable.of([(len(ops.kind) - 1, "items", "all_gather", elements, np.nan)])


def streams_of(graph: Graph) -> Streams:
    """Tokens of a denoiser's picture and of the text beside it.

    Attention over more tokens than the picture has is over the picture and the text, which go
    through layers of their own somewhere.

    Raises:
        InvalidInputError: Nothing attends over tokens.
    """
    attention = [op for op in view_ops(graph) if op.kind == OpKind.ATTENTION]
    if not attention:
        raise InvalidInputError(
            f"{graph.name} has no attention whose tokens ranks could share",
            hint="give each device its own items (`dp`)",
        )
    longest = max(attention, key=lambda op: op.dims[_Q_LEN])
    items = float(graph.ops.dims[longest.index, _BATCH, _ONE_ITEM])
    tokens = longest.dims[_Q_LEN]
    rows = graph.ops.dims[graph.ops.kind == OpKind.MATMUL][:, _M, _ONE_ITEM]
    of_layers = set(distinct(rows / items).round(6).tolist())
    beside = (n for n in sorted(of_layers) if 1.0 < n < tokens / 2 and tokens - n in of_layers)
    text = next(beside, 0.0)
    return Streams(picture=tokens - text, text=text, items=items)


class _Split:
    """Follows the tokens through the ops: which share of each op and storage is a rank's."""

    def __init__(self, graph: Graph, ranks: SplitShape, streams: Streams) -> None:
        self.whole, self.ranks, self.streams = graph, ranks, streams
        self.items = streams.items / ranks.guidance
        if streams.picture % ranks.sequence:
            raise InvalidInputError(
                f"{ranks.sequence} ranks do not divide the {streams.picture:.0f} tokens of "
                f"{graph.name}",
                hint="choose degrees whose product divides the tokens",
            )
        divides = streams.text % ranks.sequence == 0
        self.share = 1.0 / ranks.sequence
        self.text_share = self.share if divides else 1.0
        self.of_storage: dict[int, float] = {}
        self.of_tensor = np.ones(len(graph.tensors.storage))
        self.dims, self.flop = graph.ops.dims.copy(), graph.ops.flop.copy()
        self.calls: list[Call] = []
        self.attention: list[int] = []
        self.num_exchanging = 0
        for op in view_ops(graph):
            self._step(op)

    def graph(self) -> Graph:
        """The graph with a rank's sizes."""
        whole = self.whole
        elements = whole.storages.elements.copy()
        for storage, share in self.of_storage.items():
            elements[storage] *= share
        return replace(
            whole,
            ops=replace(whole.ops, dims=self.dims, flop=self.flop),
            tensors=replace(
                whole.tensors, elements=whole.tensors.elements * self.of_tensor[:, None]
            ),
            storages=replace(whole.storages, elements=elements),
        )

    def _step(self, op: OpView) -> None:
        if op.kind == OpKind.ATTENTION:
            made = self._attention(op)
        elif op.kind == OpKind.MATMUL and op.weight is None:
            made = self._linear_attention(op)
        elif op.kind == OpKind.CONV:
            made = self._filter(op)
        else:
            made = self._rows(op)
            self.dims[op.index, _M if op.kind == OpKind.MATMUL else 0] *= made
            self.flop[op.index] *= made
        self._write(op, made)

    def _write(self, op: OpView, share: float) -> None:
        ops, owner = self.whole.ops, self.whole.storages.owner
        self.of_storage.update(
            {s: share for s in op.outputs if owner[s] != Owner.PARAMETER and share != 1.0}
        )
        read = ops.input_tensor[ops.input_start[op.index] : ops.input_start[op.index + 1]]
        written = ops.output_tensor[ops.output_start[op.index] : ops.output_start[op.index + 1]]
        for tensor in (*read, *written):
            storage = int(self.whole.tensors.storage[tensor])
            self.of_tensor[tensor] = self.of_storage.get(storage, 1.0)

    def _rows(self, op: OpView) -> float:
        """A rank's share of the rows of an op: of its tokens, or of what its inputs are."""
        if op.kind == OpKind.MATMUL:
            of_tokens = self._of_tokens(self.whole.ops.dims[op.index, _M, _ONE_ITEM] / self.items)
            if of_tokens is not None:
                return of_tokens
        return self._of_inputs(op)

    def _of_tokens(self, tokens: float) -> float | None:
        streams = self.streams
        mixed = streams.picture * self.share + streams.text * self.text_share
        known = {
            streams.picture: self.share,
            streams.text: self.text_share,
            streams.picture + streams.text: mixed / (streams.picture + streams.text),
        }
        return known.get(round(float(tokens), 6))

    def _of_inputs(self, op: OpView) -> float:
        """Mean share of what an op reads, weighted by size."""
        total = sum(elements for _, elements in op.inputs)
        if not total:
            return 1.0
        return sum(self.of_storage.get(s, 1.0) * elements for s, elements in op.inputs) / total

    def _attention(self, op: OpView) -> float:
        """Over the picture: heads of Ulysses, queries of the ring, all keys; else own queries."""
        dims, ranks, streams = self.dims[op.index], self.ranks, self.streams
        queries, keys = float(dims[_Q_LEN, 0]), float(dims[_KV_LEN, 0])
        if queries < streams.picture or keys < streams.picture:
            share = self._of_tokens(queries) or 1.0
            dims[_Q_LEN] *= share
            self.flop[op.index] *= share
            return share
        self._check_heads(op)
        self.attention.append(op.index)
        text = queries - streams.picture
        # Copied text is asked for once by each of the ranks whose heads are put together.
        own = (
            (queries / ranks.sequence)
            if self.text_share < 1.0 or not text
            else (streams.picture / ranks.sequence + text)
        )
        asked = own * ranks.ulysses
        dims[[_Q_HEADS, _KV_HEADS]] /= ranks.ulysses
        dims[_Q_LEN] *= asked / queries
        share = own / queries
        self.flop[op.index] *= share
        width = self.whole.ops.dims[op.index, _Q_HEADS, 0] * dims[_HEAD, 0]
        travelling = own if self.text_share < 1.0 else streams.picture / ranks.sequence
        self._exchange(op.index, dims[_BATCH] * width, own=own, travelling=travelling)
        return share

    def _exchange(self, op: int, of_token: FloatArray, *, own: float, travelling: float) -> None:
        """What one attention sends: ``of_token`` elements for each token."""
        ranks = self.ranks
        self.num_exchanging += 1
        if ranks.ulysses > 1:
            # Queries and outputs are of all own tokens, keys and values of those that are split.
            for tokens in (own, travelling, travelling, own):
                self.calls.append((op, "ulysses", "all_to_all", of_token * tokens, np.nan))
        if ranks.ring > 1:
            message = _GO_ROUND * of_token * travelling
            self.calls.append((op, "ring", "send_recv", message, np.nan))

    def _check_heads(self, op: OpView) -> None:
        heads = op.dims[_Q_HEADS]
        if heads % self.ranks.ulysses:
            raise InvalidInputError(
                f"{self.ranks.ulysses} ranks of Ulysses do not divide {heads:.0f} heads of "
                f"{self.whole.name}",
                hint="choose a degree that divides the heads, and a ring for the rest",
            )

    def _linear_attention(self, op: OpView) -> float:
        """Keys with values, then with queries, by head; else what its inputs are."""
        dims, ulysses = self.dims[op.index], self.ranks.ulysses
        sums, asks = (dims[column, 0] == self.streams.picture for column in (_K, _N))
        if not (sums or asks):
            share = self._of_inputs(op)
            dims[_M] *= share
            self.flop[op.index] *= share
            return share
        dims[_BATCH] /= ulysses
        self.flop[op.index] /= ulysses
        if sums:
            # Rows of values are those of their heads and one that counts.
            of_token = self.whole.ops.dims[op.index, _BATCH] * dims[_N, 0]
            own = self.streams.picture * self.share
            self._exchange(op.index, of_token, own=own, travelling=own)
        return self.share if asks else 1.0 / ulysses

    def _filter(self, op: OpView) -> float:
        """Rows of the picture, with those that a wide filter sees of the neighbours."""
        dims = self.dims[op.index]
        share = self._of_inputs(op)
        if dims[_OUT_H, 0] * dims[_OUT_W, 0] == self.streams.picture:
            share = self.share
        dims[[_HEIGHT, _OUT_H]] *= share
        self.flop[op.index] *= share
        if share < 1.0 and dims[_FILTER, 0] > 1.0:
            border = (dims[_FILTER, 0] - 1.0) * dims[_WIDTH, 0] * dims[_CHANNELS, 0]
            self.calls.append((op.index, "sequence", "send_recv", dims[0] * border, np.nan))
        return share
