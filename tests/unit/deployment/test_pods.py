"""Pods of Kubernetes and of what stands on it."""

from __future__ import annotations

import pytest
import yaml

from paceline.deployment.deploying import deploy
from paceline.errors import InvalidInputError

from . import plans
from .inside import values_of, variable
from .settings_of_targets import PLANS, settings_for


@pytest.mark.parametrize("target", ["kubernetes", "jobset", "rayjob", "trainjob"])
@pytest.mark.parametrize(("options", "user"), [({}, 10001), ({"user": "1000"}, 1000)])
def test_pods_run_as_a_user_without_rights_who_owns_the_volumes(
    target: str, options: dict[str, str], user: int
) -> None:
    made = deploy(PLANS[target](), target, settings_for(target, options=options))
    contexts = values_of(list(yaml.safe_load_all(made.files[0].text)), "securityContext")
    pods = [c for c in contexts if "runAsUser" in c]
    containers = [c for c in contexts if "runAsUser" not in c]
    assert {(c["runAsUser"], c["fsGroup"], c["runAsNonRoot"]) for c in pods} == {(user, user, True)}
    assert {c["allowPrivilegeEscalation"] for c in containers} == {False}
    assert all(c["capabilities"] == {"drop": ["ALL"]} for c in containers)
    assert len(pods) == len(containers) > 0


def test_the_image_of_a_pod_runs_as_the_user_that_owns_its_volumes() -> None:
    image = deploy(plans.plan(), "docker", plans.training(image=None)).files[0].text
    pod = deploy(plans.plan(), "kubernetes", plans.training()).files[0].text
    (user,) = values_of(list(yaml.safe_load_all(pod)), "runAsUser")
    assert f"USER {user}:{user}" in image
    assert f"--uid {user}" in image


@pytest.mark.parametrize("target", ["kubernetes", "kserve"])
def test_nodes_are_told_apart_by_the_labels_that_are_named(target: str) -> None:
    label = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    plain = settings_for(target)
    named = settings_for(
        target,
        options={**plain.options, "node-selector": "=".join(*label.items())},
    )
    documents = list(yaml.safe_load_all(deploy(PLANS[target](), target, named).files[0].text))
    assert values_of(documents, "nodeSelector") == [label]
    with pytest.raises(InvalidInputError, match="no list of labels"):
        deploy(PLANS[target](), target, settings_for(
            target, options={**plain.options, "node-selector": "gpu"}
        ))  # fmt: skip


def test_a_device_plugin_that_tells_no_devices_apart_is_said() -> None:
    needs = deploy(plans.two_nodes(), "kubernetes", settings_for("kubernetes")).needs
    assert any("A100 SXM4 40GB" in need and "node-selector" in need for need in needs)


@pytest.mark.parametrize(("devices", "framework"), [(1, "torch"), (8, "torch"), (8, "jax")])
def test_ray_is_told_that_there_are_gpus_however_many_processes_drive_them(
    devices: int, framework: str
) -> None:
    software = plans.stack(framework=framework, framework_version="2.13.0")
    where = plans.place(devices_per_node=devices)
    plan = plans.plan(plans.choice(place=where, stack=software, num_devices=devices))
    text = deploy(plan, "rayjob", settings_for("rayjob")).files[0].text
    pods = values_of(yaml.safe_load(text), "env")
    assert [variable(pod, "PACELINE_USES_GPU") for pod in pods] == ["true", "true"]


def test_a_training_job_may_be_sent_again_under_another_name() -> None:
    made = deploy(PLANS["sagemaker"](), "sagemaker", settings_for("sagemaker"))
    assert "--training-job-name resnet50-train-$(date -u +" in made.files[0].text


def test_a_claim_that_several_nodes_mount_says_so() -> None:
    needs = {
        nodes: [
            "ReadWriteMany" in need
            for need in deploy(plan, "kubernetes", settings_for("kubernetes")).needs
            if need.startswith("PersistentVolumeClaim")
        ]
        for nodes, plan in ((1, plans.plan()), (2, plans.two_nodes()))
    }
    assert needs == {1: [False, False], 2: [True, True]}


def test_no_pod_shares_more_memory_than_it_has() -> None:
    spec = yaml.safe_load(
        deploy(PLANS["rayjob"](), "rayjob", settings_for("rayjob")).files[0].text
    )["spec"]["rayClusterSpec"]
    groups = (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    for pod in (group["template"]["spec"] for group in groups):
        (size,) = values_of(pod["volumes"], "sizeLimit")
        limit = pod["containers"][0]["resources"]["limits"]["memory"]
        assert int(size.removesuffix("Mi")) < int(limit.removesuffix("Mi"))
