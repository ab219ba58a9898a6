"""Two kinds of device: shares in proportion to speed, and what cannot be."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.catalog.entities import Link
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.cases import Cases
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate
from paceline.simulation.unequal import Part, UnequalStep, _splits, unequal_step


@cache
def cluster(device: str, *, node_link: str | None = "dgx-h100-ib") -> Cluster:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    return Cluster(
        device=find_device(catalog, device), devices_per_node=8,
        device_link=links["dgx-h100-nvls"], node_link=links[node_link] if node_link else None,
    )  # fmt: skip


def cluster_link(name: str) -> Link:
    return next(link for link in load_catalog().links if link.name == name)


@cache
def job(model: str = "resnet50") -> Job:
    return Job(workload=load_workload(model))


def step(one: Part, other: Part, batch: int = 2048, text: str | None = None) -> UnequalStep:
    strategy = None if text is None else Strategy.parse(text)
    return unequal_step(job(), one, other, global_batch=batch, strategy=strategy)


FAST, SLOW = "H100 SXM5 80GB", "A100 SXM4 80GB"


def test_equal_devices_get_equal_shares() -> None:
    part = Part(cluster=cluster(FAST), count=8)
    found = step(part, part)
    assert [share.items_per_device for share in found.shares] == [128, 128]
    assert found.items_per_s == found.equal_items_per_s


def test_shares_follow_speed_and_both_kinds_are_done_together() -> None:
    found = step(Part(cluster=cluster(FAST), count=8), Part(cluster=cluster(SLOW), count=8))
    fast, slow = found.shares
    assert fast.items_per_device > slow.items_per_device
    assert fast.alone_s == pytest.approx(slow.alone_s, rel=0.05)
    assert fast.count * fast.items_per_device + slow.count * slow.items_per_device == 2048
    assert found.equal_items_per_s is not None
    assert found.items_per_s > 1.05 * found.equal_items_per_s
    assert found.best_alone_items_per_s is not None
    assert found.items_per_s > found.best_alone_items_per_s


@given(
    counts=st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8])),
    batch=st.integers(2, 64),
)
@settings(max_examples=12, deadline=None)
def test_every_item_is_somebodys_and_no_split_is_slower_than_equal_shares(counts, batch) -> None:
    one, other = (
        Part(cluster=cluster(name), count=count)
        for name, count in zip((FAST, SLOW), counts, strict=True)
    )
    found = step(one, other, batch * sum(counts))
    assert sum(s.count * s.items_per_device for s in found.shares) == batch * sum(counts)
    assert all(share.items_per_device >= 1 for share in found.shares)
    assert found.equal_items_per_s is not None
    assert found.items_per_s >= found.equal_items_per_s / 1.02
    assert found.step_s > max(share.alone_s for share in found.shares)


@given(first=st.integers(1, 16), second=st.integers(1, 16), batch=st.integers(1, 600))
def test_splits_are_whole_reach_both_ends_and_hold_equal_shares(first, second, batch) -> None:
    every = {
        (own, (batch - own * first) // second)
        for own in range(1, batch)
        if batch > own * first and (batch - own * first) % second == 0
    }
    if not every:
        with pytest.raises(InvalidInputError) as caught:
            _splits(first, second, batch)
        enough = int(caught.value.hint.rpartition(" ")[2])
        assert enough > batch
        assert len(_splits(first, second, enough))
        return
    found = [tuple(split) for split in _splits(first, second, batch).tolist()]
    assert set(found) <= every
    assert {min(every), max(every)} <= set(found)
    assert {split for split in every if split[0] == split[1]} <= set(found)
    assert len(found) == len(set(found)) >= min(len(every), 30)


def test_the_better_kind_alone_is_what_the_other_does_not_change() -> None:
    fast = Part(cluster=cluster(FAST), count=8)
    near, far = (step(fast, Part(cluster=cluster(name), count=8)) for name in (SLOW, "V100 SXM2"))
    assert near.best_alone_items_per_s is not None
    assert near.best_alone_items_per_s == far.best_alone_items_per_s
    assert 0.4 < near.best_alone_items_per_s / near.items_per_s < 1.0
    # Seven do not divide the batch: only the one other runs it alone.
    found = step(replace(fast, count=7), Part(cluster=cluster(SLOW), count=1), 512)
    assert found.best_alone_items_per_s is not None
    assert found.best_alone_items_per_s < 0.25 * found.items_per_s


def test_a_lone_device_of_a_node_needs_no_link_inside_it() -> None:
    joined = [Part(cluster=cluster(name), count=1) for name in (FAST, SLOW)]
    bare = [replace(part, cluster=replace(part.cluster, device_link=None)) for part in joined]
    assert step(*bare, 256).step_s == step(*joined, 256).step_s
    with pytest.raises(InvalidInputError, match="no link with each other"):
        step(*(replace(part, count=8) for part in bare))


def test_places_of_a_node_that_are_empty_bring_nobody_nearer() -> None:
    """Two of eight places are a node of two; kinds meet over the network whatever their nodes."""
    roomy = [Part(cluster=cluster(name), count=2) for name in (FAST, SLOW)]
    tight = [replace(part, cluster=replace(part.cluster, devices_per_node=2)) for part in roomy]
    assert step(*roomy, 512) == step(*tight, 512)
    far = [replace(p, cluster=replace(p.cluster, node_link=cluster_link("eth-1"))) for p in roomy]
    both = step(*far, 512).step_s
    assert step(roomy[0], far[1], 512).step_s == step(far[0], roomy[1], 512).step_s == both
    assert both > step(*roomy, 512).step_s


def test_the_order_of_the_kinds_does_not_matter() -> None:
    one, other = Part(cluster=cluster(FAST), count=8), Part(cluster=cluster(SLOW), count=4)
    there, back = step(one, other), step(other, one)
    assert there.step_s == pytest.approx(back.step_s)
    assert there.shares == back.shares[::-1]


def test_a_small_card_gets_what_fits() -> None:
    small = cluster(FAST)
    lean = replace(small, device=replace(small.device, memory_bytes=8e9, usable_memory_bytes=None))
    found = step(Part(cluster=cluster(FAST), count=8), Part(cluster=lean, count=8), 4096)
    roomy, tight = found.shares
    assert tight.needed_bytes <= 8e9
    assert roomy.items_per_device > tight.items_per_device
    assert found.equal_items_per_s is None


@pytest.mark.parametrize("text", ["dp16+zero3", "dp8.tp2", "pp2.dp8", "dp8", "dp16/mb2"])
def test_a_strategy_that_gives_every_rank_the_same_work_is_refused(text: str) -> None:
    one, other = Part(cluster=cluster(FAST), count=8), Part(cluster=cluster(SLOW), count=8)
    with pytest.raises(InvalidInputError, match="these devices are unequal") as caught:
        step(one, other, text=text)
    assert "`dp16`" in caught.value.hint
    assert step(one, other, text="dp16") == step(one, other)


def test_what_cannot_be_split_or_joined_says_so() -> None:
    one, other = Part(cluster=cluster(FAST), count=8), Part(cluster=cluster(SLOW), count=8)
    with pytest.raises(InvalidInputError, match="do not split into whole items") as caught:
        step(one, other, 100)
    assert "112" in caught.value.hint
    with pytest.raises(InvalidInputError, match="no link with each other"):
        step(one, Part(cluster=cluster(SLOW, node_link=None), count=8))
    with pytest.raises(DoesNotFitError, match="no split of 10000000 items"):
        step(one, other, 10_000_000)
    with pytest.raises(InvalidInputError, match="no devices"):
        Part(cluster=cluster(FAST), count=0)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_halves_of_one_kind_take_the_step_of_equal_replicas(framework: str) -> None:
    """Whether the software reduces gradients in buckets or one by one."""
    asked = replace(job(), profile=framework)
    node = replace(cluster(FAST), devices_per_node=4)
    half = Part(cluster=node, count=4)
    found = unequal_step(asked, half, half, global_batch=1024)
    ones = np.ones(1, dtype=np.int64)
    cases = Cases(
        jobs=(asked,), machines=(Machine.of_cluster(node, 8),), job=0 * ones,
        machine=0 * ones, batch=np.array([128.0]), replicas=8 * ones, microbatches=ones,
    )  # fmt: skip
    assert found.step_s == pytest.approx(simulate(cases).step_s[0], rel=1e-6)
