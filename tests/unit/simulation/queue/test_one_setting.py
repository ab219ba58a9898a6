from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.catalog.load import load_catalog
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.figures import Replicas, service_figures, tables_of
from paceline.simulation.queue.load import Lengths, Load
from paceline.simulation.queue.one_setting import best_gains, gains_of, settings_of
from paceline.simulation.queue.service import Limit, rate_within

LOAD = Load(
    arrivals="poisson", prompt=Lengths(mean=1500), output=Lengths(mean=300), rate_per_s=1.0,
    num_requests=300,
)  # fmt: skip


@pytest.fixture(scope="module")
def service() -> Replicas:
    """An 8B in BF16 on two L4, whose caches hold few requests."""
    catalog = load_catalog()
    device = next(one for one in catalog.devices if one.name == "L4")
    link = next(one for one in catalog.links if one.name == "ws-pcie4")
    job = Job(
        workload=load_workload("llama-3-8b", task="infer"),
        configuration=Configuration(precision="bf16", is_served=True, compiler="compiled"),
        strategy=Strategy.parse("dp2"),
        profile="vllm",
    )
    machine = Machine.of(device, 2, devices_per_node=2, device_link=link)
    return Replicas.of(job, machine, mean_tokens=1650)


def test_ranks_are_what_a_service_short_of_cache_changes(service: Replicas) -> None:
    gains = gains_of(service, LOAD, {})
    keeping = best_gains(gains)[0]
    assert keeping.setting.words.startswith("1 replica of 2")
    assert keeping.frac > 0.5
    assert best_gains(gains)[-1].setting.words.startswith("FP8")


def test_a_gain_is_what_the_service_then_does(service: Replicas) -> None:
    limits = {"first_token": Limit(percentile=95, seconds=3.0)}
    gain = gains_of(service, LOAD, limits)[0]
    for changed, rate in ((service, gain.before_per_s), (gain.setting.service, gain.after_per_s)):
        table = tables_of([changed])[0]
        assert rate == rate_within(table, LOAD, limits) * changed.num_replicas


def test_a_link_that_is_not_there_joins_no_ranks(service: Replicas) -> None:
    apart = replace(service, most_ranks=1)
    assert not [one for one in settings_of(apart) if "replica of" in one.words]


def test_what_is_asked_at_a_chance_is_simulated_at_it(service: Replicas) -> None:
    """Between the median and the slow end, and the slow end at its own chance."""
    near = replace(LOAD, rate_per_s=0.6)
    half = service_figures([service], near, sure_z=0.6)[0]
    assert half.mid.request.p95_s <= half.sure.request.p95_s <= half.slow.request.p95_s
    assert half.capacity_low_per_s < half.capacity_sure_per_s < half.capacity_per_s
    whole = service_figures([service], near)[0]
    assert whole.sure == whole.slow
