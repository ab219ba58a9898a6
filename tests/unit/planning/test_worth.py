"""What a curve tells a buyer: efficiencies that are shares, and one sentence about the knee."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.reading.load import load_workload
from paceline.parallelism.collectives.cluster import Cluster
from paceline.planfile import Interval
from paceline.planning.decisions.curve import CountedStep, ScalingCurve
from paceline.planning.decisions.device_counts import BatchRule, scaling_curve
from paceline.planning.decisions.knee_point import knee
from paceline.planning.decisions.worth import finished_points, knee_reason, throughput_per_device
from paceline.simulation.job import Job


def cluster() -> Cluster:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    return Cluster(
        device=find_device(catalog, "H100 SXM5 80GB"), devices_per_node=8,
        device_link=links["dgx-h100-nvls"], node_link=links["dgx-h100-ib"],
        usd_per_device_hour=3.6, host_link=links["pcie5-x16"], host_memory_bytes=2e12,
    )  # fmt: skip


def curve(model: str, counts: tuple[int, ...], *, seq: int, batch: BatchRule) -> ScalingCurve:
    job = Job(workload=load_workload(model), seq=seq)
    return scaling_curve(job, cluster(), counts=counts, batch=batch)


def test_a_job_that_hardly_fits_few_devices_is_measured_against_the_best_pace() -> None:
    found = curve("llama-3-8b", (1, 2, 4, 8, 16), seq=8192, batch=BatchRule(batch_per_device=2))
    assert "offload" in found.points[0].strategy
    assert found.points[0].limit == "memory"
    assert max(point.efficiency_frac for point in found.points) == 1.0
    assert found.knee.count == 16
    assert found.reason.startswith("16 devices (")


def test_devices_beyond_the_items_of_a_batch_share_items() -> None:
    found = curve("gpt2", (4, 8, 16, 4096), seq=1024, batch=BatchRule(global_batch=8))
    assert [point.count for point in found.points] == [4, 8, 16]
    assert "tp" in found.points[2].strategy or "pp" in found.points[2].strategy
    assert found.points[2].global_batch == 8
    ((count, why),) = found.rejected
    assert (count, "global batch of 8" in why) == (4096, True)


def test_the_sentence_names_the_knee_the_next_devices_worth_and_the_loss() -> None:
    found = curve("gpt2", (1, 8, 64), seq=1024, batch=BatchRule(global_batch=64))
    last = found.points[-1]
    at = found.points[1] if found.knee.count == 8 else found.points[0]
    assert found.reason.startswith(f"{found.knee.count} device")
    assert f"instead of {at.usd_per_million_items:.3g} USD" in found.reason
    assert "a global batch of 64 leaves" in found.reason
    assert last.next_device_items_per_s is None


def test_efficiencies_and_prices_follow_from_throughput_alone() -> None:
    first, second = curve("gpt2", (1, 8), seq=1024, batch=BatchRule(batch_per_device=32)).points
    slow = replace(first, items_per_s=0.1 * first.items_per_s)
    paces = throughput_per_device((slow, second)), throughput_per_device((first, second))
    assert paces == pytest.approx((second.items_per_s / 8, first.items_per_s))
    points = finished_points((slow, second), cluster(), num_items=1e6)
    assert points[1].efficiency_frac == 1.0
    assert points[0].cost_usd == pytest.approx(points[0].usd_per_million_items)
    rates = [point.items_per_s for point in points]
    turn = knee([1, 8], rates, single=throughput_per_device(points))
    assert turn.count == 8
    assert "still pays" in knee_reason(points, (), turn)


@pytest.mark.parametrize(
    ("efficiency", "exposed_frac", "limit"),
    [(0.99, 0.0, "nothing"), (0.85, 0.1, "collective"), (0.7, 0.1, "batch floor")],
)
def test_what_communication_takes_is_not_laid_to_small_batches(
    efficiency: float, exposed_frac: float, limit: str
) -> None:
    first = CountedStep(
        count=1, num_nodes=1, strategy="dp1", microbatch=8, global_batch=8, step_s=1.0,
        items_per_s=8.0, memory_bytes=1e9,
        memory_interval_bytes=Interval(low=8e8, mid=9e8, high=1.1e9),
        communication_s=0.0, exposed_communication_s=0.0, log_sigma=0.1,
    )  # fmt: skip
    step_s = 1.0 / efficiency
    many = replace(
        first, count=8, strategy="dp8", global_batch=64, step_s=step_s, items_per_s=64 / step_s,
        exposed_communication_s=exposed_frac * step_s,
    )  # fmt: skip
    at = finished_points((first, many), cluster(), num_items=None)[1]
    assert at.efficiency_frac == pytest.approx(efficiency)
    assert (at.limit, at.time_s) == (limit, None)
