"""Laws of complete strategies: what splitting, accumulating and updating cost and save."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.unit.parallelism.links_of_tests import ETHERNET, INFINIBAND, SWITCH, make_link

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.evaluation import (
    StrategyEvaluation,
    evaluate_strategies,
    weighed_strategies,
)
from paceline.parallelism.memory.sharded_memory import FSDP_BLOCKS
from paceline.parallelism.memory.training_state import TrainingState
from paceline.parallelism.schedule.blocks import TensorGroup, block_costs
from paceline.parallelism.schedule.table import (
    KINDS,
    SHARDINGS,
    ClusterLinks,
    StrategyTable,
    Variant,
)
from paceline.parallelism.split.shape import SplitShape
from paceline.parallelism.training_profile import find_training_profile
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points

DEVICE = find_device(load_catalog(), "A100 SXM4 80GB")
USUAL = find_training_profile()
AFTER_BACKWARD = replace(USUAL, overlaps_gradients=False)
FAST = ClusterLinks(devices_per_node=8, device_link=SWITCH, node_link=INFINIBAND)
SLOW = replace(FAST, device_link=ETHERNET)


@cache
def blocks(model: str = "gpt2") -> Variant:
    """A model with one item, on one rank whose host takes no time."""
    costs = block_costs(
        load_workload(model).passes[0].graph,
        Configuration(training_format="half-weights", optimizer_kernel="fused"),
        DeviceTable.from_devices([DEVICE]),
        Points(batch=np.ones(1), seq=np.full(1, 1024.0)),
        TensorGroup(
            shape=SplitShape(), ranks_per_node=8, device_link=SWITCH, node_link=INFINIBAND,
        ),
    )  # fmt: skip
    nothing = np.zeros_like(costs.forward_s)
    costs = replace(costs, forward_host_s=nothing, backward_host_s=nothing, update_host_s=0.0)
    return Variant(shape=SplitShape(), checkpointing="none", costs=costs)


def table(
    *, dp=8, sharding="none", microbatches=1, shards=0, pp=1, chunks=1, kind="plain"
) -> StrategyTable:
    columns = {
        "variant": 0, "dp": dp, "pp": pp, "chunks": chunks, "kind": KINDS.index(kind),
        "microbatches": microbatches, "point": 0, "sharding": SHARDINGS.index(sharding),
        "shards": shards,
    }  # fmt: skip
    return StrategyTable(**{name: np.array([value]) for name, value in columns.items()})


def evaluated(fabric: ClusterLinks = FAST, **columns) -> StrategyEvaluation:
    return evaluate_strategies(table(**columns), [blocks()], fabric)


def whole_state() -> TrainingState:
    return TrainingState(blocks().costs.state.values.sum(axis=(1, 2)))


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "zero3"])
def test_a_step_is_its_work_and_what_is_added_to_it(sharding) -> None:
    found, alone = evaluated(sharding=sharding, microbatches=4), evaluated(dp=1, microbatches=4)
    costs = blocks().costs
    work_s = 4 * float((costs.forward_s + costs.backward_s).sum())
    assert alone.steps.exposed_s[0] == 0.0
    assert alone.steps.step_s[0] == pytest.approx(work_s + alone.steps.update_s[0])
    parts_s = work_s + found.steps.update_s[0] + found.steps.exposed_s[0]
    assert found.steps.step_s[0] == pytest.approx(parts_s)


@pytest.mark.parametrize("sharding", ["zero1", "zero2", "zero3"])
def test_an_update_takes_its_bytes_at_its_rate_and_its_share(sharding) -> None:
    alone = evaluated(dp=1).steps.update_s[0]
    rate = blocks().costs.update_bytes_per_s
    bandwidth = DEVICE.memory_bytes_per_s
    assert bandwidth is not None
    assert 0.3 * bandwidth < rate < bandwidth
    assert alone == pytest.approx(whole_state().update / rate)
    assert evaluated(sharding=sharding).steps.update_s[0] == pytest.approx(alone / 8)
    assert evaluated(dp=8).steps.update_s[0] == alone


@pytest.mark.parametrize("sharding", ["zero2", "zero3"])
def test_what_splits_gradients_talks_again_in_every_microbatch(sharding) -> None:
    """Of a reduction of whole gradients there is one a step, however many microbatches.

    ZeRO-2 gathers what was updated once.
    """
    once, twice, four_times = (
        evaluated(SLOW, sharding=sharding, microbatches=count).steps.exposed_s[0]
        for count in (1, 2, 4)
    )
    assert four_times - twice == pytest.approx(2 * (twice - once))
    assert (four_times == pytest.approx(4 * once)) == (sharding == "zero3")
    once, four_times = (evaluated(SLOW, microbatches=count).steps.exposed_s[0] for count in (1, 4))
    assert four_times < 1.5 * once


def test_what_ranks_split_shrinks_to_two_gathered_blocks() -> None:
    """Rajbhandari et al., SC 2020, section 5: 1 / N of states, gradients, and parameters."""
    ranks = 2**20
    kept = [
        evaluated(dp=ranks, sharding=sharding).state_bytes[0]
        for sharding in ("none", "zero1", "zero2", "zero3")
    ]
    state = whole_state()
    whole = state.weight + state.gradient + state.optimizer
    left = (whole, whole - state.optimizer, state.weight, state.weight * 2 / FSDP_BLOCKS)
    assert kept == pytest.approx(left, rel=2e-3)


def test_replicas_of_shards_keep_more_and_send_less_between_nodes() -> None:
    apart = replace(FAST, node_link=ETHERNET)
    all_ranks = evaluated(apart, dp=64, sharding="zero3")
    in_node = evaluated(apart, dp=64, sharding="zero3", shards=8)
    assert in_node.state_bytes[0] > all_ranks.state_bytes[0]
    assert in_node.steps.exposed_s[0] < all_ranks.steps.exposed_s[0]


def test_memory_alone_is_that_of_the_whole_evaluation() -> None:
    for columns in ({"dp": 1}, {"sharding": "zero2"}, {"sharding": "zero3", "microbatches": 4}):
        found = evaluated(**columns)
        alone = weighed_strategies(table(**columns), [blocks()], FAST).memory
        assert alone.process_mid_bytes == found.steps.memory_mid_bytes
        assert alone.process_high_bytes == found.steps.memory_high_bytes
        assert found.steps.memory_high_bytes[0] > found.allocated_bytes[0] >= found.state_bytes[0]


def with_variant(variant: Variant, fabric: ClusterLinks = FAST, **columns) -> StrategyEvaluation:
    return evaluate_strategies(table(**columns), [variant], fabric)


def test_the_last_stage_holds_one_microbatch_however_many_pass() -> None:
    """1F1B (Narayanan et al., SC 2021): a stage holds as many microbatches as stages follow it."""
    assert evaluated(dp=1).steps.last_memory_frac[0] == 1.0
    variants = [blocks("transformer:layers=8,hidden=512,heads=8,vocab=512")]
    fabric = replace(FAST, profile=replace(USUAL, keeps_messages=False))
    few, many = (
        evaluate_strategies(table(dp=1, pp=4, microbatches=count, kind="1f1b"), variants, fabric)
        for count in (2, 8)
    )
    last = [one.steps.last_memory_frac[0] * one.allocated_bytes[0] for one in (few, many)]
    assert last[1] == pytest.approx(last[0])
    assert many.steps.last_memory_frac[0] < 0.8


def test_the_host_of_an_update_shows_only_beyond_what_it_is_ahead() -> None:
    """On the device the update starts when backward is over; the host has begun it before."""
    costs = blocks().costs
    by_host = [
        with_variant(replace(blocks(), costs=replace(costs, update_host_s=host_s)), dp=1)
        for host_s in (0.0, 1e-3, 100.0, 101.0)
    ]
    device_s, hidden_s, long_s, longer_s = (float(one.steps.update_s[0]) for one in by_host)
    assert hidden_s == device_s
    ahead_s = device_s + 100.0 - long_s
    work_s = float((costs.forward_s + costs.backward_s).sum())
    assert 1e-3 < ahead_s <= work_s
    assert longer_s - long_s == pytest.approx(1.0)


def test_each_stage_dispatches_the_update_of_its_own_blocks() -> None:
    slow = replace(blocks(), costs=replace(blocks().costs, update_host_s=1000.0))
    slower = replace(blocks(), costs=replace(blocks().costs, update_host_s=1004.0))
    piped = replace(
        table(dp=1, microbatches=8), pp=np.array([4]), kind=np.array([KINDS.index("1f1b")])
    )
    found = [evaluate_strategies(piped, [one], FAST).steps.update_s[0] for one in (slow, slower)]
    assert found[1] - found[0] == pytest.approx(4.0 / 4)


def node_link(bytes_per_s: float) -> LinkTable:
    link = make_link("a network", kind="infiniband", scope="node", bytes_per_s=bytes_per_s)
    return LinkTable.from_links([replace(link, latency_s=0.0)])


@pytest.mark.parametrize("stride", [8, 16])
def test_tensor_ranks_of_a_node_share_its_network(stride: int) -> None:
    """Eight reduce at once, each with an eighth; those of other nodes have their own network."""
    shared = replace(FAST, node_link=node_link(8e8), profile=AFTER_BACKWARD)
    lone = replace(
        FAST,
        node_link=node_link(1e8),
        profile=AFTER_BACKWARD,
        devices_per_node=1,
    )
    group = with_variant(replace(blocks(), shape=SplitShape(tensor=stride)), shared, dp=2)
    alone = with_variant(blocks(), lone, dp=2)
    assert group.steps.exposed_s[0] == pytest.approx(alone.steps.exposed_s[0], rel=1e-3)


def test_replicas_of_a_nodes_shards_meet_between_nodes() -> None:
    """Shards stay inside; what replicas sum crosses the network, an eighth for each device."""
    exposed_s = [
        evaluated(
            replace(FAST, node_link=node_link(rate), profile=AFTER_BACKWARD),
            dp=16, shards=8, sharding="zero3",
        ).steps.exposed_s[0]
        for rate in (1e9, 5e8)
    ]  # fmt: skip
    inside_s = evaluated(
        replace(FAST, profile=AFTER_BACKWARD),
        dp=8,
        shards=8,
        sharding="zero3",
    ).steps.exposed_s[0]
    reduced_bytes = whole_state().reduced
    assert exposed_s[0] - inside_s == pytest.approx(reduced_bytes / 1e9, rel=0.1)
    assert exposed_s[1] - exposed_s[0] == pytest.approx(reduced_bytes / 1e9, rel=0.1)


def experts() -> Variant:
    """The same with half the parameters of each block in experts, of which two ranks have parts."""
    costs = blocks().costs
    half = TrainingState(np.repeat(costs.state.values[:, :1] / 2, 2, axis=1))
    return replace(blocks(), shape=SplitShape(experts=2), costs=replace(costs, state=half))


def test_what_experts_and_others_reduce_hides_behind_one_backward() -> None:
    hidden, bare = (
        with_variant(
            experts(),
            replace(SLOW, node_link=ETHERNET, profile=profile),
            dp=4,
        )
        for profile in (USUAL, AFTER_BACKWARD)
    )
    saved_s = bare.steps.exposed_s[0] - hidden.steps.exposed_s[0]
    assert 0.5 * hidden.steps.backward_s[0] < saved_s <= hidden.steps.backward_s[0] * (1 + 1e-9)


def test_ranks_with_experts_wait_for_the_slowest_once() -> None:
    """Where nothing takes time on the wire, waiting alone is left."""
    instant = LinkTable.from_links([replace(make_link(bytes_per_s=1e30), latency_s=0.0)])
    quick = replace(FAST, device_link=instant, node_link=instant)
    waits, plain = (with_variant(one, quick, dp=4) for one in (experts(), blocks()))
    twice = with_variant(blocks(), quick, dp=8)
    assert (
        plain.steps.exposed_s[0]
        <= waits.steps.exposed_s[0]
        <= twice.steps.exposed_s[0] * (1 + 1e-6)
    )


def test_chunks_give_gradients_time_to_travel() -> None:
    """A chunk's are whole while the last group of microbatches passes the chunks before it."""

    def exposed_per_parameter(chunks: int, kind: str) -> float:
        found = evaluated(SLOW, pp=4, microbatches=8, chunks=chunks, kind=kind)
        return float(found.steps.exposed_s[0] / found.updated.trained[0])

    whole, two, three = (
        exposed_per_parameter(chunks, kind)
        for chunks, kind in ((1, "1f1b"), (2, "interleaved"), (3, "interleaved"))
    )
    assert whole > two > three > 0.0


def test_megatrons_optimizer_gathers_behind_the_forward_pass() -> None:
    ahead = replace(SLOW, profile=find_training_profile("megatron"))
    for calls in ({}, {"pp": 4, "microbatches": 8, "kind": "1f1b"}):
        after_s, before_s = (
            evaluated(fabric, **calls, sharding="zero1").steps.exposed_s[0]
            for fabric in (SLOW, ahead)
        )
        assert 0.0 < before_s < after_s
    assert evaluated(ahead, dp=1).steps.step_s == evaluated(SLOW, dp=1).steps.step_s
