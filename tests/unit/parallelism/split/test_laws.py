"""Laws of every way to split: nothing is lost, one rank is the graph, messages counted by hand."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from paceline.errors import InvalidInputError
from paceline.model.graph.graph import Graph, OpKind, Owner, monomials
from paceline.model.ops.registry import column
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import COLLECTIVES
from paceline.parallelism.split import RankGraph, SplitShape, split
from paceline.parallelism.split.calls import AXES
from paceline.parallelism.strategy.strategy import Strategy

BATCH, SEQ = 2.0, 1024.0
POINT = monomials(BATCH, SEQ)[0]
LAYERS, WIDTH, HEADS, HEAD = 12, 768, 12, 64
TOKENS = BATCH * SEQ
#: Every axis, on a model that has what it shares.
EVERY = [
    ("gpt2", SplitShape(tensor=2)),
    ("gpt2", SplitShape(tensor=4, sequence_parallel=True)),
    ("gpt2", SplitShape(ring=2)),
    ("gpt2", SplitShape(ulysses=4)),
    ("gpt2", SplitShape(ring=2, ulysses=2, tensor=3)),
    ("mixtral-8x7b", SplitShape(experts=4)),
    ("mixtral-8x7b", SplitShape(experts=2, tensor=2, sequence_parallel=True, whole_experts=True)),
    ("llama-3-8b", SplitShape(tensor=8, ring=2)),
]


@cache
def graph_of(name: str, task: str = "train") -> Graph:
    return load_workload(name, task=task).passes[0].graph


def multiplied(graph: Graph) -> float:
    """FLOP of what multiplies; of causal attention those that a mask leaves, as ranks meet them."""
    flop = graph.ops.flop @ POINT
    return float(flop[column("is_narrow")[graph.ops.kind]].sum())


def kept(graph: Graph, owner: Owner) -> float:
    return float((graph.storages.elements[graph.storages.owner == owner] @ POINT).sum())


def attention_beyond_own(shape: SplitShape, graph: Graph) -> float:
    """Share of attention that a ring does not meet, as its causal ranks see fewer keys."""
    is_attention = np.isin(graph.ops.kind, (OpKind.ATTENTION, OpKind.ATTENTION_BACKWARD))
    unseen = 1.0 - (1.0 + 1.0 / shape.ring) / 2.0
    return unseen * float((graph.ops.flop @ POINT)[is_attention].sum())


@pytest.mark.parametrize(("name", "shape"), EVERY, ids=str)
def test_ranks_multiply_together_what_one_does_for_all_items(name: str, shape: SplitShape) -> None:
    """Routers, which every tensor rank repeats, are under a thousandth."""
    whole = graph_of(name)
    asked = shape.experts * (multiplied(whole) - attention_beyond_own(shape, whole))
    together = shape.num_ranks * multiplied(split(whole, shape).graph)
    assert asked * (1 - 1e-9) <= together <= asked * 1.001


@pytest.mark.parametrize(("name", "shape"), EVERY, ids=str)
@pytest.mark.parametrize("owner", [Owner.PARAMETER, Owner.GRADIENT, Owner.OPTIMIZER_STATE])
def test_ranks_keep_each_parameter_as_often_as_it_is_copied(
    name: str, shape: SplitShape, owner: Owner
) -> None:
    """Norms, positions and what adds up once for each tensor rank; no expert twice."""
    whole, rank = graph_of(name), split(graph_of(name), shape)
    mine = rank.graph.storages.elements @ POINT
    all_of = whole.storages.elements @ POINT
    of_owner = whole.storages.owner == owner
    share = mine[of_owner] / np.maximum(all_of[of_owner], 1.0)
    allowed = {1.0, 1 / shape.tensor, 1 / shape.experts, 1 / (shape.experts * shape.tensor)}
    assert all(min(abs(s - a) for a in allowed) < 1e-9 for s in share.tolist())
    experts = rank.is_expert & of_owner
    assert mine[experts].sum() * shape.experts * shape.tensor == pytest.approx(
        all_of[experts].sum()
    )
    others = of_owner & ~experts
    assert mine[others].sum() * shape.tensor < 1.04 * all_of[others].sum() or shape.tensor == 1


@pytest.mark.parametrize("name", ["gpt2", "mixtral-8x7b", "resnet50", "sd15-unet"])
@pytest.mark.parametrize("task", ["train", "infer"])
def test_one_rank_runs_the_graph_itself(name: str, task: str) -> None:
    for shape in (SplitShape(), SplitShape.of_engine(), SplitShape.of(Strategy())):
        rank = split(graph_of(name, task), shape)
        assert rank.graph is graph_of(name, task)
        assert not len(rank.calls)


def sent(rank: RankGraph) -> Counter[tuple[str, str, float]]:
    """Axis, collective and elements of every call."""
    elements = (rank.calls.elements @ POINT).tolist()
    return Counter(
        (AXES[axis], COLLECTIVES[name], size)
        for axis, name, size in zip(rank.calls.axis, rank.calls.name, elements, strict=True)
    )


def test_tensor_ranks_reduce_twice_a_layer_in_each_direction() -> None:
    """Shoeybi et al., section 3; the table, the input of the head, and three sums of the loss."""
    assert sent(split(graph_of("gpt2"), SplitShape(tensor=2))) == {
        ("tensor", "all_reduce", TOKENS * WIDTH): 4 * LAYERS + 2,
        ("tensor", "all_reduce", TOKENS): 3,
    }


def test_under_sequence_parallel_sums_are_scattered_and_gathered() -> None:
    """Korthikanti et al., section 4.2: and what enters a column is gathered again in backward."""
    assert sent(split(graph_of("gpt2"), SplitShape(tensor=2, sequence_parallel=True))) == {
        ("tensor", "reduce_scatter", TOKENS * WIDTH): 4 * LAYERS + 2,
        ("tensor", "all_gather", TOKENS * WIDTH): 4 * LAYERS + 2 + 2 * LAYERS + 1,
        ("tensor", "all_reduce", TOKENS): 3,
    }


def test_a_ring_of_two_sends_keys_and_values_once_and_in_backward_their_gradients() -> None:
    part = TOKENS / 2 * WIDTH
    assert sent(split(graph_of("gpt2"), SplitShape(ring=2))) == {
        ("ring", "send_recv", 2 * part): LAYERS,
        ("ring", "send_recv", 4 * part): LAYERS,
    }


def test_two_ranks_of_ulysses_hand_over_four_tensors_in_each_direction() -> None:
    assert sent(split(graph_of("gpt2"), SplitShape(ulysses=2))) == {
        ("ulysses", "all_to_all", TOKENS / 2 * WIDTH): 8 * LAYERS
    }


def test_tokens_go_to_two_experts_and_back_in_each_direction() -> None:
    """Lepikhin et al., section 3.2, for the 32 layers of Mixtral."""
    assert sent(split(graph_of("mixtral-8x7b"), SplitShape(experts=4))) == {
        ("experts", "all_to_all", TOKENS * 2 * 4096): 4 * 32
    }


def test_whole_experts_need_no_sum_and_get_the_tokens_of_each_part_of_the_sequence() -> None:
    shape = SplitShape(experts=2, tensor=2, sequence_parallel=True, whole_experts=True)
    calls = split(graph_of("mixtral-8x7b"), shape).calls
    thin = split(graph_of("mixtral-8x7b"), SplitShape(experts=2, tensor=2, sequence_parallel=True))
    assert len(calls.along("tensor")) < len(thin.calls.along("tensor"))
    tokens = calls.along("experts").elements @ POINT
    assert set(tokens.tolist()) == {TOKENS / 2 * 2 * 4096}
    assert shape.layout("experts") == (4, 1)


def test_ranks_of_an_axis_stand_as_far_apart_as_those_inside_are_many() -> None:
    shape = SplitShape(tensor=2, ulysses=4, ring=3, experts=5)
    axes = ("tensor", "ulysses", "ring", "sequence", "experts")
    assert [shape.layout(axis) for axis in axes] == [(2, 1), (4, 2), (3, 8), (12, 2), (5, 24)]
    assert shape.num_ranks == 120


def test_a_strategy_says_how_ranks_share_a_model() -> None:
    shape = SplitShape.of(Strategy.parse("dp2.ep2.cp4.tp2+sp+ulysses2"))
    assert shape == SplitShape(tensor=2, sequence_parallel=True, ring=2, ulysses=2, experts=2)
    assert shape.num_pieces == 2 * 2 * 2 * 2


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="5 ranks of Ulysses do not divide 12 heads"):
        split(graph_of("gpt2"), SplitShape(ulysses=5))
