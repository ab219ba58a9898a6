"""Ways to run replicas on one number of devices: what each leaves out, and which is taken."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.graph.graph import Phase
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.planning.decisions.replica_ways import replica_ways
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.simulation.cases import Cases
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.memory_kinds import memory_of_kind
from paceline.simulation.simulator import simulate

COUNT, PER_RANK = 8, 12


@cache
def machine() -> Machine:
    return Machine.parse("8xH100 SXM5 80GB@dgx-h100-nvls,dgx-h100-ib", load_catalog())


@cache
def gpt2() -> Job:
    return Job(workload=load_workload("gpt2"))


@cache
def ways() -> Cases:
    return replica_ways(gpt2(), machine(), {COUNT: PER_RANK})


@cache
def steps() -> Steps:
    return simulate(ways())


def test_microbatches_divide_the_items_of_a_rank_and_one_device_splits_nothing() -> None:
    assert set(ways().microbatches.tolist()) == {1, 2, 4}
    assert set(replica_ways(gpt2(), machine(), {1: PER_RANK}).job.tolist()) == {0}


def test_ranks_that_split_the_optimizer_share_its_update() -> None:
    items = ways().batch.reshape(4, 3)
    alone = simulate(
        [replace(gpt2(), batch=size) for size in items[0]], [machine().with_count(1)] * 3
    )
    compute_s = (steps().step_s - steps().exposed_s).reshape(4, 3)
    saved_s = compute_s[0] - compute_s[1:]
    assert (items == items[0]).all()
    assert saved_s == pytest.approx(np.tile(alone.update_s * (1 - 1 / COUNT), (3, 1)))


@pytest.mark.parametrize("kernel", ["foreach", "fused"])
def test_microbatches_before_the_last_are_what_a_step_is_without_its_update(kernel: str) -> None:
    """The same step whose optimizer is not there, at the same batch, on the device alone."""
    graph, device = load_workload("gpt2").passes[0].graph, machine().device
    lowered = lower(graph, Configuration(optimizer_kernel=kernel))  # type: ignore[arg-type]
    is_update = lowered.costs.phase == Phase.OPTIMIZER
    count = np.where(is_update, 0.0, lowered.costs.count)
    rest = replace(lowered, costs=replace(lowered.costs, count=count))
    points = Points(batch=np.array([16.0]), seq=np.array([1024.0]))
    devices = DeviceTable.from_devices([device])
    without_s, whole = predict_pass(rest, devices, points), predict_pass(lowered, devices, points)
    again_s = whole.device_s - whole.update_s
    assert again_s == pytest.approx(without_s.device_s, rel=1e-5)
    bandwidth_s = update_bytes(lowered) / (device.memory_bytes_per_s or np.nan)
    assert (whole.update_s > bandwidth_s).all()
    assert (whole.update_s < 3 * bandwidth_s).all()


def update_bytes(lowered: LoweredPass) -> float:
    costs = lowered.costs
    moved = (costs.read_bytes + costs.write_bytes)[:, 0] * costs.count
    return float(moved[costs.phase == Phase.OPTIMIZER].sum())


def test_what_is_split_further_needs_less_memory() -> None:
    memory = steps().memory_high_bytes.reshape(4, 3)
    assert (np.diff(memory, axis=0) <= 0).all()
    assert (np.diff(memory, axis=1) < 0).all()


def test_a_row_is_the_job_that_it_stands_for() -> None:
    assert str(ways().strategy_at(0)) == "dp8"
    assert str(ways().strategy_at(len(ways()) - 1)) == "dp8/mb4+zero3"
    for row in range(len(ways())):
        alone = simulate([ways().job_at(row)], [machine()])
        assert alone.step_s[0] == pytest.approx(steps().step_s[row], rel=1e-6)


def test_replicas_whose_modules_launch_each_kernel_wait_for_their_host() -> None:
    """As ranks that share layers do: small steps take what an eager host does, large ones not."""
    how = Configuration(precision="bf16", compiler="compiled", training_format="half-weights")
    plain = replace(gpt2(), strategy=Strategy.parse("dp8"), configuration=how)
    eager = replace(plain, configuration=replace(how, compiler="eager"))
    launched = replace(plain, habits=("launched",))
    for batch, waits in ((1.0, True), (64.0, False)):
        jobs = [replace(one, batch=batch) for one in (plain, launched, eager)]
        steps = simulate(jobs, [machine()] * 3)
        wrapped_s, launched_s, eager_s = steps.step_s.tolist()
        assert wrapped_s <= launched_s <= eager_s
        assert launched_s == pytest.approx(eager_s if waits else wrapped_s, rel=0.15)
    shared = replace(launched, strategy=Strategy.parse("dp4.tp2"), batch=1.0)
    beside = replace(plain, strategy=Strategy.parse("dp4.tp2"), batch=1.0)
    steps = simulate([shared, beside], [machine()] * 2)
    assert steps.step_s[0] > 1.5 * steps.step_s[1]


@pytest.mark.parametrize(
    ("strategy", "neighbours"),
    [("dp2", 1), ("dp8", 2), ("fsdp8", 2), ("dp2.fsdp4", 3), ("dp2.tp4", 3), ("dp4.cp2", 3)],
)
def test_a_process_holds_what_its_communicators_hold_and_its_allocator_does_not(
    strategy: str, neighbours: int
) -> None:
    """The same ranks on the same machine, once with cards that talk through their host.

    A ring of two has one neighbour; 24 channels of 12 MiB for each (NVIDIA/nccl, transport/p2p.cc).
    """
    catalog = load_catalog()
    job = replace(gpt2(), strategy=Strategy.parse(strategy), batch=4.0)
    staged = next(one for one in catalog.links if one.name == "host-staged")
    count = job.strategy.num_ranks
    wired = machine().with_count(count)
    found = simulate([job, job], [wired, replace(wired, device_link=staged)])
    more = found.memory_mid_bytes[0] - found.memory_mid_bytes[1]
    assert more == pytest.approx(neighbours * 24 * 12 * 2**20)
    assert found.memory_high_bytes[0] - found.memory_high_bytes[1] >= more * (1 - 1e-9)
    for kind in ("allocated", "reserved"):
        with_nccl, without = (
            memory_of_kind(
                float(found.memory_mid_bytes[row]), kind, platform="cuda",
                joined_bytes=float(found.communicator_bytes[row]),
            )
            for row in (0, 1)
        )  # fmt: skip
        assert with_nccl == pytest.approx(without)
