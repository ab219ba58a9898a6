"""Inference whose ranks share tokens or the halves of guidance, through the one door."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.unit.parallelism.small_denoiser import denoiser

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.errors import InvalidInputError
from paceline.model.graph.costs import Configuration
from paceline.model.graph.workload import Pass, Workload
from paceline.model.lowering import lower
from paceline.model.reading.load import load_workload
from paceline.parallelism.steps import Steps
from paceline.parallelism.strategy.strategy import Strategy
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate

CATALOG = load_catalog()
LINKS = {link.name: link for link in CATALOG.links}
H100 = find_device(CATALOG, "H100 SXM5")
EAGER = Configuration(precision="bf16", attention="flash")


def small() -> Workload:
    unet = load_workload("sd15-unet", task="infer")
    return replace(unet, name="small", passes=(Pass(name="forward", graph=denoiser(), repeats=1),))


def stepped(text: str, workload: Workload | None = None, **facts: object) -> Steps:
    strategy = Strategy.parse(text)
    machine = Machine.of(
        H100, strategy.num_ranks, device_link=LINKS["nvlink4"], node_link=LINKS["dgx-h100-ib"]
    )
    job = Job(
        workload=workload or small(), configuration=EAGER, strategy=strategy, batch=1,
        **facts,  # type: ignore[arg-type]
    )  # fmt: skip
    return simulate([job], [machine])


def device_s(text: str) -> float:
    return float(stepped(text).device_s[0])


@pytest.mark.parametrize("text", ["cp4", "cp4+ulysses", "cp4+ulysses2", "cfg2", "cfg2.cp2"])
def test_ranks_that_share_items_do_less_each_and_exchange(text: str) -> None:
    steps = stepped(text)
    steps.check()
    ranks = Strategy.parse(text).num_ranks
    assert device_s("dp1") / ranks * 0.9 < steps.device_s[0] < device_s("dp1")
    assert steps.tensor_s[0] >= 0.0
    busy_s = max(float(steps.device_s[0]), float(steps.host_s[0]))
    assert steps.step_s[0] >= busy_s * (1.0 - 1e-9)


def test_ranks_without_shared_items_are_one_device() -> None:
    alone = predict_pass(
        lower(denoiser(), EAGER), DeviceTable.from_devices([H100]), Points.of([1], seq=1)
    )
    assert stepped("dp1").step_s[0] == pytest.approx(alone.mid_s[0, 0], rel=1e-9)


def test_halves_of_guidance_exchange_nothing_but_what_they_made() -> None:
    assert stepped("cfg2").tensor_s[0] < stepped("cp2+ulysses").tensor_s[0] + 1e-12


@pytest.mark.parametrize(
    ("text", "why"),
    [("cp3", "do not divide the 4096 tokens"), ("cp32+ulysses", "do not divide 16 heads"),
     ("cfg4", "no two halves of guidance")],
)  # fmt: skip
def test_what_cannot_be_shared_says_why(text: str, why: str) -> None:
    steps = stepped(text)
    assert math.isnan(steps.step_s[0])
    with pytest.raises(InvalidInputError, match=why):
        steps.check()


def test_stages_are_refused_in_inference() -> None:
    with pytest.raises(InvalidInputError, match="no cost model in inference"):
        stepped("pp2", load_workload("resnet50", task="infer")).check()


def test_training_has_no_halves_of_guidance() -> None:
    with pytest.raises(InvalidInputError, match="a training step has none"):
        stepped("cfg2", load_workload("sd15-unet")).check()
