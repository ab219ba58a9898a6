"""KubeRay: a RayJob with a head that computes nothing and one worker per planned machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from paceline.deployment import launch, shell
from paceline.deployment.documents import without_none
from paceline.deployment.facts import api_version, sizing
from paceline.deployment.files import Deployment
from paceline.deployment.job import Job
from paceline.deployment.settings import DeploySettings
from paceline.deployment.targets import kubernetes as k8s


def rayjob(job: Job, settings: DeploySettings) -> Deployment:
    """``rayjob.yaml``; the script uses Ray Train with the planned number of workers."""
    job = k8s.for_cluster(job, settings)
    needs = (
        "the KubeRay operator in the cluster, and Ray in the image",
        "a script that uses ray.train with PACELINE_NUM_WORKERS workers",
        *k8s.cluster_needs(job, settings),
    )
    spec = {
        "entrypoint": shell.join(_entry(job)),
        "backoffLimit": int(sizing()["rendezvous"]["max_restarts"]),
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": int(sizing()["ray"]["idle_s"]),
        "rayClusterSpec": _cluster(job, settings),
    }
    document = {
        "apiVersion": api_version("rayjob"),
        "kind": "RayJob",
        "metadata": k8s.metadata(job, settings),
        "spec": without_none(spec),
    }
    return k8s.applied("rayjob", "rayjob.yaml", [document], needs, job, settings)


def _entry(job: Job) -> tuple[str, ...]:
    program = launch.trained(job)
    if program.launcher:
        raise launch.starts_ranks(program, "Ray Train")
    return (*k8s.bounding_words(job), *program.python_words)


def _cluster(job: Job, settings: DeploySettings) -> dict[str, Any]:
    facts = sizing()["ray"]
    head_bytes = int(facts["head_memory_bytes"])
    head = replace(
        job,
        devices_per_node=0,
        cpus_per_node=int(facts["head_cpus"]),
        memory_bytes=head_bytes,
        shm_bytes=int(head_bytes * float(sizing()["host"]["shm_frac"])),
    )
    workers = {
        "groupName": "workers",
        "replicas": job.num_nodes,
        "minReplicas": job.num_nodes,
        "maxReplicas": job.num_nodes,
        "rayStartParams": {},
        "template": _pod(job, settings, "ray-worker"),
    }
    return {
        "rayVersion": settings.options.get("ray", api_version("ray_release")),
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0"},
            "template": _pod(head, settings, "ray-head"),
        },
        "workerGroupSpecs": [workers],
    }


def _pod(job: Job, settings: DeploySettings, name: str) -> dict[str, Any]:
    environment = [*k8s.environment(job), *_scale(job)]
    container = {
        "name": name,
        "image": job.image,
        "env": environment,
        "envFrom": [{"secretRef": {"name": f"{job.name}-credentials", "optional": True}}],
        "resources": k8s.resources(job),
        "volumeMounts": k8s.volume_mounts(job),
        "securityContext": k8s.container_security(job),
    }
    spec = {
        "securityContext": k8s.pod_security(job, settings),
        "terminationGracePeriodSeconds": job.grace_s,
        "nodeSelector": (k8s.node_selector(job, settings) if job.devices_per_node else {}) or None,
        "tolerations": k8s.tolerations(job, settings) or None,
        "serviceAccountName": settings.options.get("service-account"),
        "containers": [container],
        "volumes": k8s.volumes(job, settings),
    }
    return {"metadata": {"labels": k8s.labels(job)}, "spec": without_none(spec)}


def _scale(job: Job) -> list[dict[str, str]]:
    return [
        {"name": "PACELINE_NUM_WORKERS", "value": str(job.num_ranks)},
        {"name": "PACELINE_USES_GPU", "value": str(job.stack.platform != "cpu").lower()},
    ]
