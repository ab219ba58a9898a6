"""JobSet: all pods of the job restart together when one is lost."""

from __future__ import annotations

from typing import Any

from paceline.deployment import launch
from paceline.deployment.documents import without_none
from paceline.deployment.facts import api_version, sizing
from paceline.deployment.files import Deployment
from paceline.deployment.job import Job
from paceline.deployment.settings import DeploySettings
from paceline.deployment.targets import kubernetes as k8s

_GROUP = "node"


def jobset(job: Job, settings: DeploySettings) -> Deployment:
    """``jobset.yaml``: one replicated job whose pods find each other by name."""
    job = k8s.for_cluster(job, settings)
    needs = ("the JobSet controller in the cluster", *k8s.cluster_needs(job, settings))
    host = f"{job.name}-{_GROUP}-0-0.{job.name}"
    meeting = launch.Meeting(rank_variable="JOB_COMPLETION_INDEX", host=host)
    document = {
        "apiVersion": api_version("jobset"),
        "kind": "JobSet",
        "metadata": k8s.metadata(job, settings),
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": {"maxRestarts": _max_restarts()},
            "replicatedJobs": [_replicated_job(job, settings, meeting)],
        },
    }
    return k8s.applied("jobset", "jobset.yaml", [document], needs, job, settings)


def _replicated_job(job: Job, settings: DeploySettings, meeting: launch.Meeting) -> dict[str, Any]:
    spec = {
        "completionMode": "Indexed",
        "completions": job.num_nodes,
        "parallelism": job.num_nodes,
        "backoffLimit": 0,
        "podFailurePolicy": k8s.failure_policy(),
        "podReplacementPolicy": "Failed",
        "template": k8s.pod_template(job, settings, meeting),
    }
    return {"name": _GROUP, "replicas": 1, "template": {"spec": without_none(spec)}}


def _max_restarts() -> int:
    return int(sizing()["rendezvous"]["max_restarts"])
