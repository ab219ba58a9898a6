"""Shares of weights on the host: what gathers bring over its link, and what hides it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.unit.parallelism.links_of_tests import INFINIBAND, SWITCH

from paceline.catalog.load import load_catalog
from paceline.model.graph.costs import Configuration, LoweredPass
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.memory.sharded_memory import FSDP_BLOCKS
from paceline.parallelism.replicas.data_parallel import data_parallel_step
from paceline.parallelism.replicas.host_shares import HostLinks, HostTraffic
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate

LINK = 20e9
SPEEDS = (1e9, 4e9, 16e9, 64e9, 1e15)


@cache
def gpt2(training_format: str = "joined-gradients") -> LoweredPass:
    graph = load_workload("gpt2").passes[0].graph
    return lower(graph, Configuration(offload="weights", training_format=training_format))


def traffic(
    lowered=None, *, link=LINK, ranks=4, sums=1, returns=False, is_shared=False
) -> HostTraffic:
    links = HostLinks(bytes_per_s=np.float64(link), joins_devices=np.bool_(is_shared))
    return HostTraffic.of(
        lowered or gpt2(), links, num_ranks=ranks, num_sums=sums, returns_gradients=returns
    )


def step(host: HostTraffic | None, *, backward_s=0.06, mid_s=0.1, **stated):
    return data_parallel_step(
        mid_s=mid_s, backward_s=backward_s, gradient_bytes=250e6, num_ranks=4, ranks_per_node=8,
        device_link=SWITCH, node_link=INFINIBAND, sharding="zero3", parameter_bytes=250e6,
        host=host, **stated,
    )  # fmt: skip


def simulated_s(what="weights", *, pcie=25e9, strategy="dp4+zero3", habits=()):
    machine = Machine.parse("4xA100 SXM4 80GB@dgx-a100,-", load_catalog())
    device = replace(machine.device, pcie_bytes_per_s=pcie)
    # Processors that keep up, so that only the link is looked at.
    groups = (replace(machine.groups[0], device=device),)
    machine = replace(machine, groups=groups, num_vcpus=4096)
    job = Job(
        workload=load_workload("gpt2"),
        configuration=Configuration(precision="bf16", offload=what),
        strategy=Strategy.parse(strategy),
        habits=habits,
    )
    return float(simulate([job], [machine]).step_s[0])


def test_bytes_of_shares_are_counted_by_hand():
    """A quarter of GPT-2 in 16 bits: two bytes up a gather, and two of a gradient down."""
    share = gpt2().num_parameters / 4
    found = traffic()
    assert float(found.weights_up_s) == pytest.approx(2 * share / LINK)
    assert float(found.gradients_down_s) == pytest.approx(2 * share / LINK)
    assert float(found.gradients_up_s) == 0.0
    assert float(found.every_s) == pytest.approx(6 * share / LINK)


def test_gradients_that_come_back_go_down_in_fp32_once_a_step():
    share = gpt2().num_parameters / 4
    for sums in (1, 4):
        found = traffic(returns=True, sums=sums)
        assert float(found.gradients_up_s) * sums == pytest.approx(2 * share * sums / LINK)
        assert float(found.gradients_down_s) * sums == pytest.approx((2 * sums + 4) * share / LINK)


def test_weights_are_copied_as_they_are_stored():
    """FSDP narrows a share of FP32 weights on the device."""
    wide = gpt2("autocast")
    assert float(traffic(wide).weights_up_s) == pytest.approx(wide.num_parameters / LINK)


def test_a_rank_that_splits_nothing_copies_nothing():
    found = traffic(ranks=np.array([1.0, 2.0]), returns=True)
    assert found.every_s[0] == 0.0 < found.every_s[1]


def test_a_slower_link_never_makes_a_step_faster_and_a_fast_one_adds_nothing():
    seconds = [float(step(traffic(link=speed)).mid_s[0]) for speed in SPEEDS]
    assert np.all(np.diff(seconds) <= 0)
    assert seconds[0] > seconds[-1] == pytest.approx(float(step(None).mid_s[0]), rel=1e-5)


def test_copies_hide_behind_blocks_but_for_the_first_and_the_last():
    host = traffic()
    added = step(host, mid_s=100.0, backward_s=60.0).exposed_communication_s
    bare_s = step(None, mid_s=100.0, backward_s=60.0).exposed_communication_s
    ends_s = (host.weights_up_s + host.gradients_down_s) / FSDP_BLOCKS
    assert float((added - bare_s)[0]) == pytest.approx(float(ends_s))


def test_copies_wait_for_gathers_that_take_the_same_link():
    apart, shared = (
        step(traffic(link=1e9, is_shared=is_shared)).mid_s[0] for is_shared in (False, True)
    )
    assert shared > apart


def test_devices_that_pcie_joins_share_its_link_with_their_hosts():
    catalog = load_catalog()
    texts = ("4xA100 SXM4 80GB@dgx-a100,-", "4xGeForce RTX 3090@host-staged,-")
    machines = [Machine.parse(text, catalog) for text in texts]
    links = [one.device_link for one in machines]
    found = HostLinks.of([one.device for one in machines], links, 0.8)
    assert found.joins_devices.tolist() == [False, True]
    assert found.bytes_per_s == pytest.approx(
        [0.8 * one.device.pcie_bytes_per_s for one in machines]
    )


def test_no_step_is_shorter_than_what_its_link_carries_in_one_direction():
    for speed in SPEEDS:
        host = traffic(link=speed, returns=True, sums=3)
        taken_s = step(host, num_reductions=3.0).mid_s[0]
        assert taken_s >= 3 * float(2 * host.weights_up_s + host.gradients_up_s)
        assert taken_s >= 3 * float(host.gradients_down_s)


def test_steps_of_offloaded_weights_follow_the_host_link():
    seconds = [simulated_s(pcie=speed) for speed in SPEEDS]
    assert np.all(np.diff(seconds) <= 0)
    assert seconds[0] > 2 * seconds[-1]
    assert simulated_s(pcie=1e9, habits=("stage-3",)) > seconds[0]


def test_every_microbatch_brings_its_weights():
    """A slow link is what bounds it: three microbatches take three times as long."""
    one, three = (simulated_s(pcie=1e8, strategy=f"dp4{mb}+zero3") for mb in ("", "/mb3"))
    assert three == pytest.approx(3 * one, rel=0.02)


@pytest.mark.parametrize("strategy", ["dp4+zero1", "dp4"])
def test_weights_that_nobody_splits_cost_what_an_optimizer_on_the_host_costs(strategy):
    found = [simulated_s(what, strategy=strategy) for what in ("weights", "optimizer")]
    assert found[0] == found[1]
