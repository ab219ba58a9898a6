"""Kubeflow Trainer: a TrainJob on the cluster's torch runtime, with shared memory patched in."""

from __future__ import annotations

from typing import Any

from paceline.deployment import launch
from paceline.deployment.documents import without_none
from paceline.deployment.facts import api_version
from paceline.deployment.files import Deployment
from paceline.deployment.job import Job
from paceline.deployment.settings import DeploySettings
from paceline.deployment.targets import kubernetes as k8s
from paceline.errors import InvalidInputError

#: Names that the published torch runtime gives to its job and container.
_RUNTIME = "torch-distributed"
_GROUP = "node"
_MANAGER = "paceline.dev/deploy"


def trainjob(job: Job, settings: DeploySettings) -> Deployment:
    """``trainjob.yaml``; the trainer sets the rendezvous variables that torchrun reads.

    Raises:
        InvalidInputError: The plan's framework is not PyTorch.
    """
    if job.stack.framework != "torch":
        raise InvalidInputError(
            f"the torch runtime of the trainer does not run {job.stack.framework}",
            hint="deploy to jobset",
        )
    job = k8s.for_cluster(job, settings)
    runtime = settings.options.get("runtime", _RUNTIME)
    needs = (
        f"Kubeflow Trainer with the ClusterTrainingRuntime {runtime}",
        *k8s.cluster_needs(job, settings),
    )
    spec = {
        "runtimeRef": {"name": runtime},
        "trainer": _trainer(job),
        "runtimePatches": [_patch(job, settings)],
    }
    document = {
        "apiVersion": api_version("trainjob"),
        "kind": "TrainJob",
        "metadata": k8s.metadata(job, settings),
        "spec": without_none(spec),
    }
    return k8s.applied("trainjob", "trainjob.yaml", [document], needs, job, settings)


def _trainer(job: Job) -> dict[str, Any]:
    program = launch.trained(job)
    if program.launcher not in ("", "torchrun"):
        raise launch.starts_ranks(program, "Kubeflow Trainer")
    args: tuple[str, ...] = (*program.options, *program.ranked_words)
    command = list(program.ranks_words)
    if not launch.uses_torchrun(job):
        command, args = list(program.python_words[:1]), program.python_words[1:]
    command = [*k8s.bounding_words(job), *command]
    return {
        "image": job.image,
        "numNodes": job.num_nodes,
        "numProcPerNode": job.ranks_per_node,
        "command": command,
        "args": [k8s.literal(word) for word in args],
        "env": k8s.environment(job),
        "resourcesPerNode": k8s.resources(job),
    }


def _container(job: Job) -> dict[str, Any]:
    return {
        "name": _GROUP,
        "volumeMounts": k8s.volume_mounts(job),
        "securityContext": k8s.container_security(job),
    }


def _patch(job: Job, settings: DeploySettings) -> dict[str, Any]:
    """What a TrainJob cannot say itself: volumes, where to run, and the notice to save."""
    pod = {
        "terminationGracePeriodSeconds": job.grace_s,
        "nodeSelector": k8s.node_selector(job, settings) or None,
        "tolerations": k8s.tolerations(job, settings) or None,
        "serviceAccountName": settings.options.get("service-account"),
        "securityContext": k8s.pod_security(job, settings),
        "volumes": k8s.volumes(job, settings),
        "containers": [_container(job)],
    }
    template = {"spec": {"template": {"spec": without_none(pod)}}}
    replicated = [{"name": _GROUP, "template": template}]
    return {
        "manager": _MANAGER,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": replicated}}},
    }
