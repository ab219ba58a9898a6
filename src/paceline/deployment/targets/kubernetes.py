"""Kubernetes: an Indexed Job with a headless service, for the device plugin of the vendor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paceline.deployment import launch
from paceline.deployment.documents import Document, without_none, yaml_text
from paceline.deployment.facts import (
    accelerator,
    api_version,
    container_user,
    platforms,
    sizing,
    tpu_slice,
)
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.job import Job, assumptions_of, fabric_of
from paceline.deployment.settings import DeploySettings
from paceline.errors import InvalidInputError, MissingFactError
from paceline.stack.tables import load_tables

_MIB_BYTES = 2**20
_CONTAINER = "trainer"
#: Status of `timeout` where a command took longer.
_TIMED_OUT = 124
_DATA_MOUNT = "/data"
_CHECKPOINT_MOUNT = "/checkpoints"
_RANK_VARIABLE = "JOB_COMPLETION_INDEX"
#: What Kubernetes takes as the name of an object (RFC 1123, a subdomain).
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_VARIANTS = ("", "gke-gpu", "gke-tpu")


def kubernetes(job: Job, settings: DeploySettings) -> Deployment:
    """``job.yaml``: a service for the rendezvous and an Indexed Job, one pod per machine."""
    job = for_cluster(job, settings)
    needs = cluster_needs(job, settings)
    meeting = launch.Meeting(rank_variable=_RANK_VARIABLE, host=f"{job.name}-0.{job.name}")
    documents = (_service(job, settings), _indexed_job(job, settings, meeting))
    return applied("kubernetes", "job.yaml", documents, needs, job, settings)


def applied(
    target: str,
    path: str,
    documents: Sequence[Document],
    needs: tuple[str, ...],
    job: Job,
    settings: DeploySettings,
) -> Deployment:
    """One file of documents that the cluster is told to apply."""
    text = yaml_text(documents, comments=launch.header(job, needs))
    return Deployment(
        target=target,
        files=(DeployFile(path=path, text=text),),
        command=f"kubectl apply -f {path}",
        needs=needs,
        assumptions=assumptions_of(job, settings),
    )


def for_cluster(job: Job, settings: DeploySettings) -> Job:
    """The job as the cluster counts it: a TPU slice sets nodes and chips per node itself.

    Raises:
        InvalidInputError: No such variant.
        MissingFactError: No image with the user's code, or no such slice.
    """
    if settings.variant not in _VARIANTS:
        raise InvalidInputError(
            f"no variant `{settings.variant}`", hint="use `gke-gpu`, `gke-tpu`, or none"
        )
    if settings.image is None and job.purpose == "train":
        raise MissingFactError(
            "the image that holds your code is not in the plan",
            hint="build and push one (`paceline deploy PLAN --to docker`), then `--image NAME:TAG`",
        )
    if settings.variant != "gke-tpu":
        return job
    num_chips = job.num_nodes * job.devices_per_node
    _, chips_per_node = tpu_slice(_tpu_generation(job), num_chips)
    num_nodes = max(1, num_chips // chips_per_node)
    return replace(job, num_nodes=num_nodes, devices_per_node=min(num_chips, chips_per_node))


def cluster_needs(job: Job, settings: DeploySettings) -> tuple[str, ...]:
    """What must be in the cluster before."""
    needs = [*launch.driver_need(job), *launch.fabric_need(job), *device_need(job, settings)]
    if job.purpose == "train":
        many = ", of access mode ReadWriteMany" if job.num_nodes > 1 else ""
        needs += [
            f"PersistentVolumeClaim {_claim(job, settings.data, 'data')} with the data{many}",
            f"PersistentVolumeClaim {_claim(job, settings.checkpoints, 'checkpoints')}{many}",
        ]
    else:
        claim = _claim(job, settings.checkpoints, "records")
        needs.append(f"PersistentVolumeClaim {claim}, where {launch.RECORDS} will be")
    needs.append(f"Secret {job.name}-credentials, if the script reads credentials (optional)")
    return tuple(needs)


def device_need(job: Job, settings: DeploySettings) -> list[str]:
    """A device plugin counts GPUs and does not tell them apart; labels of the nodes do."""
    if not job.devices_per_node or settings.variant or "node-selector" in settings.options:
        return []
    label = platforms()["kubernetes"].get(job.stack.platform, {}).get("device_label", "LABEL")
    device = job.choice.place.device
    return [f"nodes whose accelerators are {device}, or `--set node-selector={label}=…`"]


def pod_template(
    job: Job, settings: DeploySettings, meeting: launch.Meeting, *, subdomain: str | None = None
) -> dict[str, Any]:
    """A pod that runs one node of the job."""
    spec = {
        "restartPolicy": "Never",
        "subdomain": subdomain,
        "terminationGracePeriodSeconds": job.grace_s,
        "nodeSelector": node_selector(job, settings) or None,
        "tolerations": tolerations(job, settings) or None,
        "serviceAccountName": settings.options.get("service-account"),
        "securityContext": pod_security(job, settings),
        "containers": [_container(job, meeting)],
        "volumes": volumes(job, settings),
    }
    return {"metadata": {"labels": labels(job)}, "spec": without_none(spec)}


def labels(job: Job) -> dict[str, str]:
    """Labels of every object of the job."""
    return {"app.kubernetes.io/name": job.name, "app.kubernetes.io/managed-by": "paceline"}


def metadata(job: Job, settings: DeploySettings) -> dict[str, Any]:
    """Name, name space and labels."""
    namespace = settings.options.get("namespace")
    return without_none({"name": job.name, "namespace": namespace, "labels": labels(job)})


def _command_words(job: Job, meeting: launch.Meeting) -> list[str]:
    """The pod's command: a shell that becomes the launcher."""
    lines = launch.script_lines(job, meeting)
    *before, start = lines
    lines = [*before, start.replace("exec ", f"exec {' '.join((*bounding_words(job), ''))}", 1)]
    if job.purpose == "measure":
        lines = [f"cd {_CHECKPOINT_MOUNT}", f"pip install {launch.tool()}", *lines]
    return ["sh", "-c", literal("\n".join(lines))]


def bounding_words(job: Job) -> tuple[str, ...]:
    """Words before a command that end it in time; a Job's own deadline runs while pods wait."""
    seconds = deadline_s(job)
    return () if seconds is None else ("timeout", f"--kill-after={job.grace_s}", str(seconds))


def environment(job: Job) -> list[dict[str, Any]]:
    """Planned figures and mount points as environment variables."""
    pairs = list(job.environment)
    if job.purpose == "train":
        pairs += [
            (launch.DATA_VARIABLE, _DATA_MOUNT),
            (launch.CHECKPOINT_VARIABLE, _CHECKPOINT_MOUNT),
        ]
    return [{"name": name, "value": literal(value)} for name, value in pairs]


def resources(job: Job) -> dict[str, Any]:
    """CPUs asked for; memory and accelerators asked for and bounded."""
    memory = f"{job.memory_bytes // _MIB_BYTES}Mi"
    requests: dict[str, str] = {"cpu": str(job.cpus_per_node), "memory": memory}
    limits: dict[str, str] = {"memory": memory}
    if job.devices_per_node:
        limits[_resource_name(job)] = requests[_resource_name(job)] = str(job.devices_per_node)
    if fabric := fabric_of(job):
        count = fabric["interfaces"].get(job.choice.place.instance_type)
        if count is not None:
            limits[fabric["resource"]] = requests[fabric["resource"]] = str(count)
    return {"requests": requests, "limits": limits}


def pod_security(job: Job, settings: DeploySettings) -> dict[str, Any] | None:
    """The user that the pod runs as, who may write to its volumes; None where that must be root.

    Training images are ours or say their user with ``user``; a sweep installs its tool into a
    published image, and the devices of ROCm and of TPUs are root's.

    Raises:
        InvalidInputError: ``user`` is no number.
    """
    if not _is_unprivileged(job):
        return None
    given = settings.options.get("user", str(container_user()))
    if not given.isdecimal():
        raise InvalidInputError(
            f"`{given}` is no number of a user", hint="write it like --set user=1000; 0 is root"
        )
    user, profile = int(given), {"seccompProfile": {"type": "RuntimeDefault"}}
    owner = {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    policy = {"runAsNonRoot": user > 0, "fsGroupChangePolicy": "OnRootMismatch"}
    return {**policy, **owner, **profile}


def container_security(job: Job) -> dict[str, Any]:
    """No way to more rights, and none to begin with where the pod has a user of its own."""
    drops = {"capabilities": {"drop": ["ALL"]}} if _is_unprivileged(job) else {}
    return {"allowPrivilegeEscalation": False, **drops}


def _is_unprivileged(job: Job) -> bool:
    return job.purpose == "train" and job.stack.platform in {"cuda", "cpu"}


def volumes(job: Job, settings: DeploySettings) -> list[dict[str, Any]]:
    """Shared memory in main memory, and the claims."""
    size = f"{job.shm_bytes // _MIB_BYTES}Mi"
    found: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
    ]
    for name, place, _ in _folders(job, settings.data, settings.checkpoints):
        claim = {"claimName": _claim(job, place, name)}
        found.append({"name": name, "persistentVolumeClaim": claim})
    return found


def volume_mounts(job: Job) -> list[dict[str, Any]]:
    """Where the volumes appear."""
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}]
    for name, _, path in _folders(job, None, None):
        read_only = {"readOnly": True} if path == _DATA_MOUNT else {}
        mounts.append({"name": name, "mountPath": path} | read_only)
    return mounts


def node_selector(job: Job, settings: DeploySettings) -> dict[str, str]:
    """Labels of the nodes that have the planned device."""
    if settings.variant == "gke-tpu":
        num_chips = job.num_nodes * job.devices_per_node
        topology, _ = tpu_slice(_tpu_generation(job), num_chips)
        device = accelerator(job.choice.place.device, "gke_accelerator")
        labels = {
            "cloud.google.com/gke-tpu-accelerator": device,
            "cloud.google.com/gke-tpu-topology": topology,
        }
    elif settings.variant == "gke-gpu":
        device = settings.options.get("accelerator") or accelerator(
            job.choice.place.device, "gke_accelerator"
        )
        labels = {"cloud.google.com/gke-accelerator": device}
    else:
        return _stated_labels(settings)
    labels |= _stated_labels(settings)
    return labels | ({"cloud.google.com/gke-spot": "true"} if job.choice.place.is_spot else {})


def _stated_labels(settings: DeploySettings) -> dict[str, str]:
    """Labels of nodes that the user names, as ``KEY=VALUE`` with commas between."""
    stated = settings.options.get("node-selector")
    pairs = [pair.partition("=") for pair in stated.split(",")] if stated else []
    if not all(key and value for key, _, value in pairs):
        raise InvalidInputError(
            f"`{stated}` is no list of labels", hint="write --set node-selector=KEY=VALUE"
        )
    return {key: value for key, _, value in pairs}


def tolerations(job: Job, settings: DeploySettings) -> list[dict[str, str]]:
    """Taints that the nodes of accelerators carry."""
    if not job.devices_per_node:
        return []
    found = [{"key": _resource_name(job), "operator": "Exists", "effect": "NoSchedule"}]
    if job.choice.place.is_spot and settings.variant:
        spot = {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true"}
        found.append(spot | {"effect": "NoSchedule"})
    return found


def literal(text: str) -> str:
    """Kubernetes expands ``$(NAME)`` in commands and variables; doubled signs stay."""
    return text.replace("$", "$$")


def failure_policy() -> dict[str, Any]:
    """What a preempted node takes along is no failure; a pod beyond its time is the job's."""
    condition = {"type": "DisruptionTarget", "status": "True"}
    ended = {"containerName": _CONTAINER, "operator": "In", "values": [_TIMED_OUT]}
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": [condition]},
            {"action": "FailJob", "onExitCodes": ended},
        ]
    }


def deadline_s(job: Job) -> int | None:
    """Whole seconds until the job is stopped; None without an end."""
    return None if job.saving.wall_time_s is None else int(job.saving.wall_time_s)


def _container(job: Job, meeting: launch.Meeting) -> dict[str, Any]:
    return {
        "name": _CONTAINER,
        "image": job.image,
        "command": _command_words(job, meeting),
        "env": environment(job),
        "envFrom": [{"secretRef": {"name": f"{job.name}-credentials", "optional": True}}],
        "resources": resources(job),
        "ports": [{"name": "rendezvous", "containerPort": job.port, "protocol": "TCP"}],
        "volumeMounts": volume_mounts(job),
        "securityContext": container_security(job),
    }


def _service(job: Job, settings: DeploySettings) -> dict[str, Any]:
    return {
        "apiVersion": api_version("core"),
        "kind": "Service",
        "metadata": metadata(job, settings),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app.kubernetes.io/name": job.name},
            "ports": [{"name": "rendezvous", "port": job.port}],
        },
    }


def _indexed_job(job: Job, settings: DeploySettings, meeting: launch.Meeting) -> dict[str, Any]:
    restarts = int(sizing()["rendezvous"]["max_restarts"])
    spec = {
        "completionMode": "Indexed",
        "completions": job.num_nodes,
        "parallelism": job.num_nodes,
        "backoffLimit": restarts * job.num_nodes,
        "podFailurePolicy": failure_policy(),
        "podReplacementPolicy": "Failed",
        "template": pod_template(job, settings, meeting, subdomain=job.name),
    }
    return {
        "apiVersion": api_version("job"),
        "kind": "Job",
        "metadata": metadata(job, settings),
        "spec": without_none(spec),
    }


def _resource_name(job: Job) -> str:
    known = platforms()["kubernetes"].get(job.stack.platform)
    if known is None:
        raise MissingFactError(
            f"the device plugin of {job.stack.platform} is not on record",
            hint="deploy to skypilot, slurm or torchrun",
        )
    return str(known["resource"])


def _folders(
    job: Job, data: str | None, checkpoints: str | None
) -> tuple[tuple[str, str | None, str], ...]:
    """Name, place and mount point of each claim; serving has none."""
    if job.purpose == "train":
        return (
            ("data", data, _DATA_MOUNT),
            ("checkpoints", checkpoints, _CHECKPOINT_MOUNT),
        )
    return (("records", checkpoints, _CHECKPOINT_MOUNT),) if job.purpose == "measure" else ()


def _claim(job: Job, place: str | None, kind: str) -> str:
    """Name of a claim: as given, or after the job.

    A pod that names what cannot be a claim waits for ever, so it is refused here.
    """
    if place is not None and not _NAME.fullmatch(place):
        option = "data" if kind == "data" else "checkpoints"
        raise InvalidInputError(
            f"`{place}` is no name of a PersistentVolumeClaim",
            hint=f"name the claim that holds it, such as --{option} {job.name}-{kind}",
        )
    return place or f"{job.name}-{kind}"


def _tpu_generation(job: Job) -> str:
    """Generation of the planned TPU, as the software tables call it."""
    name = job.choice.place.device.lower()
    for row in load_tables().name_targets:
        if row.kind == "tpu" and row.name_has in name:
            return row.target.code
    raise MissingFactError(
        f"{job.choice.place.device} is not a TPU on record", hint="deploy without `gke-tpu`"
    )
