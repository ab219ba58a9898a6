"""Expert parallel as graph → graph: every rank keeps a part of the experts of each layer.

Ranks also have batches of their own. Tokens travel to the ranks of their experts and back, in
forward and in backward. Routers are taken to be balanced: every rank receives as many tokens as it
sends.

Source: Lepikhin et al., "GShard", ICLR 2021, section 3.2; Fedus et al., "Switch Transformers",
JMLR 23, 2022, section 2.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from paceline.errors import InvalidInputError
from paceline.parallel.split.roles import OpView, view_ops
from paceline.parallel.split.tensor import CollectiveCall, CollectiveTable, collective_table
from paceline.trace.graph import DIM_NAMES, EXPONENTS, Graph, OpKind, Owner, Phase

_BATCH, _M, _N, _K = (DIM_NAMES[OpKind.MATMUL].index(name) for name in ("batch", "m", "n", "k"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Where the tokens of a model with experts go.

    Attributes:
        num_experts: Experts of a layer.
        experts_per_token: How many of them each token is sent to.
    """

    num_experts: int
    experts_per_token: int

    def places(self, num_places: float) -> float:
        """Expected places that one token reaches, where each holds an equal share of the experts.

        The experts of a token are different ones, and any are as likely as others.

        >>> Routing(num_experts=8, experts_per_token=2).places(8)
        2.0
        >>> Routing(num_experts=8, experts_per_token=2).places(1)
        1.0
        """
        elsewhere = self.num_experts * (1.0 - 1.0 / num_places)
        missed = math.prod(
            max(elsewhere - i, 0.0) / (self.num_experts - i) for i in range(self.experts_per_token)
        )
        return num_places * (1.0 - missed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpertSplit:
    """A graph as one rank of an expert group sees it.

    Attributes:
        graph: Same ops; its part of the experts.
        collectives: How tokens travel: out and back, in forward and in backward.
        is_expert: Storage holds experts, their gradients or their optimizer state,
            (num_storages,).
        routing: Where tokens go; None without expert ranks.
        is_product: Op is one of the experts' products, (num_ops,).
    """

    graph: Graph
    collectives: CollectiveTable
    is_expert: npt.NDArray[np.bool_]
    routing: Routing | None
    is_product: npt.NDArray[np.bool_]


@lru_cache(maxsize=8)
def split_experts(graph: Graph, degree: int) -> ExpertSplit:
    """What one of ``degree`` expert-parallel ranks runs.

    Experts are found as batches of products with a weight of its own for each.

    Args:
        graph: One pass of a model.
        degree: Ranks that share the experts; 1 returns the graph as it is.

    Raises:
        InvalidInputError: The model has no experts, or a number that the degree does not divide.
    """
    none, is_product = (
        np.zeros(size, dtype=np.bool_) for size in (len(graph.storages.owner), len(graph.ops.kind))
    )
    if degree == 1:
        return ExpertSplit(
            graph=graph, collectives=collective_table([]), is_expert=none, routing=None,
            is_product=is_product,
        )  # fmt: skip
    views = view_ops(graph)
    batches = [op for op in views if op.kind == OpKind.MATMUL and op.dims[0] > 1]
    applied = [op for op in batches if op.weight is not None]
    modules = {op.module for op in applied}
    products = [op for op in batches if op.module in modules]
    _check_experts(graph, degree, {round(op.dims[0]) for op in products})
    is_expert = _expert_storages(views, products, graph)
    is_product[[op.index for op in products]] = True
    return ExpertSplit(
        graph=_scaled(graph, is_expert, [op.index for op in products], degree),
        collectives=collective_table(_exchanges(applied, graph)),
        is_expert=is_expert,
        routing=_routing(applied[0], graph),
        is_product=is_product,
    )


def _routing(first: OpView, graph: Graph) -> Routing:
    """From the first product with experts: all copies of all tokens enter it, each its width."""
    num_experts, width = round(first.dims[0]), first.dims[3]
    copies = graph.storages.elements[first.inputs[0][0]] / width
    per_token = float(copies[EXPONENTS.index((1, 1))] or copies[EXPONENTS.index((1, 0))])
    return Routing(num_experts=num_experts, experts_per_token=max(round(per_token), 1))


def _check_experts(graph: Graph, degree: int, counts: set[int]) -> None:
    if not counts:
        raise InvalidInputError(
            f"expert parallel finds no experts in {graph.name}",
            hint="use `dp`, `tp` or `pp`; experts are found as batches of products with weights",
        )
    for count in counts:
        if count % degree:
            raise InvalidInputError(
                f"expert parallel over {degree} ranks does not divide {count} experts",
                hint="choose a degree that divides the number of experts",
            )


def _expert_storages(
    views: Sequence[OpView], products: list[OpView], graph: Graph
) -> npt.NDArray[np.bool_]:
    """Weights of experts, their gradients and their optimizer state, (num_storages,)."""
    owner = graph.storages.owner
    found = np.zeros(len(owner), dtype=np.bool_)
    found[[op.weight for op in products if op.weight is not None]] = True
    made = [op.outputs[0] for op in products if op.phase == Phase.BACKWARD and op.weight is None]
    found[made] = True
    for op in views:
        if op.kind == OpKind.OPTIMIZER:
            states = [s for s, _ in op.inputs if owner[s] == Owner.OPTIMIZER_STATE]
            of_expert = [found[s] for s, _ in op.parameters]
            found[states] = np.resize(np.array(of_expert, dtype=np.bool_), len(states))
    return found


def _scaled(
    graph: Graph, is_expert: npt.NDArray[np.bool_], products: list[int], degree: int
) -> Graph:
    """The graph with this rank's experts, each with more tokens, and an update of what it keeps."""
    tensors, storages, ops = graph.tensors, graph.storages, graph.ops
    share = np.where(is_expert, 1.0 / degree, 1.0)
    sizes = storages.elements[storages.owner == Owner.PARAMETER, 0]
    kept_frac = (sizes * share[storages.owner == Owner.PARAMETER]).sum() / sizes.sum()
    dims, flop, update = ops.dims.copy(), ops.flop.copy(), ops.kind == OpKind.OPTIMIZER
    dims[update, 0] *= kept_frac
    dims[products, 0] /= degree
    follows_tokens = (dims[products][..., 1:] != 0).any(axis=2, keepdims=True)
    dims[products] *= np.where(follows_tokens, float(degree), 1.0)
    flop[update] *= kept_frac
    return replace(
        graph,
        ops=replace(ops, dims=dims, flop=flop),
        tensors=replace(tensors, elements=tensors.elements * share[tensors.storage, None]),
        storages=replace(storages, elements=storages.elements * share[:, None]),
    )


def _exchanges(applied: list[OpView], graph: Graph) -> list[CollectiveCall]:
    """What tokens bring to the experts and take from them, in forward and in backward.

    Sizes are those of the products: a gradient that is the same for several experts is one storage
    and still travels to each.
    """
    dims = graph.ops.dims
    calls: list[CollectiveCall] = []
    for module in dict.fromkeys(op.module for op in applied):
        for is_forward in (True, False):
            mine = [
                op for op in applied
                if op.module == module and (op.phase != Phase.BACKWARD) == is_forward
            ]  # fmt: skip
            if not mine:
                continue
            ends = ((mine[0].index, _K), (mine[-1].index, _N))
            calls += [
                (op, "all_to_all", dims[op, _M] * dims[op, _BATCH, 0] * dims[op, width, 0], np.nan)
                for op, width in ends
            ]
    return sorted(calls, key=lambda call: call[0])
