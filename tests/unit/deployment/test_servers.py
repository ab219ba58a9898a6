"""Serving: who may reach it, when it is ready, what it batches."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from paceline.deployment.deploying import deploy

from . import plans
from .settings_of_targets import PLANS, settings_for


@pytest.mark.parametrize("target", ["triton", "torchserve", "tensorflow-serving"])
def test_a_server_says_who_may_reach_it_and_when_it_is_ready(target: str) -> None:
    made = deploy(PLANS[target](), target, settings_for(target))
    script = made.files[0].text
    port = re.search(r"# ready when `curl --fail localhost:(\d+)/", script)
    assert port is not None
    assert f"--publish {port.group(1)}:{port.group(1)}" in script
    assert any("only callers reach the ports" in need for need in made.needs)


def test_each_data_parallel_rank_serves_as_a_replica_of_its_own() -> None:
    made = deploy(plans.plan(), "kserve", settings_for("kserve"))
    predictor = yaml.safe_load(made.files[0].text)["spec"]["predictor"]
    resources = predictor["model"]["resources"]
    assert predictor["minReplicas"] * int(resources["limits"]["nvidia.com/gpu"]) == 8
    assert predictor["minReplicas"] * int(resources["requests"]["cpu"]) <= 86


def properties_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.mark.parametrize(("batch", "devices"), [(1, 8), (256, 8), (32, 0)])
def test_torchserve_batches_as_planned_with_a_worker_per_device(batch: int, devices: int) -> None:
    choice = plans.choice(batch_per_device=batch)
    plan = plans.plan(choice) if devices else plans.cpu()
    made = deploy(plan, "torchserve", settings_for("torchserve"))
    config = properties_of(made.files[1].text)
    ((name, versions),) = json.loads(config["models"]).items()
    (model,) = versions.values()
    assert model["batchSize"] == plan.choices[0].batch_per_device
    assert model["minWorkers"] == model["maxWorkers"] == max(devices, 1)
    assert int(config["number_of_gpu"]) == devices
    assert model["marName"] == config["load_models"] == f"{name}.mar"


def test_requests_need_no_key_and_the_port_that_registers_models_stays_in() -> None:
    made = deploy(plans.plan(), "torchserve", settings_for("torchserve"))
    config = properties_of(made.files[1].text)
    host, _, port = config["management_address"].removeprefix("http://").partition(":")
    assert config["disable_token_authorization"] == "true"
    assert host == "127.0.0.1"
    assert f"{port}:{port}" not in made.files[0].text
