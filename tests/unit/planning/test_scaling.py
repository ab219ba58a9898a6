from __future__ import annotations

import pytest
from tests.sampled import sampled

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import DoesNotFitError, InvalidInputError
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.parallelism.strategy.complexity import (
    RANK_OF_KIND,
    complexity,
    kinds_in,
    kinds_mask,
    kinds_of,
)
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planning.decisions.curve import ScalingCurve
from paceline.planning.decisions.device_counts import BatchRule, scaling_curve
from paceline.simulation.job import Job


def cluster(*, device="H100 SXM5 80GB", inside="dgx-h100-nvls", between="dgx-h100-ib", **more):
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    return Cluster(
        device=find_device(catalog, device),
        devices_per_node=8,
        device_link=links.get(inside),
        node_link=links.get(between),
        usd_per_device_hour=2.0,
        **more,
    )


def curve(model="resnet50", counts=(1, 2, 4, 8, 16, 64), *, seq=None, on=None, **more):
    batch = more.pop("batch", BatchRule(batch_per_device=64))
    return scaling_curve(
        Job(workload=load_workload(model), seq=seq),
        on or cluster(),
        counts=counts,
        batch=batch,
        **more,
    )


def efficiencies(found: ScalingCurve) -> list[float]:
    return [point.efficiency_frac for point in found.points]


def test_constant_batch_per_device_keeps_the_batch_and_never_gains_efficiency() -> None:
    found = curve()
    assert [p.count for p in found.points] == [1, 2, 4, 8, 16, 64]
    assert all(p.global_batch == 64 * p.count for p in found.points)
    assert efficiencies(found)[0] == 1.0
    assert all(e <= 1.02 for e in efficiencies(found))
    assert all(Strategy.parse(p.strategy).num_ranks == p.count for p in found.points)


def test_resnet_on_256_devices_over_ethernet_and_over_nvlink() -> None:
    """Goyal et al. 2017: about 90 % from 8 to 256 GPUs over 50 Gbit/s Ethernet with P100."""
    fast = curve(counts=(8, 256))
    slow = curve(counts=(8, 256), on=cluster(between="eth-10"))
    assert fast.points[1].efficiency_frac > 0.9
    assert slow.points[1].efficiency_frac < fast.points[1].efficiency_frac
    assert slow.points[1].limit == "collective"
    assert "exposed communication" in slow.reason


def test_a_fixed_global_batch_runs_into_the_batch_floor() -> None:
    found = curve(counts=(1, 8, 64, 512), batch=BatchRule(global_batch=512))
    assert all(p.global_batch == 512 for p in found.points)
    assert efficiencies(found) == sorted(efficiencies(found), reverse=True)
    assert found.points[-1].efficiency_frac < 0.5
    assert found.knee.count < 512


def test_more_devices_than_items_are_left_out_with_the_reason() -> None:
    found = curve("dcgan", counts=(1, 1024), batch=BatchRule(global_batch=512))
    ((count, reason),) = found.rejected
    assert count == 1024
    assert reason.startswith("the global batch of 512 has fewer items than devices")
    assert "beyond, the global batch of 512" in found.reason


def test_the_recipe_caps_the_batch() -> None:
    rule = BatchRule(batch_per_device=64, max_global_batch=512)
    found = curve(counts=(1, 8, 64), batch=rule)
    assert [p.global_batch for p in found.points] == [64, 512, 512]


def test_time_and_money_follow_from_throughput() -> None:
    found = curve(num_items=1e9)
    for point in found.points:
        assert point.time_s == pytest.approx(1e9 / point.items_per_s)
        assert point.cost_usd == pytest.approx(point.time_s * point.count * 2.0 / 3600)
        assert point.usd_per_million_items == pytest.approx(point.cost_usd / 1000)
    first, second = found.points[:2]
    gain = second.items_per_s - first.items_per_s
    assert first.next_device_items_per_s == pytest.approx(gain)
    assert found.points[-1].next_device_items_per_s is None


def test_without_a_network_nodes_stand_alone() -> None:
    found = curve(counts=(8, 16), on=cluster(between="none"))
    assert [p.count for p in found.points] == [8]
    assert "no link" in found.rejected[0][1]


def test_where_replicas_wait_gradients_are_summed_over_the_batch_that_trains_best() -> None:
    """Four cards that talk through host memory spend most of a short step on gradients."""
    cards = cluster(device="GeForce RTX 4090", inside="host-staged", between=None)
    short = curve("gpt2-medium", (4,), seq=1024, on=cards, batch=BatchRule())
    long = curve("gpt2-medium", (4,), seq=1024, on=cards, batch=BatchRule(best_global_batch=512))
    before, after = short.points[0], long.points[0]
    assert before.exposed_communication_s > before.step_s / 3
    assert before.global_batch < after.global_batch <= 512
    assert after.items_per_s > 1.3 * before.items_per_s


def test_replicas_that_seldom_wait_keep_their_batch() -> None:
    alone, asked = (
        curve(counts=(8,), batch=BatchRule(best_global_batch=best)) for best in (None, 8192)
    )
    assert alone == asked


def test_stages_are_searched_where_shards_wait_for_each_other() -> None:
    """Falcon 40B ran in stages on cards of 40 GB, 1,152 sequences a step: ZeRO-3 would idle."""
    place = cluster(device="A100 SXM4 40GB", inside="dgx-a100", between="aws-p4d")
    found = curve("falcon-40b", (384,), seq=2048, on=place, batch=BatchRule(best_global_batch=1152))
    point = found.points[0]
    assert Strategy.parse(point.strategy).size("pp") > 1
    assert point.exposed_communication_s < point.step_s / 3
    assert 384 <= point.global_batch <= 1152


def test_shards_of_blocks_that_are_computed_again_hold_enough_items_not_to_wait() -> None:
    """With many items per device, recomputation leaves the memory that hides what is gathered."""
    place = cluster(device="A100 SXM4 40GB", inside="dgx-a100", between="aws-p4d")
    found = curve("falcon-40b", (384,), seq=2048, on=place, batch=BatchRule(best_global_batch=8192))
    point = found.points[0]
    assert kinds_in(kinds_of(Strategy.parse(point.strategy))) == ("dp", "fsdp", "recompute")
    assert point.exposed_communication_s < point.step_s / 3
    assert 384 <= point.global_batch <= 8192


def test_blocks_are_computed_again_where_their_memory_is_short() -> None:
    """Llama 3 8B on eight cards of 40 GB: 16 bytes of state a parameter, and 8,192 tokens."""
    place = cluster(device="A100 SXM4 40GB", inside="dgx-a100", between="aws-p4d")
    small, large = (
        curve("llama-3-8b", (8,), seq=seq, on=place, batch=BatchRule(global_batch=8)).points[0]
        for seq in (512, 8192)
    )
    assert "recompute" not in small.strategy
    assert Strategy.parse(large.strategy).recompute == "block"
    assert large.memory_bytes <= 40e9 * 1.08


@pytest.mark.parametrize(("count", "items"), sampled([(8, 512), (16, 1024)], (16, 1024)))
def test_parts_of_short_sequences_are_not_cut_where_tensor_ranks_are_as_fast(
    count: int, items: int
) -> None:
    place = cluster(device="A100 SXM4 80GB", inside="dgx-a100", between="aws-p4d")
    rule = BatchRule(global_batch=items)
    point = curve("qwen2.5-14b", (count,), seq=4096, on=place, batch=rule).points[0]
    assert Strategy.parse(point.strategy).size("cp") == 1
    assert complexity([kinds_of(Strategy.parse(point.strategy))])[0] <= RANK_OF_KIND["tp"]


@pytest.mark.parametrize(
    ("model", "count", "items"),
    sampled([("yi-34b", 64, 512), ("gemma-2-9b", 32, 64)], "gemma-2-9b"),
)
def test_cut_sequences_do_not_stand_beside_stages_where_tensor_ranks_or_shards_do(
    model: str, count: int, items: int
) -> None:
    """Several ways to share a model err more, and 4,096 tokens are a short sequence."""
    place = cluster(device="A100 SXM4 80GB", inside="dgx-a100", between="aws-p4d")
    found = curve(model, (count,), seq=4096, on=place, batch=BatchRule(global_batch=items))
    kinds = kinds_of(Strategy.parse(found.points[0].strategy))
    assert "cp" not in kinds_in(kinds)
    assert complexity([kinds])[0] <= complexity([kinds_mask("tp", "pp")])[0]


def test_stages_in_pieces_do_not_stand_before_what_is_as_fast() -> None:
    place = cluster(device="A100 SXM4 80GB", inside="dgx-a100", between="aws-p4d")
    found = curve("gemma-2-9b", (16,), seq=4096, on=place, batch=BatchRule(batch_per_device=1))
    assert "interleaved" not in found.points[0].strategy


def test_partly_filled_nodes_are_refused() -> None:
    assert "do not fill nodes of 8" in curve(counts=(8, 12)).rejected[0][1]


def test_a_model_too_large_for_data_parallel_is_searched() -> None:
    keywords = {"counts": (8, 64), "seq": 4096, "batch": BatchRule(batch_per_device=1)}
    found = curve("llama-3-70b", **keywords)
    assert found.points[-1].count == 64
    assert found.points[-1].memory_bytes <= 80e9
    with pytest.raises(DoesNotFitError, match="works on none"):
        curve("llama-3-70b", **(keywords | {"counts": (1,)}))


@pytest.mark.parametrize("counts", [(), (0, 1)])
def test_counts_must_be_there(counts) -> None:
    with pytest.raises(InvalidInputError, match="no device counts"):
        curve(counts=counts)


def test_a_batch_is_given_once() -> None:
    with pytest.raises(InvalidInputError, match="both a global batch"):
        BatchRule(global_batch=8, batch_per_device=8)


@pytest.mark.parametrize("name", ["bert-large", "llama-3-8b"])
def test_a_stated_strategy_is_kept_busy_by_default_like_any_other(name):
    """One item a replica would leave ranks that share layers waiting for their links."""

    def rate(batch):
        curve = scaling_curve(
            Job(workload=load_workload(name), seq=512), cluster(), counts=(32,), batch=batch,
            strategy=Strategy.parse("dp4.tp8"),
        )  # fmt: skip
        return curve.points[0].items_per_s

    rates = [rate(BatchRule(global_batch=4 * size)) for size in (1, 2, 4)]
    assert rate(BatchRule()) >= 0.97 * max(rates)
    assert rates[0] < rates[-1]
