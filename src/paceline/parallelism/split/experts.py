"""Expert parallel as graph → graph: every rank keeps a part of the experts of each layer.

Ranks also have batches of their own. Tokens travel to the ranks of their experts and back, in
forward and in backward; or, in engines, the tokens of all ranks are gathered and sums scattered.
Routers are taken to be balanced: every rank receives as many tokens as it sends, and any experts
are as likely as others.

Source: Lepikhin et al., "GShard", ICLR 2021, section 3.2; Fedus et al., "Switch Transformers",
JMLR 23, 2022, section 2.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.model.graph.distinct import distinct
from paceline.model.graph.graph import EXPONENTS, Graph, IntArray, OpKind, Phase
from paceline.model.ops.registry import dims_of
from paceline.model.updates import of_what_is_kept
from paceline.parallelism.split.calls import Call, CallTable
from paceline.parallelism.split.roles import OpView, mark_states, view_ops
from paceline.parallelism.split.routing import Routing
from paceline.parallelism.split.shape import SplitShape
from paceline.values import dataclass

_BATCH, _M, _N, _K = dims_of(OpKind.MATMUL, "batch", "m", "n", "k")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Experts:
    """The experts of a graph: batches of products with a weight of its own for each.

    Attributes:
        products: Ops, in order, int64.
        applied: Of them, those that read weights.
        is_expert: Storage holds experts, their gradients or their optimizer state,
            (num_storages,).
        routing: Where tokens go.
    """

    products: IntArray
    applied: tuple[OpView, ...]
    is_expert: npt.NDArray[np.bool_]
    routing: Routing
    modules: frozenset[int]


@lru_cache(maxsize=8)
def find_experts(graph: Graph) -> Experts | None:
    """The experts of a model; None where it has none. Those of the last few graphs are kept."""
    views = view_ops(graph)
    batches = [op for op in views if op.kind == OpKind.MATMUL and op.dims[0] > 1]
    applied = [op for op in batches if op.weight is not None]
    modules = frozenset(op.module for op in applied)
    products = [op for op in batches if op.module in modules]
    if not products:
        return None
    return Experts(
        products=np.array([op.index for op in products], dtype=np.int64),
        applied=tuple(applied),
        is_expert=_storages(views, products, graph),
        routing=_routing(applied[0], graph),
        modules=modules,
    )


def divided_experts(graph: Graph, degree: int) -> Experts:
    """The experts of a model, of which ``degree`` ranks can have equally many.

    Raises:
        InvalidInputError: The model has no experts, or a number that the degree does not divide.
    """
    found = find_experts(graph)
    if found is None:
        raise InvalidInputError(
            f"expert parallel finds no experts in {graph.name}",
            hint="use `dp`, `tp` or `pp`; experts are batches of products with weights, and tables "
            "that are most of a model are shared likewise",
        )
    for count in distinct(graph.ops.dims[found.products, _BATCH, 0].round()).tolist():
        if count % degree:
            raise InvalidInputError(
                f"expert parallel over {degree} ranks does not divide {count:.0f} experts",
                hint="choose a degree that divides the number of experts",
            )
    return found


def with_part_of_experts(graph: Graph, found: Experts, degree: int) -> Graph:
    """The graph with a rank's experts, each with more tokens, and an update of what it keeps."""
    part = with_part_of_storages(graph, found.is_expert, degree)
    dims = part.ops.dims.copy()
    dims[found.products] = _dealt_out(graph, found, ranks=degree, batches=degree)
    return replace(part, ops=replace(part.ops, dims=dims))


def with_part_of_storages(graph: Graph, is_shared: npt.NDArray[np.bool_], degree: int) -> Graph:
    """The graph with a rank's part of some storages, and an update of what it keeps."""
    tensors, storages, ops = graph.tensors, graph.storages, graph.ops
    share = np.where(is_shared, 1.0 / degree, 1.0)
    elements = storages.elements * share[:, None]
    dims, flop = of_what_is_kept(ops, storages, elements)
    return replace(
        graph,
        ops=replace(ops, dims=dims, flop=flop),
        tensors=replace(tensors, elements=tensors.elements * share[tensors.storage, None]),
        storages=replace(storages, elements=elements),
    )


def with_whole_experts(whole: Graph, split: Graph, found: Experts, shape: SplitShape) -> Graph:
    """A tensor rank's graph with this rank's share of whole experts instead of thin ones.

    Each of its experts gets the tokens of all ranks that have items of their own.
    """
    num_ranks, products = shape.expert_ranks, found.products
    storages, tensors = split.storages.elements.copy(), split.tensors.elements.copy()
    storages[found.is_expert] = whole.storages.elements[found.is_expert] / num_ranks
    dims, flop = of_what_is_kept(split.ops, split.storages, storages)
    dims[products] = _dealt_out(whole, found, ranks=num_ranks, batches=shape.experts)
    flop[products] = whole.ops.flop[products] / shape.tensor
    of_expert = found.is_expert[whole.tensors.storage]
    tensors[of_expert] = whole.tensors.elements[of_expert] / num_ranks
    copies = _token_copies(whole, found)
    tensors[copies] = whole.tensors.elements[copies] / shape.tensor
    return replace(
        split,
        ops=replace(split.ops, dims=dims, flop=flop),
        storages=replace(split.storages, elements=storages),
        tensors=replace(split.tensors, elements=tensors),
    )


def layers_of_experts(graph: Graph) -> IntArray:
    """Layer of experts that each module lies in, (num_modules,); -1 outside all.

    A layer is what encloses the experts and the product that chooses among them, with the experts
    that all tokens go to beside them. That product may read a wider copy of its weight.
    """
    layer = np.full(len(graph.modules), -1, dtype=np.int64)
    found = find_experts(graph)
    if found is None:
        return layer
    routers = [
        op for op in view_ops(graph)
        if op.kind == OpKind.MATMUL and op.phase != Phase.BACKWARD
        and op.dims[_BATCH] == 1 and round(op.dims[_N]) == found.routing.num_experts
    ]  # fmt: skip
    for number, module in enumerate(dict.fromkeys(op.module for op in found.applied)):
        first = next(op.index for op in found.applied if op.module == module)
        before = [op.module for op in routers if op.index < first]
        path = graph.modules[module]
        home = _enclosing(path, graph.modules[before[-1]]) if before else path
        inside = [m == home or m.startswith(f"{home}.") for m in graph.modules]
        layer[np.array(inside)] = number
    return layer


def _enclosing(first: str, second: str) -> str:
    """The innermost module that encloses two; the first if none does.

    >>> _enclosing("layers.1.mlp.experts", "layers.1.mlp.gate")
    'layers.1.mlp'
    """
    shared = []
    for one, other in zip(first.split("."), second.split("."), strict=False):
        if one != other:
            break
        shared.append(one)
    return ".".join(shared) or first


def token_calls(graph: Graph, found: Experts, shape: SplitShape) -> CallTable:
    """What tokens bring to the experts of other ranks and take from them.

    Sizes are those of the products: a gradient that is the same for several experts is one storage
    and still travels to each. With sequence parallel a tensor rank sends its part of the tokens.
    """
    if shape.gathers_tokens:
        return CallTable.of([*_gathered(graph, found, shape)] if shape.experts > 1 else [])
    part = 1.0 / shape.tensor if shape.sequence_parallel else 1.0
    dims, calls = graph.ops.dims, list[Call]()
    for first, last in _ends(found):
        for op, width in ((first, _K), (last, _N)):
            elements = part * dims[op, _M] * dims[op, _BATCH, 0] * dims[op, width, 0]
            calls.append((op, "experts", "all_to_all", elements, np.nan))
    return CallTable.of(calls)


def _ends(found: Experts) -> Iterator[tuple[int, int]]:
    """First and last product with the experts of each layer, in forward and in backward."""
    for module in dict.fromkeys(op.module for op in found.applied):
        for is_forward in (True, False):
            mine = [
                op.index
                for op in found.applied
                if op.module == module and (op.phase != Phase.BACKWARD) == is_forward
            ]
            if mine:
                yield mine[0], mine[-1]


def _gathered(graph: Graph, found: Experts, shape: SplitShape) -> Iterator[Call]:
    """Tokens and scores of all ranks before a layer of experts, sums of their tokens after it.

    The tensor ranks of a replica hold the same tokens; each of them gathers with its like.
    """
    dims, routing = graph.ops.dims, found.routing
    for first, last in _ends(found):
        copies = dims[first, _BATCH, 0] * dims[first, _M]
        tokens = shape.experts * copies / routing.experts_per_token
        scored = dims[first, _K, 0] + routing.num_experts
        yield first, "experts", "all_gather", tokens * scored, np.nan
        yield last, "experts", "reduce_scatter", tokens * dims[last, _N, 0], np.nan


def _dealt_out(
    graph: Graph, found: Experts, *, ranks: int, batches: int
) -> npt.NDArray[np.float64]:
    """Shape numbers of the products of a rank: fewer experts, each with the rows of all batches."""
    dims = graph.ops.dims[found.products].copy()
    dims[:, _BATCH] /= ranks
    follows_tokens = (dims[..., 1:] != 0).any(axis=2, keepdims=True)
    return np.asarray(dims * np.where(follows_tokens, float(batches), 1.0))


def _routing(first: OpView, graph: Graph) -> Routing:
    """From the first product with experts: all copies of all tokens enter it, each its width."""
    num_experts, width = round(first.dims[_BATCH]), first.dims[_K]
    copies = graph.storages.elements[first.inputs[0][0]] / width
    per_token = float(copies[EXPONENTS.index((1, 1))] or copies[EXPONENTS.index((1, 0))])
    return Routing(num_experts=num_experts, experts_per_token=max(round(per_token), 1))


def _storages(
    views: Sequence[OpView], products: list[OpView], graph: Graph
) -> npt.NDArray[np.bool_]:
    """Weights of experts, their gradients and their optimizer state, (num_storages,)."""
    owner = graph.storages.owner
    found = np.zeros(len(owner), dtype=np.bool_)
    found[[op.weight for op in products if op.weight is not None]] = True
    made = [op.outputs[0] for op in products if op.phase == Phase.BACKWARD and op.weight is None]
    found[made] = True
    mark_states(views, found, graph)
    return found


def _token_copies(whole: Graph, found: Experts) -> IntArray:
    """Tensors of products that hold one row for each expert that a token is sent to."""
    ops, tensors = whole.ops, whole.tensors
    copies = list[int]()
    for op in found.products:
        rows = ops.dims[op, _BATCH, 0] * ops.dims[op, _M]
        for tensor, column in (
            *((t, _K) for t in ops.input_tensor[ops.input_start[op] : ops.input_start[op + 1]]),
            *((t, _N) for t in ops.output_tensor[ops.output_start[op] : ops.output_start[op + 1]]),
        ):
            is_weight = found.is_expert[tensors.storage[tensor]]
            wanted = rows * ops.dims[op, column, 0]
            if not is_weight and np.allclose(tensors.elements[tensor], wanted):
                copies.append(int(tensor))
    return np.array(sorted(set(copies)), dtype=np.int64)
