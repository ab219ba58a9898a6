from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from tests.unit.parallelism.stated_of_tests import searched

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.model.settings import read_settings
from paceline.parallelism.collectives.links import LinkTable
from paceline.parallelism.evaluation import evaluate_strategies
from paceline.parallelism.memory.memory_fit import MEMORY_CONFIDENCE
from paceline.parallelism.schedule.table import KINDS, ClusterLinks
from paceline.parallelism.search import (
    SearchSpace,
    enumerate_strategies,
    prepare_search,
)
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.devices import DeviceTable

SMALL = "transformer:layers=8,hidden=1024,heads=8,vocab=4096,positions=1024,ffn=4096"


@cache
def space(
    model: str = "gpt2", *, capacity_bytes: float = 80e9, seq: int = 1024,
    memory_confidence: float = MEMORY_CONFIDENCE, settings: str = "",
) -> SearchSpace:  # fmt: skip
    catalog = load_catalog()
    device = find_device(catalog, "H100 SXM5 80GB")
    links = {link.name: LinkTable.from_links([link]) for link in catalog.links}
    fabric = ClusterLinks(
        devices_per_node=8,
        device_link=links["dgx-h100-nvls"],
        node_link=links["dgx-h100-ib"],
    )
    graph = load_workload(model).passes[0].graph
    return prepare_search(
        graph,
        read_settings(settings, Configuration()),
        DeviceTable.from_devices([device]),
        fabric,
        seq=seq,
        capacity_bytes=capacity_bytes,
        microbatches=(1, 4),
        memory_confidence=memory_confidence,
    )


@pytest.mark.parametrize("num_devices", [1, 4, 16])
def test_the_search_finds_what_one_by_one_evaluation_finds(num_devices) -> None:
    prepared = space()
    table = enumerate_strategies(prepared, num_devices=num_devices, global_batch=64)
    variants = prepared.variants
    alone = [
        evaluate_strategies(table.take([row]), variants, prepared.fabric).steps.step_s[0]
        for row in range(len(table))
    ]
    best = searched(prepared, num_devices=num_devices, global_batch=64, num_best=1)
    assert best[0].step_s == pytest.approx(min(alone), rel=1e-12)


def test_backward_is_split_where_nothing_is_recomputed() -> None:
    """It takes no longer than 1F1B, and keeps more: what gradients of weights are made of."""
    prepared = space(SMALL)
    table = enumerate_strategies(prepared, num_devices=8, global_batch=64)
    recomputes = np.array([v.checkpointing != "none" for v in prepared.variants])[table.variant]
    found = evaluate_strategies(table, prepared.variants, prepared.fabric)
    split, usual = (
        np.flatnonzero((table.kind == KINDS.index(kind)) & ~recomputes) for kind in ("zbh1", "1f1b")
    )
    assert len(split) == len(usual) > 10
    assert not recomputes[table.kind == KINDS.index("zbh1")].any()
    steps = found.steps
    assert (steps.step_s[split] <= steps.step_s[usual] * (1 + 1e-9)).all()
    assert (steps.memory_high_bytes[split] >= steps.memory_high_bytes[usual]).all()


@pytest.mark.parametrize("num_devices", [1, 4, 16, 64])
def test_every_strategy_uses_the_devices_and_the_batch(num_devices) -> None:
    prepared = space()
    table = enumerate_strategies(prepared, num_devices=num_devices, global_batch=64)
    for row in range(len(table)):
        strategy = table.strategy(row, prepared.kinds)
        items = prepared.microbatches[int(table.point[row])] * strategy.schedule.num_microbatches
        assert strategy.num_ranks == num_devices
        assert items * strategy.num_batches == 64
        assert Strategy.parse(str(strategy)) == strategy


def test_experts_are_spread_where_a_model_has_them() -> None:
    """Eight nodes hold Mixtral: expert ranks share what replicas would each have to keep."""
    prepared = space("mixtral-8x7b", seq=4096)
    table = enumerate_strategies(prepared, num_devices=64, global_batch=256)
    degrees = {prepared.kinds[v].shape.experts for v in table.variant.tolist()}
    assert degrees == {1, 2, 4, 8}
    for row in range(0, len(table), 37):
        strategy = table.strategy(row, prepared.kinds)
        items = prepared.microbatches[int(table.point[row])] * strategy.schedule.num_microbatches
        assert strategy.num_ranks == 64
        assert items * strategy.num_batches == 256
        assert Strategy.parse(str(strategy)) == strategy
    best = searched(prepared, num_devices=64, global_batch=256, num_best=1)[0]
    assert best.strategy.size("ep") > 1


@pytest.mark.parametrize("model", [SMALL, "gpt2"])
def test_weights_of_few_bits_are_sharded_or_staged_and_not_cut(model: str) -> None:
    """As bitsandbytes and torchao store them, no trainer cuts them; whole ones it does."""
    wide, narrow = (
        space(model, settings=f"lora_rank=8{frozen}") for frozen in ("", ",frozen_weights=int4")
    )
    assert max(kind.shape.tensor for kind in wide.kinds) > 1
    assert {kind.shape.tensor for kind in narrow.kinds} == {1}
    strategies = searched(narrow, num_devices=8, global_batch=64, num_best=3)
    assert all(one.strategy.size("tp") == 1 for one in strategies)


def test_the_parts_of_a_step_stay_inside_it() -> None:
    prepared = space()
    table = enumerate_strategies(prepared, num_devices=16, global_batch=64)
    found = evaluate_strategies(table, prepared.variants, prepared.fabric)
    steps = found.steps
    assert (steps.bubble_s >= -1e-9).all()
    assert (steps.lost_s + steps.update_s <= steps.step_s * (1 + 1e-9)).all()
    assert (steps.memory_high_bytes > found.allocated_bytes).all()


def test_pipelines_and_sharding_divide_the_state() -> None:
    prepared = space()
    table = enumerate_strategies(prepared, num_devices=16, global_batch=64)
    found = evaluate_strategies(table, prepared.variants, prepared.fabric)
    plain = (table.pp == 1) & (table.variant == 0)
    by_level = [found.state_bytes[plain & (table.sharding == s)].max() for s in (0, 2, 3)]
    assert by_level[0] > by_level[1] > by_level[2]


@pytest.mark.parametrize("confidence", [0.5, MEMORY_CONFIDENCE, 0.95])
def test_less_memory_never_makes_it_faster(confidence: float) -> None:
    """A strategy must fit at the chance that counts, not at that of the bound that is told."""
    found = [
        searched(
            space(capacity_bytes=limit, memory_confidence=confidence),
            num_devices=4, global_batch=64, num_best=1,
        )[0]
        for limit in (80e9, 8e9, 6e9, 5e9)
    ]  # fmt: skip
    times = [one.step_s for one in found]
    assert times == sorted(times)
    assert times[-1] > times[0]
    for limit, one in zip((80e9, 8e9, 6e9, 5e9), found, strict=True):
        assert one.needed_bytes(confidence) <= limit * (1 + 1e-12)


def test_what_cannot_be_says_so() -> None:
    with pytest.raises(InvalidInputError, match="1 items over 16 devices"):
        searched(space(), num_devices=16, global_batch=1)
    with pytest.raises(DoesNotFitError, match="strategies needs"):
        searched(space(capacity_bytes=1e8), num_devices=4, global_batch=64)


def test_large_models_split_over_a_node_before_they_fit() -> None:
    prepared = space("llama-3-70b", seq=2048)
    best = searched(prepared, num_devices=64, global_batch=64, num_best=3)
    for found in best:
        is_split = found.strategy.size("tp") * found.strategy.size("pp") > 1
        assert is_split or found.strategy.sharding == "zero3"
    assert np.isfinite([f.step_s for f in best]).all()


@pytest.mark.parametrize(
    ("model", "seq", "num_devices"),
    [("gpt2", 1024, 16), (SMALL, 1024, 8), ("mixtral-8x7b", 4096, 16)],
)
def test_no_strategy_is_faster_than_the_bound(model, seq, num_devices) -> None:
    prepared = space(model, seq=seq)
    table = enumerate_strategies(prepared, num_devices=num_devices, global_batch=256)
    found = evaluate_strategies(table, prepared.variants, prepared.fabric)
    least_s = prepared.least_step_s(num_devices=num_devices, global_batch=256)
    assert 0.5 * found.steps.step_s.min() < least_s <= found.steps.step_s.min()
