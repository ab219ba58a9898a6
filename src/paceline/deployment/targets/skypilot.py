"""A SkyPilot task: managed job with spot recovery, or a sweep that brings its records back."""

from __future__ import annotations

from typing import Any

from paceline.catalog.naming.launchers import skypilot_cloud
from paceline.deployment import launch, shell
from paceline.deployment.documents import without_none, yaml_text
from paceline.deployment.facts import accelerator, sizing
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.images import packages_of, system_packages_of
from paceline.deployment.job import Job, assumptions_of
from paceline.deployment.settings import DeploySettings
from paceline.errors import MissingFactError

_DATA_MOUNT = "/data"
_CHECKPOINT_MOUNT = "/checkpoints"
_GIB_BYTES = 2**30


def skypilot(job: Job, settings: DeploySettings) -> Deployment:
    """``sky.yaml``; a spot job is recovered and goes on from its checkpoints."""
    needs = [*launch.code_need(job), *launch.driver_need(job), _access_need(job)]
    if job.purpose == "train":
        needs += [
            "DATA_SOURCE: bucket or URL of the data" if job.data is None else "",
            "CHECKPOINT_BUCKET: bucket for checkpoints" if job.checkpoints is None else "",
        ]
    needs = [need for need in needs if need]
    task = without_none(
        {
            "name": job.name,
            "resources": resources(job, settings),
            "num_nodes": job.num_nodes,
            "workdir": "." if job.purpose == "train" else None,
            "envs": _environment(job),
            "file_mounts": _mounts(job),
            "setup": _setup(job),
            "run": _run(job),
        }
    )
    text = yaml_text([task], comments=launch.header(job, needs))
    return Deployment(
        target="skypilot",
        files=(DeployFile(path="sky.yaml", text=text),),
        command=_command(job),
        needs=tuple(needs),
        assumptions=assumptions_of(job, settings),
    )


def _access_need(job: Job) -> str:
    """Where SkyPilot must be let in: a cloud's account, or the cluster that owned machines form."""
    cloud = job.choice.place.cloud
    known = skypilot_cloud(cloud) or cloud
    where = "your machines as a Kubernetes cluster" if cloud == "own" else f"an account of {cloud}"
    return f"{where} that `sky check {known}` finds"


def resources(job: Job, settings: DeploySettings) -> dict[str, Any]:
    """Where a task runs: place, accelerators, processor, memory."""
    place = job.choice.place
    found = {
        "infra": _infra(job, settings),
        "accelerators": _accelerators(job, settings),
        "cpus": f"{job.cpus_per_node}+",
        "memory": f"{job.memory_bytes // _GIB_BYTES}+",
        "network_tier": "best" if job.num_nodes > 1 else None,
        "use_spot": place.is_spot or None,
        "image_id": f"docker:{job.image}" if job.stack.platform in {"cuda", "rocm"} else None,
        "job_recovery": _recovery(job) if job.purpose == "train" else None,
    }
    return without_none(found)


def _infra(job: Job, settings: DeploySettings) -> str:
    """Cloud with the region, where the plan's price is one region's."""
    cloud = skypilot_cloud(job.choice.place.cloud)
    if not cloud:
        raise MissingFactError(
            f"SkyPilot does not launch on {job.choice.place.cloud}",
            hint="deploy another choice (--choice), or to torchrun",
        )
    region = settings.options.get("region") or job.choice.place.region
    has_region = region and cloud in {"aws", "gcp", "azure"}
    return f"{cloud}/{region}" if has_region else cloud


def _accelerators(job: Job, settings: DeploySettings) -> dict[str, int] | None:
    if not job.devices_per_node:
        return None
    name = settings.options.get("accelerator") or accelerator(job.choice.place.device, "skypilot")
    return {name: job.devices_per_node}


def _recovery(job: Job) -> dict[str, Any]:
    return {
        "strategy": "EAGER_NEXT_REGION" if job.choice.place.is_spot else "FAILOVER",
        "max_restarts_on_errors": int(sizing()["rendezvous"]["max_restarts"]),
    }


def _environment(job: Job) -> dict[str, Any]:
    """Names that are to be filled in come first; SkyPilot asks for what is left empty."""
    open_names: dict[str, str | None] = {}
    if job.purpose == "train":
        if job.data is None:
            open_names["DATA_SOURCE"] = None
        if job.checkpoints is None:
            open_names["CHECKPOINT_BUCKET"] = None
    planned: dict[str, str | None] = dict(job.environment)
    if job.purpose == "train":
        planned |= {
            launch.DATA_VARIABLE: _DATA_MOUNT,
            launch.CHECKPOINT_VARIABLE: _CHECKPOINT_MOUNT,
        }
    return open_names | planned


def _mounts(job: Job) -> dict[str, Any] | None:
    """The data is copied on, the checkpoint bucket mounted, so that it outlives the machine."""
    if job.purpose != "train":
        return None
    bucket = job.checkpoints or "${CHECKPOINT_BUCKET}"
    return {
        _DATA_MOUNT: job.data or "${DATA_SOURCE}",
        _CHECKPOINT_MOUNT: {"source": bucket, "mode": "MOUNT_CACHED"},
    }


def _setup(job: Job) -> str | None:
    lines = []
    system = system_packages_of(job.choice.compiler)
    if system:
        install = shell.join(["sudo", "apt-get", "install", "-y", "-qq", *system])
        lines.append(f"sudo apt-get update -qq && {install}")
    packages = packages_of(job.stack)
    if packages:
        lines.append(shell.join(["pip", "install", *packages]))
    if job.purpose == "measure":
        lines.append(f"pip install {launch.tool()}")
    else:
        lines.append("if [ -f requirements.txt ]; then pip install -r requirements.txt; fi")
    return "\n".join(lines) + "\n"


def _run(job: Job) -> str:
    if job.purpose == "measure":
        default = f"${{HOME}}/{launch.RECORDS}"
        store = shell.Variable(launch.RECORDS_VARIABLE, default=default)
        return shell.join([*job.command, "--store", store]) + "\n"
    lines = []
    if job.num_nodes > 1:
        lines.append('head_address=$(printf "%s\\n" "${SKYPILOT_NODE_IPS}" | head -n 1)')
    meeting = launch.Meeting(
        rank_variable="SKYPILOT_NODE_RANK", host=shell.Variable("head_address")
    )
    lines += launch.script_lines(job, meeting)
    return "\n".join(lines) + "\n"


def _command(job: Job) -> str:
    if job.purpose == "measure":
        fetch = f"rsync -a {job.name}:{launch.RECORDS}/ records/"
        return f"sky launch -y -c {job.name} sky.yaml && {fetch} && sky down -y {job.name}"
    extra = "" if job.data is not None else " --env DATA_SOURCE"
    extra += "" if job.checkpoints is not None else " --env CHECKPOINT_BUCKET"
    return f"sky jobs launch -y{extra} sky.yaml"
