"""A link that joins several machines: a rack of GB200, a pod of TPUs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from paceline.catalog.entities import Link
from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device, find_offer
from paceline.catalog.offer_links import named_link, offer_links
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.search import StrategySearch
from paceline.simulation.simulator import simulate

DENSE = ("dp16", "dp16/mb2+zero1", "dp16+zero3", "fsdp16", "dp2.fsdp8", "dp2.tp8", "dp2.tp8+sp",
         "pp4.dp4/mb8", "pp2.dp2.tp4@interleaved2/mb8+zero1", "dp2.cp8",
         "dp4.cp4+ulysses4")  # fmt: skip
CASES = [*(("llama-3-8b", one) for one in DENSE), ("mixtral-8x7b", "dp2.ep8")]
NETWORKS = ("infiniband-1600g", "ethernet-100g")


@cache
def link(name: str) -> Link:
    found = named_link(load_catalog(), name)
    assert found is not None
    return found


def machine(domain: int | None, network: str | None, count: int = 16) -> Machine:
    rack = replace(link("gb200-nvl72"), domain_devices=domain)
    device = find_device(load_catalog(), "GB200 (per GPU)")
    return Machine.of(
        device, count, devices_per_node=4, device_link=rack,
        node_link=None if network is None else link(network),
    )  # fmt: skip


@cache
def job(model: str, strategy: str, task: str = "train") -> Job:
    how = Configuration(precision="bf16")
    return Job(
        workload=load_workload(model, task=task), configuration=how,
        strategy=Strategy.parse(strategy), seq=512, batch=2,
    )  # fmt: skip


def steps(one: Job, machines: list[Machine]) -> Steps:
    return simulate([one] * len(machines), machines)


@pytest.mark.parametrize(("model", "strategy"), CASES)
def test_a_domain_never_slows_a_job(model: str, strategy: str) -> None:
    domains = (None, 4, 8, 16, 72)
    for network in NETWORKS:
        step_s = steps(job(model, strategy), [machine(one, network) for one in domains]).step_s
        step_s = np.where(np.isnan(step_s), np.inf, step_s)  # Refused on so slow a network.
        assert step_s[1] == step_s[0], "a domain of one machine is none"
        assert all(wide <= narrow + 1e-9 for narrow, wide in pairwise(step_s)), step_s


@pytest.mark.parametrize(("model", "strategy"), CASES)
def test_a_job_within_a_domain_pays_no_network(model: str, strategy: str) -> None:
    inside = steps(job(model, strategy), [machine(72, one) for one in (*NETWORKS, None)]).step_s
    assert inside[0] == inside[1] == inside[2]
    beyond = steps(job(model, strategy), [machine(8, one) for one in NETWORKS]).step_s
    assert beyond[1] >= beyond[0] >= inside[0]


def test_two_domains_share_the_networks_of_all_their_machines() -> None:
    """Gradients between two racks of 16 cross as many cards as between one machine and another."""
    wide = job("llama-3-8b", "dp32+zero3")
    apart, joined = (
        steps(wide, [machine(domain, "ethernet-100g", 32)]).communication_s[0] for domain in (4, 16)
    )
    assert joined < apart
    assert joined > 0.1 * apart


def test_ranks_of_a_replica_may_fill_machines_that_are_joined() -> None:
    lengths = {"prompt_tokens": 512, "output_tokens": 32, "seq": None}
    served = replace(job("llama-3-8b", "tp8", "infer"), **lengths)
    found = steps(served, [machine(72, None, 8), machine(4, "infiniband-1600g", 8)])
    assert np.isfinite(found.step_s).all()
    assert found.step_s[0] < found.step_s[1]


def test_a_search_lets_tensor_ranks_reach_over_a_domain() -> None:
    whole = job("llama-3-8b", "dp1")
    degrees = []
    for domain in (4, 72):
        search = StrategySearch.of(
            whole, machine(domain, "ethernet-100g", 1), capacity_bytes=60e9, microbatches=[1, 2]
        )
        jobs, found = search.best(num_devices=16, global_batch=16, num_best=1)
        degrees.append((jobs[0].strategy, float(found.step_s[0])))
    assert degrees[1][1] < degrees[0][1], degrees


@pytest.mark.parametrize(
    ("name", "joined"),
    [("azure/Standard_ND128isr_NDR_GB200_v6", 72), ("gcp/tpu-v5p-8", 8960), ("gcp/tpu-v6e-8", 256),
     ("azure/Standard_ND96isr_MI300X_v5", None), ("aws/trn2.48xlarge", None)],
)  # fmt: skip
def test_what_joins_machines_is_a_fact_of_the_catalogue(name: str, joined: int | None) -> None:
    catalog = load_catalog()
    links = offer_links(catalog, find_offer(catalog, name))
    assert links.device is not None
    assert links.device.domain_devices == joined
    assert any("taken to stand" in one for one in links.assumptions) == (joined is not None)
