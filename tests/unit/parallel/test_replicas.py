"""Ways to run replicas on one number of devices: what each leaves out, and which is taken."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from paceline.catalog import find_device, load_catalog
from paceline.parallel.cluster import Cluster
from paceline.parallel.replica_work import LoweredStep
from paceline.parallel.replicas import Job, ReplicatedSteps, replicated_steps
from paceline.parallel.strategy import Strategy
from paceline.predict import DeviceTable, Points, predict_pass
from paceline.trace import Configuration, LoweredPass, Phase, load_workload, lower

COUNT, PER_RANK = 8, 12


@cache
def job() -> Job:
    catalog = load_catalog()
    links = {link.name: link for link in catalog.links}
    return Job(
        step=LoweredStep.of(load_workload("gpt2"), Configuration()),
        cluster=Cluster(
            device=find_device(catalog, "H100 SXM5 80GB"), devices_per_node=8,
            device_link=links["dgx-h100-nvls"], node_link=links["dgx-h100-ib"],
        ),
        seq=1024.0,
        calibration=None,
    )  # fmt: skip


@cache
def ways() -> ReplicatedSteps:
    return replicated_steps(job(), COUNT, PER_RANK)


def test_microbatches_divide_the_items_of_a_rank_and_one_device_splits_nothing() -> None:
    assert set(ways().microbatches.tolist()) == {1, 2, 4}
    assert set(replicated_steps(job(), 1, PER_RANK).sharding.tolist()) == {0}


def test_ranks_that_split_the_optimizer_share_its_update() -> None:
    items = PER_RANK / ways().microbatches.reshape(4, 3)
    update_s = job().alone(job().points(items[0])).update_s
    compute_s = (ways().step_s - ways().exposed_s).reshape(4, 3)
    saved_s = compute_s[0] - compute_s[1:]
    assert (items == items[0]).all()
    assert saved_s == pytest.approx(np.tile(update_s * (1 - 1 / COUNT), (3, 1)))


@pytest.mark.parametrize("kernel", ["foreach", "fused"])
def test_microbatches_before_the_last_are_what_a_step_is_without_its_update(kernel: str) -> None:
    """The same step whose optimizer is not there, at the same batch, on the device alone."""
    graph, cluster = load_workload("gpt2").passes[0].graph, job().cluster
    lowered = lower(graph, Configuration(optimizer_kernel=kernel))  # type: ignore[arg-type]
    is_update = lowered.costs.phase == Phase.OPTIMIZER
    count = np.where(is_update, 0.0, lowered.costs.count)
    rest = replace(lowered, costs=replace(lowered.costs, count=count))
    points = Points(batch=np.array([16.0]), seq=np.array([1024.0]))
    devices = DeviceTable.from_devices([cluster.device])
    without_s, whole = predict_pass(rest, devices, points), predict_pass(lowered, devices, points)
    again_s = whole.device_s - whole.update_s
    assert again_s == pytest.approx(without_s.device_s, rel=1e-5)
    bandwidth_s = update_bytes(lowered) / (cluster.device.memory_bytes_per_s or np.nan)
    assert (whole.update_s > bandwidth_s).all()
    assert (whole.update_s < 3 * bandwidth_s).all()


def update_bytes(lowered: LoweredPass) -> float:
    costs = lowered.costs
    moved = (costs.read_bytes + costs.write_bytes)[:, 0] * costs.count
    return float(moved[costs.phase == Phase.OPTIMIZER].sum())


def test_what_is_split_further_needs_less_memory() -> None:
    memory = ways().memory_bytes.reshape(4, 3)
    assert (np.diff(memory, axis=0) <= 0).all()
    assert (np.diff(memory, axis=1) < 0).all()


def test_the_simplest_of_ways_as_good_is_taken_and_none_where_none_fits() -> None:
    found = ways()
    best = found.fastest(80e9)
    assert best is not None
    assert found.step_s[best] <= 1.01 * found.step_s.min() < found.step_s[:best].min()
    assert found.strategy(0, COUNT) == Strategy.from_degrees(dp=COUNT)
    assert found.fastest(float(found.needed_bytes.min()) - 1) is None
    least = found.fastest(float(found.memory_bytes.min()))
    assert least == int(np.argmin(found.memory_bytes))
    assert str(found.strategy(least, COUNT)) == "dp8/mb4+zero3"
