from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph, Owner, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import COLLECTIVES
from paceline.parallelism.split import Routing, SplitShape, split
from paceline.parallelism.split.experts import layers_of_experts
from paceline.parallelism.split.roles import view_ops

BATCH, SEQ = 2, 1024
LAYERS, HIDDEN, FFN, NUM_EXPERTS, PER_TOKEN = 32, 4096, 14336, 8, 2
EXPERT_PARAMETERS = LAYERS * NUM_EXPERTS * 3 * HIDDEN * FFN


@cache
def mixtral() -> Graph:
    return load_workload("mixtral-8x7b").passes[0].graph


def with_widened_routers(graph: Graph) -> Graph:
    """The graph as it is traced where a router multiplies with a copy of its weight in FP32."""
    owner = graph.storages.owner.copy()
    for op in view_ops(graph):
        if op.weight is not None and round(op.dims[2]) == NUM_EXPERTS and op.dims[0] == 1:
            owner[op.weight] = Owner.ACTIVATION
    return replace(graph, storages=replace(graph.storages, owner=owner))


def test_a_layer_of_experts_holds_its_router_whatever_copy_of_its_weight_that_reads() -> None:
    graph = load_workload("mixtral-8x7b", task="infer").passes[0].graph
    plain, widened = layers_of_experts(graph), layers_of_experts(with_widened_routers(graph))
    assert len(set(plain.tolist()) - {-1}) == LAYERS
    np.testing.assert_array_equal(plain, widened)


def test_one_rank_is_the_graph_itself() -> None:
    part = split(mixtral(), SplitShape(experts=1))
    assert part.graph is mixtral()
    assert len(part.calls.op) == 0
    assert not part.is_expert.any()


@pytest.mark.parametrize("degree", [2, 8])
def test_a_rank_keeps_its_part_of_the_experts_and_all_else(degree) -> None:
    whole = lower(mixtral(), Configuration())
    part = lower(split(mixtral(), SplitShape(experts=degree)).graph, Configuration())
    gone = (1 - 1 / degree) * EXPERT_PARAMETERS
    share = 1 - gone / whole.num_parameters
    assert whole.num_parameters - part.num_parameters == pytest.approx(gone)
    assert part.gradient_bytes / whole.gradient_bytes == pytest.approx(share)
    assert part.optimizer_state_bytes / whole.optimizer_state_bytes == pytest.approx(share)


@pytest.mark.parametrize("degree", [2, 8])
def test_one_tensor_rank_keeps_experts_whole_either_way(degree) -> None:
    part = split(mixtral(), SplitShape(experts=degree)).graph
    whole = split(mixtral(), SplitShape(experts=degree, whole_experts=True)).graph
    np.testing.assert_allclose(whole.ops.dims, part.ops.dims, rtol=1e-12)
    np.testing.assert_allclose(whole.ops.flop, part.ops.flop, rtol=1e-12)
    np.testing.assert_allclose(whole.tensors.elements, part.tensors.elements, rtol=1e-12)
    np.testing.assert_allclose(whole.storages.elements, part.storages.elements, rtol=1e-12)


def test_balanced_routers_leave_every_rank_the_same_work() -> None:
    point = monomials(BATCH, SEQ)[0]
    whole, part = (
        lower(graph, Configuration())
        for graph in (mixtral(), split(mixtral(), SplitShape(experts=8)).graph)
    )
    flop = [
        ((low.costs.count @ low.costs.flop) @ point) - (low.costs.count @ low.costs.flop)[0]
        for low in (whole, part)
    ]
    assert flop[1] == pytest.approx(flop[0])


def test_an_expert_of_a_rank_works_on_the_tokens_of_all_ranks() -> None:
    """Fewer products of as many more rows; the widths of an expert stay what they are."""
    part = split(mixtral(), SplitShape(experts=8))
    point = monomials(BATCH, SEQ)[0]
    before, after = (
        graph.ops.dims[part.expert_products][:, :4] @ point for graph in (mixtral(), part.graph)
    )
    tokens = BATCH * SEQ * PER_TOKEN / NUM_EXPERTS
    is_row = np.isclose(before, tokens)
    assert is_row[:, 1:].sum(axis=1).tolist() == [1] * len(is_row)
    assert np.allclose(after[is_row], 8 * tokens)
    assert np.array_equal(after[:, 1:][~is_row[:, 1:]], before[:, 1:][~is_row[:, 1:]])
    assert set(before[:, 0]) == {float(NUM_EXPERTS)}
    assert set(after[:, 0]) == {1.0}


def test_tokens_travel_out_and_back_in_both_directions() -> None:
    """Lepikhin et al. 2021: two all-to-alls per layer in forward, and two in backward."""
    calls = split(mixtral(), SplitShape(experts=8)).calls
    assert {COLLECTIVES[name] for name in calls.name} == {"all_to_all"}
    assert len(calls.op) == 4 * LAYERS
    message = calls.elements @ monomials(BATCH, SEQ)[0]
    assert set(message) == {BATCH * SEQ * PER_TOKEN * HIDDEN}


def test_tensor_ranks_split_what_expert_ranks_keep() -> None:
    both = split(mixtral(), SplitShape(experts=2, tensor=2)).graph
    expert, tensor = (
        split(mixtral(), SplitShape(experts=2)).graph,
        split(mixtral(), SplitShape(tensor=2)).graph,
    )
    parameters = [lower(g, Configuration()).num_parameters for g in (both, expert, tensor)]
    assert parameters[0] < parameters[1]
    assert parameters[0] < parameters[2]


@pytest.mark.parametrize(
    ("name", "degree", "why"),
    [
        ("mixtral-8x7b", 3, "does not divide 8 experts"),
        ("llama-3-8b", 2, "finds no experts"),
    ],
)
def test_what_cannot_be_split_says_why(name, degree, why) -> None:
    with pytest.raises(InvalidInputError, match=why):
        split(load_workload(name).passes[0].graph, SplitShape(experts=degree))


def test_only_experts_and_what_belongs_to_them_shrink() -> None:
    part = split(mixtral(), SplitShape(experts=8))
    before, after = mixtral().storages.elements, part.graph.storages.elements
    assert np.array_equal(before[~part.is_expert], after[~part.is_expert])
    assert np.allclose(before[part.is_expert], 8 * after[part.is_expert])


def test_routing_is_read_from_the_graph() -> None:
    routing = split(mixtral(), SplitShape(experts=8)).routing
    assert routing == Routing(num_experts=NUM_EXPERTS, experts_per_token=PER_TOKEN)


@pytest.mark.parametrize(("num_experts", "per_token"), [(8, 2), (128, 8), (512, 22)])
def test_a_token_reaches_no_more_places_than_it_has_experts(num_experts, per_token) -> None:
    """One place gets every token once; as many places as experts are one for each expert."""
    routing = Routing(num_experts=num_experts, experts_per_token=per_token)
    reached = [routing.places(places) for places in (1, 2, 4, 8, num_experts)]
    assert reached[0] == 1.0
    assert reached == sorted(reached)
    assert reached[-1] == pytest.approx(per_token)


def test_tokens_of_an_inference_travel_out_and_back_once() -> None:
    for one in load_workload("mixtral-8x7b", task="infer").passes:
        part = split(one.graph, SplitShape(experts=8))
        assert len(part.calls.op) == 2 * LAYERS
        assert part.routing == Routing(num_experts=NUM_EXPERTS, experts_per_token=PER_TOKEN)
