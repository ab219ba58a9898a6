"""What the host spends where modules launch each kernel, and experts are its loop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from links_of_tests import make_link

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph, OpKind, Phase
from paceline.model.lowering import lower, rewritten
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.schedule.blocks import BlockCosts, TensorGroup, block_costs
from paceline.parallelism.schedule.launches import Launches, launches_of, waits_for_counts
from paceline.parallelism.split import SplitShape, split
from paceline.parallelism.training_profile import find_training_profile
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points

LAYERS, EXPERTS, PRODUCTS = 32, 8, 6
EXPERT_S = builtin_calibration().constant("host_waits", "expert_s")


@pytest.fixture(scope="module")
def mixtral() -> Graph:
    return load_workload("mixtral-8x7b").passes[0].graph


def costs_of(
    graph: Graph, compiler: str = "compiled", *, experts: int = 1, checkpointing: str = "none",
    **habits: bool,
) -> BlockCosts:  # fmt: skip
    link = LinkTable.from_links([make_link()])
    how = Configuration(
        compiler=compiler, training_format="half-weights", precision="bf16",
        checkpointing=checkpointing,
    )  # fmt: skip
    return block_costs(
        graph,
        how,
        DeviceTable.from_devices([find_device(load_catalog(), "H100 SXM5 80GB")]),
        Points(batch=np.array([1.0]), seq=np.array([512.0])),
        TensorGroup(
            shape=SplitShape(experts=experts), ranks_per_node=8, device_link=link, node_link=link,
            profile=replace(find_training_profile(), **habits),
        ),
    )  # fmt: skip


def again(graph: Graph, checkpointing: str) -> float:
    """Share of the work of forward that backward does again."""
    program = rewritten(graph, Configuration(precision="bf16", checkpointing=checkpointing))
    flop, phase = program.ops.flop.sum(axis=1), program.ops.phase
    return float(flop[phase == Phase.RECOMPUTE].sum() / flop[phase == Phase.FORWARD].sum())


def host_s(costs: BlockCosts) -> float:
    return float((costs.forward_host_s + costs.backward_host_s).sum())


def device_s(costs: BlockCosts) -> float:
    return float((costs.forward_s + costs.backward_s).sum())


def launched(graph: Graph, how: Configuration, ranks: int = 1) -> Launches:
    shape = SplitShape(experts=ranks)
    program = rewritten(split(graph, shape).graph, how)
    nothing = np.zeros(len(program.ops), dtype=np.int64), np.zeros((2, 1))
    return launches_of(graph, program, shape, *nothing, "none")


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_experts_are_counted_product_by_product(mixtral, ranks) -> None:
    """Gate and up at once, and down: two products forward, four backward, in each layer."""
    counts = launched(mixtral, Configuration(precision="bf16"), ranks).experts
    assert counts.sum() == pytest.approx(LAYERS * EXPERTS / ranks * PRODUCTS)


@pytest.mark.parametrize("attention", ["flash", "math"])
def test_models_without_experts_loop_over_none(attention) -> None:
    graph, how = load_workload("gpt2").passes[0].graph, Configuration(attention=attention)
    found = launched(graph, how)
    assert not found.experts.any()
    assert not len(waits_for_counts(lower(graph, how), found))


def test_the_host_waits_once_a_layer_before_its_experts(mixtral) -> None:
    how = Configuration(precision="bf16")
    lowered = lower(mixtral, how)
    waits, costs = waits_for_counts(lowered, launched(mixtral, how)), lowered.costs
    assert len(waits) == LAYERS
    assert (costs.phase[costs.order[waits]] == Phase.FORWARD).all()
    assert (costs.kind[costs.order[waits + 1]] == OpKind.MATMUL).all()


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_rank_loops_over_its_own_experts(mixtral, ranks) -> None:
    plain, looped = (
        costs_of(mixtral, experts=ranks, loops_experts=loops).backward_host_s.sum()
        for loops in (False, True)
    )
    mine = LAYERS * EXPERTS / ranks * 4 * EXPERT_S
    assert looped - plain == pytest.approx(mine, rel=1e-6)


def test_waits_and_loops_add_to_a_step_and_never_more_than_host_and_wait(mixtral) -> None:
    plain, looped = (costs_of(mixtral, experts=8, loops_experts=loops) for loops in (False, True))
    added = device_s(looped) - device_s(plain)
    assert 0.0 < added < host_s(looped) + LAYERS * 1e-4


def test_kernels_that_a_library_fused_are_launched_as_modules_are_written(mixtral) -> None:
    """The device runs what is fused; the host takes what it takes where nothing is."""
    eager, fused = costs_of(mixtral, "eager"), costs_of(mixtral, launches_each=True)
    compiled = costs_of(mixtral)
    assert host_s(fused) == pytest.approx(host_s(eager), rel=0.01)
    assert host_s(fused) > 3.0 * host_s(compiled)
    assert device_s(fused) == device_s(compiled) < device_s(eager)
    assert fused.update_host_s == compiled.update_host_s


def test_what_is_not_compiled_is_launched_one_by_one_anyway(mixtral) -> None:
    plain, each = costs_of(mixtral, "eager"), costs_of(mixtral, "eager", launches_each=True)
    assert host_s(plain) == host_s(each)


def test_experts_alone_are_computed_again(mixtral) -> None:
    """Of Mixtral 8x7B 11.3 of 12.9 billion parameters of a token are its experts'."""
    assert again(mixtral, "experts") == pytest.approx(0.88, abs=0.01)
    assert again(mixtral, "experts") < again(mixtral, "block")
    assert again(load_workload("gpt2").passes[0].graph, "experts") == 0.0


def test_what_experts_keep_goes_and_tokens_travel_again(mixtral) -> None:
    kept, less, least = (
        costs_of(mixtral, experts=8, checkpointing=how) for how in ("none", "experts", "block")
    )
    assert kept.saved_bytes.sum() > less.saved_bytes.sum() > least.saved_bytes.sum()
    assert less.tensor_s.sum() == pytest.approx(1.5 * kept.tensor_s.sum(), rel=1e-6)
    assert less.tensor_s.sum() == pytest.approx(least.tensor_s.sum(), rel=1e-6)
    assert device_s(kept) < device_s(less) < device_s(least)
