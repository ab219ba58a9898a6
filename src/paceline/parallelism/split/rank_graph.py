"""The one splitter: a graph and the shape of its split give what one rank runs, keeps and sends."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.model.graph.block_names import block_names, blocks_of_ops, is_numbered
from paceline.model.graph.costs import Configuration
from paceline.model.graph.distinct import among
from paceline.model.graph.graph import FloatArray, Graph, IntArray, OpKind, Phase, monomials
from paceline.model.graph.rows import only_ops
from paceline.model.ops.registry import dims_of
from paceline.parallelism.collectives.failures import straggler_factor
from paceline.parallelism.split.calls import CallTable, joined_calls
from paceline.parallelism.split.experts import (
    Experts,
    divided_experts,
    layers_of_experts,
    token_calls,
    with_part_of_experts,
    with_whole_experts,
)
from paceline.parallelism.split.guidance import half_of_guidance
from paceline.parallelism.split.heads import with_copied_heads
from paceline.parallelism.split.routing import Routing
from paceline.parallelism.split.sequence import (
    has_free_length,
    looking_ops,
    sequence_calls,
    split_sequence,
)
from paceline.parallelism.split.shape import SplitShape
from paceline.parallelism.split.tables import share_tables
from paceline.parallelism.split.tensor import split_tensor
from paceline.parallelism.split.tokens import TokenPart, gathered_results, split_tokens, streams_of
from paceline.parallelism.split.words import ends_in_words, gathered_words, with_split_words
from paceline.prediction.prediction import Points
from paceline.values import dataclass

(_M,) = dims_of(OpKind.MATMUL, "m")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankGraph:
    """A pass as one rank runs it.

    Attributes:
        shape: How ranks share the model.
        graph: Same ops; their sizes are this rank's.
        calls: What ranks exchange.
        is_expert: Storage holds experts, or tables, that are split between ranks with items of
            their own, their gradients or their optimizer state, (num_storages,).
        expert_products: Ops with such experts, or with those that a tensor rank keeps whole.
        routing: Where tokens go; None where they go nowhere.
        split_parameter_frac: Share of the parameters that tensor ranks split.
        attention: Ops of attention over tokens that ranks share, behind which a ring hides.
        host_ops: What the host issues beyond the ops of the graph.
    """

    shape: SplitShape
    graph: Graph
    calls: CallTable
    is_expert: npt.NDArray[np.bool_]
    expert_products: IntArray
    routing: Routing | None = None
    split_parameter_frac: float = 0.0
    attention: IntArray
    host_ops: int = 0

    def only(self, ops: IntArray) -> Graph:
        """A graph of nothing but some of the ops, as the rank runs them."""
        return only_ops(self.graph, ops)


@lru_cache(maxsize=3)
def split(graph: Graph, shape: SplitShape) -> RankGraph:
    """What one rank runs of a pass.

    Graphs are equal if they are the same object; the last few splits are kept.

    Args:
        graph: One pass of a model.
        shape: How ranks share it; of one rank the graph stays as it is.

    Raises:
        InvalidInputError: The model cannot be split so: its heads, widths, experts or tokens do not
            divide, or it has none.
    """
    part = _of_items(graph, shape)
    whole = with_copied_heads(part.graph, shape.tensor) if shape.copies_heads else part.graph
    tables = share_tables(whole, shape.experts) if shape.experts > 1 else None
    shares_experts = shape.expert_ranks > 1 and tables is None
    experts = divided_experts(whole, shape.expert_ranks) if shares_experts else None
    divided = whole if tables is None else tables.graph
    if experts is not None and not shape.whole_experts:
        divided = with_part_of_experts(whole, experts, shape.experts)
    mine = split_tensor(
        divided,
        shape.tensor,
        sequence_parallel=shape.sequence_parallel,
        splits_words=shape.splits_words,
        whole=None if shape.copies_heads else graph,
    )
    rank, calls = mine.graph, [part.calls, _tensor_sums(mine.calls, whole, experts, shape)]
    is_shared = np.zeros(len(graph.storages.owner), dtype=np.bool_)
    if tables is not None:
        is_shared = tables.is_shared
        calls.append(tables.calls)
    if experts is not None:
        is_shared = experts.is_expert
        if shape.whole_experts:
            rank = with_whole_experts(whole, rank, experts, shape)
        calls.append(token_calls(whole, experts, shape))
    if shape.gathers_words and shape.tensor > 1 and ends_in_words(whole):
        rank = with_split_words(whole, rank, shape.tensor)
        calls.append(gathered_words(whole))
    attention = part.attention
    if shape.sequence > 1 and has_free_length(whole):
        calls.append(sequence_calls(rank, shape))
        attention = looking_ops(whole)
    return RankGraph(
        shape=shape,
        graph=rank,
        calls=joined_calls(*calls),
        is_expert=is_shared,
        expert_products=np.zeros(0, dtype=np.int64) if experts is None else experts.products,
        routing=None if experts is None else experts.routing,
        split_parameter_frac=mine.split_parameter_frac,
        attention=attention,
        host_ops=part.host_ops,
    )


def _of_items(graph: Graph, shape: SplitShape) -> TokenPart:
    """A rank's part of the items: of their sequences, of their tokens, or one half of guidance."""
    alone = TokenPart(
        graph=graph, calls=CallTable.of([]), attention=np.zeros(0, dtype=np.int64), host_ops=0
    )
    if shape.sequence * shape.guidance == 1:
        return alone
    if has_free_length(graph) and shape.guidance == 1:
        # Tensor ranks of every degree share the parts of sequences, which are kept with a split.
        parts = SplitShape(ring=shape.ring, ulysses=shape.ulysses)
        if shape == parts:
            return replace(alone, graph=split_sequence(graph, shape.ring, shape.ulysses))
        return replace(alone, graph=split(graph, parts).graph)
    streams, mine = streams_of(graph), graph
    if shape.guidance > 1:
        mine = half_of_guidance(graph, shape.guidance, streams.items)
    part = split_tokens(mine, shape, streams)
    return replace(part, calls=joined_calls(part.calls, gathered_results(graph)))


def _tensor_sums(
    calls: CallTable, whole: Graph, experts: Experts | None, shape: SplitShape
) -> CallTable:
    """What tensor ranks add up, given how they share experts."""
    if shape.sums_layers_once:
        return _once_a_layer(calls, whole)
    if experts is not None and shape.whole_experts:
        return calls.take(~np.isin(calls.op, experts.products))
    return calls


def _once_a_layer(calls: CallTable, graph: Graph) -> CallTable:
    """One sum a layer for all its experts, as large as that of its attention.

    Each rank adds what the experts of a token made, and what shared ones did, before it sends.
    """
    layer = layers_of_experts(graph)[graph.ops.module[calls.op]]
    kept, elements = np.ones(len(calls), dtype=np.bool_), calls.elements.copy()
    summed: set[int] = set()
    whole = 0
    for row, number in enumerate(layer.tolist()):
        if number < 0:
            whole = row
            continue
        kept[row], elements[row] = number not in summed, calls.elements[whole]
        summed.add(number)
    return replace(calls, elements=elements).take(kept)


def calls_when_run(rank: RankGraph, configuration: Configuration) -> CallTable:
    """The calls of a rank; recomputing a block for its backward repeats those of its forward."""
    calls, graph = rank.calls, rank.graph
    again = calls.are_repeated(configuration.checkpointing)
    if not again.any() or not (graph.ops.phase == Phase.BACKWARD).any():
        return calls
    names = block_names(graph)
    block = blocks_of_ops(graph.modules, graph.ops.module.astype(np.int64), names)[calls.op]
    again &= np.array([is_numbered(name) for name in names])[block]
    again &= among(graph.ops.phase[calls.op], (Phase.FORWARD, Phase.LOSS))
    return calls.take(np.concatenate([np.arange(len(calls)), np.flatnonzero(again)]))


def busiest_frac(rank: RankGraph, points: Points) -> FloatArray:
    """How much more experts the busiest rank of a layer reads than the mean one, (num_points,).

    Any experts are as likely as others, so that by chance some rank has more of those that the
    tokens of a step reach, and the others wait for it. Of ``n`` experts of a rank each is reached
    with the chance ``p`` of all tokens of the step; the largest of R such counts lies so many
    deviations above the mean as that of R normal numbers (`straggler_factor`). Nothing where all
    are reached or no rank keeps whole experts.

    Args:
        rank: What a rank runs.
        points: Requests of a replica, and lengths.
    """
    if rank.routing is None or not len(rank.expert_products):
        return np.zeros(len(points.batch))
    routing, dims = rank.routing, rank.graph.ops.dims[rank.expert_products[0]]
    mine = routing.num_experts / rank.shape.expert_ranks
    share = routing.experts_per_token / routing.num_experts
    tokens = monomials(points.batch, points.seq) @ dims[_M] / share
    reached = 1.0 - (1.0 - share) ** tokens
    deviation = np.sqrt(reached * (1.0 - reached) / mine) / reached
    largest = straggler_factor(rank.shape.expert_ranks, 1.0) - 1.0
    return np.asarray(np.minimum(largest * deviation, 1.0 / reached - 1.0))
