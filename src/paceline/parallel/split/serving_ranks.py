"""What one rank of an inference engine runs of a pass, and what it exchanges with the others.

Every layer is shared by tensor ranks; ranks beyond the heads of keys and values keep copies of
them. Experts are split by their widths, as other layers, or, with expert parallel, each rank keeps
some of them whole. Routers are taken to be balanced: any experts are as likely as others, so that
by chance some rank has more of those that the tokens of a step reach, and the others wait for it.

Sources:
    vLLM, "Expert Parallel Deployment" (docs.vllm.ai, read 2026-11-22): expert ranks are the tensor
    ranks of all replicas, attention is split over the tensor ranks and copied for the replicas;
    the default backend (``allgather_reducescatter``) gathers the tokens of all replicas before the
    experts and scatters their sums after them. vLLM, ``fused_moe``: tensor ranks of one replica
    hold the same tokens, so that they only sum what their experts made, as without expert parallel.
    ``csrc/custom_all_reduce.cuh`` (sums of one or of two steps). vLLM, ``ParallelLMHead`` and
    ``LogitsProcessor`` (each tensor rank has a part of the vocabulary; logits are gathered).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

import numpy as np

from paceline.catalog import Link
from paceline.parallel.collectives import RankGroup, all_reduce_s, collective_s
from paceline.parallel.failures import straggler_factor
from paceline.parallel.links import COLLECTIVES, LinkTable
from paceline.parallel.split.experts import ExpertSplit, Routing, split_experts
from paceline.parallel.split.op_choice import only_ops
from paceline.parallel.split.tensor import (
    CollectiveCall,
    CollectiveTable,
    collective_table,
    split_graph,
)
from paceline.predict import Points
from paceline.shipped import shipped_rows
from paceline.trace.graph import DIM_NAMES, FloatArray, Graph, IntArray, OpKind, Owner, monomials

_KV_HEADS = DIM_NAMES[OpKind.ATTENTION].index("kv_heads")
#: Outputs of a product that are words, and not features.
_MIN_VOCABULARY = 4096
_BATCH, _M, _N, _K = (DIM_NAMES[OpKind.MATMUL].index(name) for name in ("batch", "m", "n", "k"))
#: Where the path of a module leaves its layer for its experts.
_EXPERTS = re.compile(r"\.(?:shared_)?experts?(?=\.|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRanks:
    """How devices share the model of an engine.

    Attributes:
        tensor: Ranks that hold the same requests and share every layer.
        replicas: Groups of those with requests of their own that share experts.
        splits_experts: Whether a rank keeps some of the experts whole.
    """

    tensor: int = 1
    replicas: int = 1
    splits_experts: bool = False

    @property
    def num_ranks(self) -> int:
        """Ranks that wait for each other."""
        return self.tensor * self.replicas

    @property
    def num_sharing(self) -> int:
        """Ranks that hold the same requests."""
        return self.tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankPass:
    """A pass as one rank runs it.

    Attributes:
        graph: Same ops; their sizes are this rank's.
        sums: What tensor ranks add up, and the logits that they gather.
        tokens: What replicas hand to their experts and get back.
        ranks: How devices share the model.
        experts: Products with the experts of a rank; none where they are split by widths.
        routing: Where tokens go; None where no rank keeps whole experts.
    """

    graph: Graph
    sums: CollectiveTable
    tokens: CollectiveTable
    ranks: ServedRanks
    experts: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    routing: Routing | None = None


@lru_cache(maxsize=8)
def rank_pass(graph: Graph, ranks: ServedRanks) -> RankPass:
    """What one rank runs of a pass.

    Args:
        graph: A pass of a model.
        ranks: How devices share it; of one rank the graph stays as it is.

    Raises:
        InvalidInputError: The model cannot be split so many ways, or has no such experts.
    """
    none = collective_table([])
    if ranks.num_ranks == 1:
        return RankPass(graph=graph, sums=none, tokens=none, ranks=ranks)
    whole = _with_copied_heads(graph, ranks.tensor)
    split = split_graph(whole, ranks.tensor)
    sums = _without_partial_sums(split.collectives, whole)
    mine, tokens, products, routing = split.graph, none, np.zeros(0, dtype=np.int64), None
    if ranks.splits_experts:
        experts = split_experts(whole, ranks.num_ranks)
        products, routing = np.flatnonzero(experts.is_product), experts.routing
        mine = _with_whole_experts(whole, mine, experts, ranks)
        tokens = collective_table(_exchanged_tokens(whole, experts, ranks))
    if ranks.tensor > 1 and _ends_in_words(whole):
        mine = _with_split_words(whole, mine, ranks.tensor)
        sums = _joined(sums, _gathered_words(whole))
    return RankPass(
        graph=mine, sums=sums, tokens=tokens, ranks=ranks, experts=products, routing=routing
    )


def experts_alone(one: RankPass) -> Graph:
    """A graph of nothing but the products with a rank's whole experts."""
    return only_ops(one.graph, one.experts)


def busiest_frac(one: RankPass, points: Points) -> FloatArray:
    """How much more experts the busiest rank of a layer reads than the mean one, (num_points,).

    Of ``n`` experts of a rank each is reached with the chance ``p`` of all tokens of the step; the
    largest of R such counts lies so many deviations above the mean as that of R normal numbers
    (`straggler_factor`). Nothing where all are reached or no rank keeps whole experts.

    Args:
        one: The pass.
        points: Requests of a replica, and lengths.
    """
    if one.routing is None or not len(one.experts):
        return np.zeros(len(points.batch))
    routing, dims = one.routing, one.graph.ops.dims[one.experts[0]]
    mine = routing.num_experts / one.ranks.num_ranks
    share = routing.experts_per_token / routing.num_experts
    tokens = monomials(points.batch, points.seq) @ dims[_M] / share
    reached = 1.0 - (1.0 - share) ** tokens
    deviation = np.sqrt(reached * (1.0 - reached) / mine) / reached
    largest = straggler_factor(one.ranks.num_ranks, 1.0) - 1.0
    return np.asarray(np.minimum(largest * deviation, 1.0 / reached - 1.0))


def exchange_s(one: RankPass, points: Points, link: Link | None, width: float) -> FloatArray:
    """Seconds of everything that ranks exchange in a pass; equal messages are evaluated once.

    Args:
        one: The pass.
        points: Requests of a replica, and lengths.
        link: Between ranks, of one node; None where it is unknown.
        width: Bytes of an element.
    """
    powers = monomials(points.batch, points.seq)
    total = np.zeros(len(powers))
    for calls, num_ranks in ((one.sums, one.ranks.tensor), (one.tokens, one.ranks.replicas)):
        for name, elements, repeats in _distinct(calls):
            message = powers @ elements * width
            total += repeats * _call_s(name, message, num_ranks, link)
    return total


def _distinct(calls: CollectiveTable) -> list[tuple[int, FloatArray, int]]:
    """Collective, elements and number of the calls that differ."""
    rows = np.column_stack((calls.name.astype(np.float64), calls.elements))
    sizes, count = np.unique(rows, axis=0, return_counts=True)
    return [(int(size[0]), size[1:], int(n)) for size, n in zip(sizes, count, strict=True)]


def _call_s(name: int, message_bytes: FloatArray, num_ranks: int, link: Link | None) -> FloatArray:
    collective = COLLECTIVES[name]
    if collective == "all_reduce":
        return engine_all_reduce_s(message_bytes, num_ranks, link)
    return collective_s(collective, message_bytes, _group(message_bytes, num_ranks, link))


def _group(message_bytes: FloatArray, num_ranks: int, link: Link | None) -> RankGroup:
    table = LinkTable.from_links([link])
    return RankGroup.of(np.full(len(message_bytes), float(num_ranks)), num_ranks, table, table)


def engine_all_reduce_s(message_bytes: FloatArray, num_ranks: int, link: Link | None) -> FloatArray:
    """Seconds of the fastest of an engine's own sums and the library's.

    Small messages are read from all ranks at once, larger ones part by part. Where no engine was
    measured on the link, the library's sum is taken.

    Args:
        message_bytes: What each rank adds.
        num_ranks: Ranks of one node.
        link: Between them.
    """
    best = all_reduce_s(message_bytes, _group(message_bytes, num_ranks, link))
    known = _engine_sums().get((link.kind, link.bytes_per_s)) if link else None
    if known is None:
        return best
    others = num_ranks - 1
    direct = known["direct_s"] + others * message_bytes / (
        known["peak_bytes_per_s"] * known["direct_frac"]
    )
    parts = 2.0 * others / num_ranks * message_bytes
    split = known["split_s"] + parts / (known["peak_bytes_per_s"] * known["split_frac"])
    return np.minimum(best, np.minimum(direct, split) + others * known["rank_s"])


@cache
def _engine_sums() -> dict[tuple[str, float], dict[str, float]]:
    """Constants by kind and peak of the link."""
    return {
        (row["kind"], float(row["peak_bytes_per_s"])): {
            name: float(value) for name, value in row.items() if name not in ("kind", "source")
        }
        for row in shipped_rows("parallel", "engine_all_reduce.csv")
    }


def _with_copied_heads(graph: Graph, num_ranks: int) -> Graph:
    """The graph with as many heads of keys and values as ranks, where it has fewer."""
    ops = graph.ops
    few = np.flatnonzero((ops.kind == OpKind.ATTENTION) & (ops.dims[:, _KV_HEADS, 0] < num_ranks))
    if not few.size:
        return graph
    dims, elements = ops.dims.copy(), graph.tensors.elements.copy()
    for op in few:
        copies = num_ranks / dims[op, _KV_HEADS, 0]
        dims[op, _KV_HEADS] *= copies
        elements[ops.input_tensor[ops.input_start[op] + 1 : ops.input_start[op + 1]]] *= copies
    return replace(
        graph, ops=replace(ops, dims=dims), tensors=replace(graph.tensors, elements=elements)
    )


def _without_partial_sums(calls: CollectiveTable, graph: Graph) -> CollectiveTable:
    """One sum a layer for all its experts, as large as that of its attention.

    Each rank adds what the experts of a token made, and what shared ones did, before it sends.
    """
    modules = [graph.modules[m] for m in graph.ops.module[calls.op]]
    kept, elements = np.ones(len(modules), dtype=np.bool_), calls.elements.copy()
    summed: set[str] = set()
    whole = 0
    for row, module in enumerate(modules):
        layer, *experts = _EXPERTS.split(module, maxsplit=1)
        if not experts:
            whole = row
            continue
        kept[row], elements[row] = layer not in summed, calls.elements[whole]
        summed.add(layer)
    return replace(calls, elements=elements).take(kept)


def _ends_in_words(graph: Graph) -> bool:
    """Whether the last op of a pass is the product that makes logits."""
    return bool(graph.ops.kind[-1] == OpKind.MATMUL and graph.ops.dims[-1, _N, 0] > _MIN_VOCABULARY)


def _with_split_words(whole: Graph, split: Graph, num_ranks: int) -> Graph:
    """A rank's graph with its part of the vocabulary at the end, unless it has it by its table."""
    if split.ops.dims[-1, _N, 0] < whole.ops.dims[-1, _N, 0]:
        return split
    ops = split.ops
    dims, flop = ops.dims.copy(), ops.flop.copy()
    dims[-1, _N] /= num_ranks
    flop[-1] /= num_ranks
    weights = [
        t
        for t in ops.input_tensor[ops.input_start[-2] :]
        if split.storages.owner[split.tensors.storage[t]] == Owner.PARAMETER
    ]
    shared = np.zeros(len(split.storages.owner), dtype=np.bool_)
    written = ops.output_tensor[ops.output_start[-2] :]
    shared[split.tensors.storage[[*weights, *written]]] = True
    share = np.where(shared, 1.0 / num_ranks, 1.0)[:, None]
    return replace(
        split,
        ops=replace(ops, dims=dims, flop=flop),
        storages=replace(split.storages, elements=split.storages.elements * share),
        tensors=replace(
            split.tensors, elements=split.tensors.elements * share[split.tensors.storage]
        ),
    )


def _gathered_words(whole: Graph) -> CollectiveTable:
    """Logits of every request, from the ranks that have the words."""
    dims = whole.ops.dims[-1]
    return collective_table(
        [(len(whole.ops.kind) - 1, "all_gather", dims[_M] * dims[_N, 0], np.nan)]
    )


def _joined(first: CollectiveTable, second: CollectiveTable) -> CollectiveTable:
    return CollectiveTable(
        op=np.concatenate((first.op, second.op)),
        name=np.concatenate((first.name, second.name)),
        elements=np.concatenate((first.elements, second.elements)),
        element_bytes=np.concatenate((first.element_bytes, second.element_bytes)),
    )


def _with_whole_experts(
    whole: Graph, split: Graph, experts: ExpertSplit, ranks: ServedRanks
) -> Graph:
    """A tensor rank's graph with this rank's share of whole experts instead of thin ones.

    Each of its experts gets the tokens of all replicas.
    """
    products = np.flatnonzero(experts.is_product)
    dims, flop = split.ops.dims.copy(), split.ops.flop.copy()
    dims[products] = whole.ops.dims[products]
    dims[products, _BATCH] /= ranks.num_ranks
    dims[products, _M] *= ranks.replicas
    flop[products] = whole.ops.flop[products] / ranks.tensor
    storages = split.storages.elements.copy()
    storages[experts.is_expert] = whole.storages.elements[experts.is_expert] / ranks.num_ranks
    tensors = split.tensors.elements.copy()
    of_expert = experts.is_expert[whole.tensors.storage]
    tensors[of_expert] = whole.tensors.elements[of_expert] / ranks.num_ranks
    copies = _token_copies(whole, experts, products)
    tensors[copies] = whole.tensors.elements[copies] / ranks.tensor
    return replace(
        split,
        ops=replace(split.ops, dims=dims, flop=flop),
        storages=replace(split.storages, elements=storages),
        tensors=replace(split.tensors, elements=tensors),
    )


def _token_copies(whole: Graph, experts: ExpertSplit, products: IntArray) -> IntArray:
    """Tensors of products that hold one row for each expert that a token is sent to."""
    ops, tensors = whole.ops, whole.tensors
    found = []
    for op in products:
        rows = ops.dims[op, _BATCH, 0] * ops.dims[op, _M]
        for tensor, column in (
            *((t, _K) for t in ops.input_tensor[ops.input_start[op] : ops.input_start[op + 1]]),
            *((t, _N) for t in ops.output_tensor[ops.output_start[op] : ops.output_start[op + 1]]),
        ):
            is_weight = whole.storages.owner[tensors.storage[tensor]] == Owner.PARAMETER
            wanted = rows * ops.dims[op, column, 0]
            if not is_weight and np.allclose(tensors.elements[tensor], wanted):
                found.append(int(tensor))
    return np.array(sorted(set(found)), dtype=np.int64)


def _exchanged_tokens(
    graph: Graph, experts: ExpertSplit, ranks: ServedRanks
) -> list[CollectiveCall]:
    """Tokens and scores of all replicas before a layer of experts, sums of their tokens after it.

    A replica's tensor ranks hold the same tokens; each of them gathers with its like.
    """
    routing = experts.routing
    if ranks.replicas == 1 or routing is None:
        return []
    dims, calls = graph.ops.dims, list[CollectiveCall]()
    products = np.flatnonzero(experts.is_product)
    for module in dict.fromkeys(graph.ops.module[products]):
        first, last = products[graph.ops.module[products] == module][[0, -1]]
        copies = dims[first, _BATCH, 0] * dims[first, _M]
        tokens = ranks.replicas * copies / routing.experts_per_token
        scored = dims[first, _K, 0] + routing.num_experts
        calls.append((int(first), "all_gather", tokens * scored, np.nan))
        calls.append((int(last), "reduce_scatter", tokens * dims[last, _N, 0], np.nan))
    return calls
