"""An optimizer on the host: its processors take their time, which copies back hide in part."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.model.graph.costs import Configuration
from paceline.model.reading.load import load_workload
from paceline.parallelism.offload import update_bytes_per_s
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.cases import Cases
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.rank import RankPasses
from paceline.simulation.simulator import simulate

DEVICE = find_device(load_catalog(), "A100 SXM4 80GB")
LINK = next(link for link in load_catalog().links if link.name == "nvlink3")


def job_of(offload: str, strategy: str = "dp1") -> Job:
    return Job(
        workload=load_workload("gpt2-xl"),
        configuration=Configuration(offload=offload, checkpointing="block"),
        strategy=Strategy.parse(strategy),
        batch=1.0,
    )


def step_s(offload: str, num_vcpus: int | None, *, strategy: str = "dp1", count: int = 1) -> float:
    machine = Machine.of(DEVICE, count, device_link=LINK, num_vcpus=num_vcpus)
    return float(simulate(Cases.of([job_of(offload, strategy)], [machine])).step_s[0])


def test_processors_matter_only_to_what_is_on_the_host() -> None:
    assert step_s("none", 8) == step_s("none", 64)
    assert step_s("optimizer", 8) > step_s("optimizer", 64)
    assert step_s("optimizer", 4096) == step_s("optimizer", 8192)


@pytest.mark.parametrize("count", [1, 4])
def test_an_update_streams_all_states_through_the_memory_of_the_host(count: int) -> None:
    """States, gradients and weights, counted by hand: 24 bytes of each parameter, in FP32."""
    strategy = f"dp{count}+zero3" if count > 1 else "dp1"
    few, fewer = (
        step_s("optimizer", vcpus * count, strategy=strategy, count=count) for vcpus in (4, 2)
    )
    parameters = load_workload("gpt2-xl").num_parameters
    rates = np.array([update_bytes_per_s(DEVICE, vcpus * count) for vcpus in (4, 2)])
    assert fewer - few == pytest.approx(-np.diff(24.0 * parameters / rates[::-1])[0], rel=0.02)


def test_state_is_counted_wherever_it_is() -> None:
    here, there = (
        RankPasses.of(job_of(offload)).optimizer_bytes for offload in ("none", "optimizer")
    )
    assert here == there == pytest.approx(8.0 * load_workload("gpt2-xl").num_parameters, rel=0.01)
