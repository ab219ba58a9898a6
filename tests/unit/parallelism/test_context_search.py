"""Context parallel in the search, and the search against enumeration of strategies one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from tests.sampled import sampled
from tests.unit.parallelism.stated_of_tests import Found, searched
from tests.unit.parallelism.stated_of_tests import evaluate_blocks as evaluate_stated

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import Graph
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.search import (
    CONTEXT_MARGIN,
    CONTEXT_PART_TOKENS,
    SearchSpace,
    enumerate_strategies,
    prepare_search,
)
from paceline.parallelism.strategy.strategy import Schedule, Strategy
from paceline.parallelism.traced_job import TracedJob, fabric_of
from paceline.prediction.devices import DeviceTable

SMALL = "transformer:layers=4,hidden=256,heads=4,vocab=512,positions=65536,ffn=512"
HOW = Configuration(training_format="half-weights")
DEGREES = (1, 2, 4, 8)


@cache
def graph(model: str = SMALL) -> Graph:
    return load_workload(model).passes[0].graph


def cluster(node_link: str = "dgx-h100-ib", devices_per_node: int = 4) -> Cluster:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    return Cluster(
        device=find_device(catalog, "H100 SXM5 80GB"),
        devices_per_node=devices_per_node,
        device_link=links["dgx-h100-nvls"],
        node_link=links[node_link],
    )


@cache
def space(
    model: str = SMALL, *, seq: int = 1024, part_tokens: int = CONTEXT_PART_TOKENS,
    node_link: str = "dgx-h100-ib", devices_per_node: int = 4, microbatches: tuple[int, ...] = (1,),
) -> SearchSpace:  # fmt: skip
    on = cluster(node_link, devices_per_node)
    return prepare_search(
        graph(model), HOW, DeviceTable.from_devices([on.device]),
        fabric_of(on, Configuration()), seq=seq, capacity_bytes=on.device.memory_bytes or 0.0,
        microbatches=microbatches, context_part_tokens=part_tokens,
    )  # fmt: skip


def one_by_one(num_devices: int, global_batch: int, seq: int) -> Iterator[Found]:
    """Every strategy of the stated space that is legal and fits, each evaluated alone."""
    mesh = itertools.product(DEGREES, repeat=4)
    for (dp, cp, tp, pp), recompute in itertools.product(mesh, ("none", "block")):
        if dp * cp * tp * pp != num_devices or tp > 4 or global_batch % dp:
            continue
        for schedule, sharding in itertools.product(
            orders(pp, global_batch // dp, recompute), ("none", "zero1", "zero2", "zero3")
        ):
            if sharding in (("zero2", "zero3") if pp > 1 else ("zero1",)):
                continue
            if sharding != "none" and dp * cp == 1:
                continue
            for shards in (1, 4 // (cp * tp)) if sharding == "zero3" else (1,):
                if shards > 1 and (dp <= shards or dp % shards):
                    continue
                for ulysses in {1, min(cp, 4 // tp)}:  # four heads, and four devices of a node
                    stated = Strategy.from_degrees(
                        dp=dp // max(shards, 1), fsdp=max(shards, 1), cp=cp, tp=tp, pp=pp,
                        schedule=schedule, sharding="none" if shards > 1 else sharding,
                        recompute=recompute, sequence_parallel=tp > 1, ulysses=ulysses,
                    )  # fmt: skip
                    job = TracedJob(graph=graph(), configuration=HOW, cluster=cluster(), seq=seq)
                    try:
                        yield evaluate_stated(job, stated, global_batch=global_batch)
                    except (InvalidInputError, DoesNotFitError):
                        continue


def orders(pp: int, count: int, recompute: str) -> list[Schedule]:
    if pp == 1:
        return [Schedule(num_microbatches=count)]
    if count < 2:
        return []
    chunks = [v for v in (2, 4) if count % pp == 0]
    return [
        Schedule(kind="1f1b", num_microbatches=count),
        *([Schedule(kind="zbh1", num_microbatches=count)] if recompute == "none" else []),
        *[Schedule(kind="interleaved", num_microbatches=count, num_chunks=v) for v in chunks],
    ]


@pytest.mark.parametrize(("num_devices", "global_batch"), sampled([(4, 4), (8, 8), (8, 2)], (8, 2)))
def test_the_search_is_equal_to_enumerating_strategies_one_by_one(
    num_devices: int, global_batch: int
) -> None:
    """Context parallel included; the best is the best of all, by the rule for cut sequences."""
    seq, found = 1024, {}
    for one in one_by_one(num_devices, global_batch, seq):
        found[str(one.strategy)] = one.step_s * (
            CONTEXT_MARGIN if one.strategy.size("cp") > 1 else 1.0
        )
    prepared = space(seq=seq, part_tokens=128)
    table = enumerate_strategies(prepared, num_devices=num_devices, global_batch=global_batch)
    names = {str(table.strategy(row, prepared.kinds)) for row in range(len(table))}
    assert names == set(found)
    assert any("cp" in name and "ulysses" not in name for name in names)
    assert any("ulysses" in name for name in names)
    assert any("zbh1" in name for name in names)
    best = searched(prepared, num_devices=num_devices, global_batch=global_batch, num_best=1)[0]
    margin = CONTEXT_MARGIN if best.strategy.size("cp") > 1 else 1.0
    assert best.step_s * margin == pytest.approx(min(found.values()), rel=1e-9)


def degrees_of(prepared: SearchSpace) -> set[tuple[int, int]]:
    return {(v.shape.tensor, v.shape.sequence) for v in prepared.kinds}


def test_short_sequences_are_not_cut() -> None:
    assert {cp for _, cp in degrees_of(space(seq=2 * CONTEXT_PART_TOKENS - 2))} == {1}
    assert {cp for _, cp in degrees_of(space(seq=2 * CONTEXT_PART_TOKENS))} == {1, 2}


def test_parts_are_whole_and_stay_in_a_node_on_a_slow_network() -> None:
    fast, slow = (
        degrees_of(space(seq=65_536, node_link=name)) for name in ("dgx-h100-ib", "eth-25")
    )
    assert max(cp for _, cp in fast) == 16
    assert all(tp * cp <= 4 for tp, cp in slow)
    assert slow < fast
    assert {cp for _, cp in degrees_of(space(seq=8191, part_tokens=256))} == {1}
    halves = [one.shape for one in space(seq=8190, part_tokens=256).kinds]
    assert {(one.ring, one.ulysses) for one in halves} == {(1, 1), (1, 2)}


def test_a_model_without_a_sequence_is_not_cut() -> None:
    catalog_model = space("resnet50", seq=65_536)
    assert {cp for _, cp in degrees_of(catalog_model)} == {1}


def test_long_sequences_are_cut_where_a_batch_has_fewer_of_them_than_devices() -> None:
    """Two sequences: replicas cannot have more than two of them, nor stages more than 12 layers."""
    prepared = space("gpt2", seq=131_072, devices_per_node=8)
    alone = space("gpt2", seq=131_072, devices_per_node=8, part_tokens=131_072)
    for num_devices in (32, 64):
        best = searched(prepared, num_devices=num_devices, global_batch=2, num_best=1)[0]
        assert best.strategy.size("cp") >= num_devices // 8
        if num_devices == 64:
            with pytest.raises(InvalidInputError, match="no strategy spreads"):
                searched(alone, num_devices=num_devices, global_batch=2)
        else:
            without = searched(alone, num_devices=num_devices, global_batch=2)[0]
            assert best.step_s < without.step_s / 2


@pytest.mark.parametrize("seq", sampled([8192, 32_768], 32_768))
def test_what_is_cut_gains_more_than_the_margin(seq: int) -> None:
    prepared = space("gpt2", seq=seq, devices_per_node=8)
    alone = space("gpt2", seq=seq, devices_per_node=8, part_tokens=seq)
    for num_devices, global_batch in ((8, 64), (64, 64), (64, 16)):
        best, without = (
            searched(s, num_devices=num_devices, global_batch=global_batch, num_best=1)[0]
            for s in (prepared, alone)
        )
        if best.strategy.size("cp") > 1:
            assert best.step_s * CONTEXT_MARGIN < without.step_s
        else:
            assert np.isclose(best.step_s, without.step_s, rtol=1e-12)
