from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.parallelism.links_of_tests import wires_of_engine

from paceline.catalog.entities import Link
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import Graph, Owner, monomials
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.engine_sums import (
    OWN_KERNEL,
    engine_all_reduce_s,
    engine_sums_of,
)
from paceline.parallelism.collectives.links import COLLECTIVES, LinkTable
from paceline.parallelism.collectives.times import RankGroup, collective_s
from paceline.parallelism.split import RankGraph, Routing, SplitShape, busiest_frac, calls_s, split
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass

CATALOG = load_catalog()
NVLINK4 = next(link for link in CATALOG.links if link.name == "nvlink4")
H100 = DeviceTable.from_devices([find_device(CATALOG, "H100 SXM5 80GB")])
SERVED = Configuration(precision="bf16", compiler="compiled", is_served=True)
MIXTURE, DENSE = "mixtral-8x7b", "llama-3-8b"
#: Sixteen requests of a replica, each a thousand tokens in.
POINT = Points(batch=np.array([16.0]), seq=np.array([1000.0]))
EVERY = (
    SplitShape.of_engine(tensor=2),
    SplitShape.of_engine(tensor=8),
    SplitShape.of_engine(tensor=8, whole_experts=True),
    SplitShape.of_engine(replicas=8, whole_experts=True),
    SplitShape.of_engine(tensor=2, replicas=4, whole_experts=True),
)


def graph_of(name: str, pass_name: str = "decode") -> Graph:
    workload = load_workload(name, task="infer")
    return next(one.graph for one in workload.passes if one.name == pass_name)


def ran(ranks: SplitShape, name: str = MIXTURE, pass_name: str = "decode") -> RankGraph:
    return split(graph_of(name, pass_name), ranks)


def lowered(one: RankGraph) -> LoweredPass:
    return lower(one.graph, SERVED)


def exchanged_s(one: RankGraph, link: Link | None = NVLINK4) -> float:
    wires = wires_of_engine(one.shape, link)
    return float(calls_s(one.calls, POINT, wires, element_bytes=2.0).sum())


def test_one_rank_runs_the_pass_as_it_is() -> None:
    graph = graph_of(MIXTURE)
    one = split(graph, SplitShape.of_engine())
    assert one.graph is graph
    assert exchanged_s(one, None) == 0.0


@pytest.mark.parametrize("ranks", EVERY)
def test_ranks_do_no_less_work_together_than_one_does_for_all_their_requests(
    ranks: SplitShape,
) -> None:
    """Only what every rank repeats (norms, routers) comes on top."""
    alone, shared = (
        float(one.graph.ops.flop.sum(axis=0) @ monomials(16.0, 1000.0)[0])
        for one in (ran(SplitShape.of_engine()), ran(ranks))
    )
    together, asked = ranks.num_ranks * shared, ranks.experts * alone
    assert asked * (1.0 - 1e-9) <= together < 1.02 * asked


@pytest.mark.parametrize(
    "ranks",
    [SplitShape.of_engine(tensor=n, whole_experts=e) for n in (2, 4, 8) for e in (False, True)],
)
def test_a_rank_keeps_its_share_of_weights(ranks: SplitShape) -> None:
    alone, shared = (lowered(ran(r)).parameter_bytes for r in (SplitShape.of_engine(), ranks))
    assert alone <= ranks.num_ranks * shared < 1.01 * alone


def test_experts_are_shared_by_replicas_and_all_else_is_copied() -> None:
    graph = graph_of(MIXTURE)
    ranks = SplitShape.of_engine(replicas=4, whole_experts=True)
    shared, owner = split(graph, ranks).graph, graph.storages.owner
    share = shared.storages.elements[:, 0] / np.maximum(graph.storages.elements[:, 0], 1.0)
    of_weights = share[owner == Owner.PARAMETER]
    assert set(of_weights.round(9)) == {0.25, 1.0}
    assert (
        lowered(ran(ranks)).parameter_bytes
        > lowered(ran(SplitShape.of_engine())).parameter_bytes / 4
    )


@pytest.mark.parametrize("splits_experts", [False, True])
def test_more_tensor_ranks_never_lengthen_the_devices_own_part(splits_experts: bool) -> None:
    times = []
    for tensor in (1, 2, 4, 8):
        one = ran(SplitShape.of_engine(tensor=tensor, whole_experts=splits_experts and tensor > 1))
        found = predict_pass(
            lowered(one), H100, POINT, calibration=builtin_calibration(), framework="vllm"
        )
        times.append(float(found.device_s[0, 0]))
    assert times == sorted(times, reverse=True)


def test_whole_experts_are_as_many_flops_and_bytes_as_thin_ones() -> None:
    thin, whole = (
        ran(SplitShape.of_engine(tensor=8)),
        ran(SplitShape.of_engine(tensor=8, whole_experts=True)),
    )
    np.testing.assert_allclose(thin.graph.ops.flop.sum(axis=0), whole.graph.ops.flop.sum(axis=0))
    assert lowered(thin).parameter_bytes == pytest.approx(lowered(whole).parameter_bytes)


def test_whole_experts_of_one_replica_are_summed_as_thin_ones_are() -> None:
    """vLLM exchanges tokens only where replicas have their own."""
    thin, whole = (
        ran(SplitShape.of_engine(tensor=8)),
        ran(SplitShape.of_engine(tensor=8, whole_experts=True)),
    )
    assert not len(whole.calls.along("experts"))
    assert exchanged_s(thin) == exchanged_s(whole)


def test_replicas_hand_all_their_tokens_to_experts_and_get_them_back() -> None:
    """Once a layer: the tokens of all with a score for each expert, then sums of their width."""
    one = ran(SplitShape.of_engine(replicas=4, whole_experts=True))
    sent = one.calls.along("experts")
    elements = sent.elements @ monomials(16.0, 1000.0)[0]
    names = [COLLECTIVES[name] for name in sent.name]
    layers, tokens = 32, 4 * 16.0
    assert names == ["all_gather", "reduce_scatter"] * layers
    np.testing.assert_allclose(elements[::2], tokens * (4096 + 8))
    np.testing.assert_allclose(elements[1::2], tokens * 4096)
    assert not len(one.calls.along("tensor"))


def test_an_exchange_is_the_sum_of_its_calls() -> None:
    both = ran(SplitShape.of_engine(tensor=2, replicas=4, whole_experts=True))
    table = LinkTable.from_links([NVLINK4])
    group = RankGroup.of(np.array([4.0]), 4, table, table)
    tokens = 4 * 16.0
    layer_s = collective_s("all_gather", tokens * 4104 * 2.0, group)
    layer_s = layer_s + collective_s("reduce_scatter", tokens * 4096 * 2.0, group)
    pair = RankGroup.of(np.array([2.0]), 2, table, table)
    sums_s = 65 * engine_all_reduce_s(
        np.array([16 * 4096 * 2.0]), pair, engine_sums_of(table, kernel=OWN_KERNEL)
    )
    words_s = collective_s("all_gather", 16 * 32_000 * 2.0, pair)
    total_s = float((32 * layer_s + sums_s + words_s)[0])
    assert exchanged_s(both) == pytest.approx(total_s, rel=1e-3)


@pytest.mark.parametrize("name", [DENSE, MIXTURE])
def test_ranks_share_the_vocabulary_and_gather_logits(name: str) -> None:
    alone, shared = ran(SplitShape.of_engine(), name), ran(SplitShape.of_engine(tensor=4), name)
    assert shared.graph.ops.dims[-1, 2, 0] == alone.graph.ops.dims[-1, 2, 0] / 4
    logits = 16.0 * alone.graph.ops.dims[-1, 2, 0]
    gathered = shared.calls.name == COLLECTIVES.index("all_gather")
    elements = shared.calls.elements[gathered] @ monomials(16.0, 1000.0)[0]
    assert elements.tolist() == [logits]


def many_experts() -> RankGraph:
    """Eight ranks with sixteen experts each of Qwen3's 128, of which a token reaches eight."""
    return replace(
        ran(SplitShape.of_engine(tensor=8, whole_experts=True)),
        routing=Routing(num_experts=128, experts_per_token=8),
    )


def busiest(one: RankGraph, tokens: float) -> float:
    rows = one.graph.ops.dims[one.expert_products[0], 1].sum()
    routing = one.routing or Routing(num_experts=1, experts_per_token=1)
    share = routing.experts_per_token / routing.num_experts
    point = Points(batch=np.array([tokens * share / rows]), seq=np.ones(1))
    return float(busiest_frac(one, point)[0])


@pytest.mark.parametrize("tokens", [1.0, 4.0, 16.0, 32.0])
def test_the_busiest_rank_reads_as_many_more_experts_as_chance_has_it(tokens: float) -> None:
    """Against routers that choose at random (10,000 steps, seeded)."""
    drawn = np.random.default_rng(0).random((10_000, int(tokens), 128)).argpartition(8, axis=2)
    reached = np.zeros((10_000, 128), dtype=np.bool_)
    np.put_along_axis(reached, drawn[..., :8].reshape(10_000, -1), True, axis=1)
    each = reached.reshape(10_000, 8, 16).sum(axis=2)
    expected = each.max(axis=1).mean() / each.mean() - 1.0
    assert busiest(many_experts(), tokens) == pytest.approx(expected, abs=0.12 * (1 + expected))


def test_nobody_waits_where_all_experts_are_reached_or_all_ranks_have_a_part_of_each() -> None:
    assert busiest(many_experts(), 10_000.0) == pytest.approx(0.0, abs=1e-9)
    thin = ran(SplitShape.of_engine(tensor=8))
    assert busiest_frac(thin, POINT).tolist() == [0.0]


def test_experts_alone_are_a_part_of_the_pass() -> None:
    one = ran(SplitShape.of_engine(tensor=8, whole_experts=True))
    only = one.only(one.expert_products)
    assert len(only.ops.kind) == len(one.expert_products)
    np.testing.assert_array_equal(only.ops.flop, one.graph.ops.flop[one.expert_products])


def test_no_link_takes_for_ever() -> None:
    assert exchanged_s(ran(SplitShape.of_engine(tensor=2)), None) == np.inf


def test_a_dense_model_has_no_experts_to_split() -> None:
    with pytest.raises(InvalidInputError, match="finds no experts"):
        ran(SplitShape.of_engine(tensor=2, whole_experts=True), DENSE)


def test_experts_must_divide() -> None:
    with pytest.raises(InvalidInputError, match="does not divide 8 experts"):
        ran(SplitShape.of_engine(replicas=16, whole_experts=True))
