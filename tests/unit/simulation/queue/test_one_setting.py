from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.catalog.load import load_catalog
from paceline.model.graph.costs import Configuration
from paceline.model.graph.engine_features import read_adapters, read_speculation
from paceline.model.items import StatedItem, as_items
from paceline.model.reading.load import load_workload
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.queue.engine_tables import EngineTable
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


def _answering(service: Replicas, stated: StatedItem) -> Replicas:
    workload = as_items(load_workload("llama-3-8b", task="infer"), stated)
    return replace(service, job=replace(service.job, workload=workload))


def _words(service: Replicas) -> list[str]:
    return [one.words for one in settings_of(service)]


def test_guesses_and_adapters_are_settings_where_they_are_stated(service: Replicas) -> None:
    assert not any("guessed" in words or "adapters" in words for words in _words(service))
    guesses = read_speculation("draft=ngram,tokens=4,acceptance=0.6")
    adapters = read_adapters("count=100,rank=16,loaded=4")
    told = _words(_answering(service, StatedItem(speculation=guesses, adapters=adapters)))
    assert [words for words in told if "guessed" in words] == [
        "no tokens guessed in a step (now 4)",
        "2 tokens guessed in a step (now 4)",
        "8 tokens guessed in a step (now 4)",
    ]
    assert [words for words in told if "adapters" in words] == [
        "16 adapters on a device at once (now 4)",
        "100 adapters on a device at once (now 4)",
    ]


def test_no_guesses_are_what_was_before_they_were_stated(service: Replicas) -> None:
    guesses = read_speculation("draft=mtp,tokens=4,acceptance=0.6")
    guessing = _answering(service, StatedItem(speculation=guesses))
    none = next(one for one in settings_of(guessing) if one.words.startswith("no tokens"))
    before, after = tables_of([service.one, none.service.one])
    assert isinstance(before, EngineTable)
    assert isinstance(after, EngineTable)
    assert rate_within(before, LOAD, {}) == rate_within(after, LOAD, {})


def test_guesses_that_are_seldom_kept_are_told_to_end(service: Replicas) -> None:
    wrong = read_speculation("draft=llama-3.2-1b,tokens=8,acceptance=0.1")
    workload = as_items(
        load_workload("llama-3-8b", task="infer"),
        StatedItem(speculation=wrong),
        draft=load_workload("llama-3.2-1b", task="infer"),
    )
    device = next(one for one in load_catalog().devices if one.name == "H100 SXM5 80GB")
    job = replace(service.job, workload=workload, strategy=Strategy.parse("dp1"))
    alone = Replicas.of(job, Machine.of(device), mean_tokens=1650)
    assert any(one.setting.words.startswith("no tokens") for one in gains_of(alone, LOAD, {}))
