"""Google Vertex AI: a custom job with a chief and its workers."""

from __future__ import annotations

from typing import Any

from paceline.deployment import launch, shell
from paceline.deployment.documents import without_none, yaml_text
from paceline.deployment.facts import accelerator, template
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.job import Job, assumptions_of, disk_bytes
from paceline.deployment.settings import DeploySettings
from paceline.errors import MissingFactError

_BUCKET_MOUNT = "/gcs/"
_SCHEME = "gs://"
_GIB_BYTES = 2**30


def vertex(job: Job, settings: DeploySettings) -> Deployment:
    """``vertex.yaml``, the specification that ``gcloud ai custom-jobs create`` reads.

    Raises:
        MissingFactError: The region, the image or a bucket was not given.
    """
    if settings.image is None:
        raise MissingFactError(
            "the image that holds your code is not in the plan",
            hint="build and push one (`paceline deploy PLAN --to docker`), then `--image NAME:TAG`",
        )
    region = settings.options.get("region") or job.choice.place.region
    needs = ("gcloud with a project set as default", *launch.driver_need(job))
    document = {
        "workerPoolSpecs": _pools(job, settings),
        "scheduling": _scheduling(job),
        "serviceAccount": settings.options.get("service-account"),
        "baseOutputDirectory": {"outputUriPrefix": _bucket(job.checkpoints, "checkpoints")},
    }
    text = yaml_text([without_none(document)], comments=launch.header(job, needs))
    words = ["gcloud", "ai", "custom-jobs", "create", f"--region={region}",
             f"--display-name={job.name}", "--config=vertex.yaml"]  # fmt: skip
    return Deployment(
        target="vertex",
        files=(DeployFile(path="vertex.yaml", text=text),),
        command=shell.join(words),
        needs=needs,
        assumptions=assumptions_of(job, settings),
    )


def _pools(job: Job, settings: DeploySettings) -> list[dict[str, Any]]:
    """The chief is a pool of one, as the service wants it; the others follow."""
    pool = {
        "machineSpec": _machine(job, settings),
        "diskSpec": {"bootDiskType": "pd-ssd", "bootDiskSizeGb": disk_bytes(job) // _GIB_BYTES},
        "containerSpec": {
            "imageUri": job.image,
            "command": ["sh", "-c", _script(job)],
            "env": [{"name": name, "value": value} for name, value in _environment(job)],
        },
    }
    counts = [1] if job.num_nodes == 1 else [1, job.num_nodes - 1]
    return [pool | {"replicaCount": count} for count in counts]


def _machine(job: Job, settings: DeploySettings) -> dict[str, Any]:
    """The planned machine; accelerators are named beside it."""
    given = settings.options.get("machine-type")
    if given is None and job.choice.place.cloud != "gcp":
        raise MissingFactError(
            f"Vertex AI has no machine of {job.choice.place.cloud}",
            hint="choose a Google Cloud offer (`--choice`), or give `--set machine-type=…`",
        )
    machine: dict[str, Any] = {"machineType": given or job.choice.place.instance_type}
    if job.devices_per_node:
        kind = settings.options.get("accelerator") or accelerator(
            job.choice.place.device, "vertex_accelerator"
        )
        machine |= {"acceleratorType": kind, "acceleratorCount": job.devices_per_node}
    return machine


def _script(job: Job) -> str:
    meeting = launch.Meeting(rank_variable="node_rank", host=shell.Variable("head_host"))
    lines = launch.script_lines(job, meeting)
    if job.num_nodes > 1:
        lines = [template("vertex_hosts.sh.txt").strip(), *lines]
    return "\n".join(lines)


def _environment(job: Job) -> list[tuple[str, str]]:
    return [
        *job.environment,
        (launch.DATA_VARIABLE, _mounted(_bucket(job.data, "data"))),
        (launch.CHECKPOINT_VARIABLE, _mounted(_bucket(job.checkpoints, "checkpoints"))),
    ]


def _scheduling(job: Job) -> dict[str, Any]:
    seconds = job.saving.wall_time_s
    found = {
        "timeout": None if seconds is None else f"{int(seconds)}s",
        "restartJobOnWorkerRestart": True,
        "strategy": "SPOT" if job.choice.place.is_spot else None,
    }
    return without_none(found)


def _bucket(place: str | None, option: str) -> str:
    if place is None or not place.startswith(_SCHEME):
        raise MissingFactError(
            f"the bucket of the {option} is not in the plan",
            hint=f"give it with `--{option} {_SCHEME}bucket/prefix`",
        )
    return place


def _mounted(uri: str) -> str:
    """Vertex mounts every bucket that the job may read."""
    return _BUCKET_MOUNT + uri.removeprefix(_SCHEME)
