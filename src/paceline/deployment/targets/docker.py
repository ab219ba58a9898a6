"""Dockerfile and Compose file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from paceline.deployment import launch
from paceline.deployment.documents import yaml_text
from paceline.deployment.facts import container_user, filled, template
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.images import install_lines
from paceline.deployment.job import Job, assumptions_of
from paceline.deployment.settings import DeploySettings

_DATA_MOUNT = "/data"
_CHECKPOINT_MOUNT = "/checkpoints"
_MIB_BYTES = 2**20
_UP = "docker compose up --build"
_RECORDS_FOLDER = "mkdir -p records && chmod a+rwx records && "


def docker(job: Job, settings: DeploySettings) -> Deployment:
    """Image and Compose file for one machine; for several the image alone, which clusters start."""
    needs, image = _needs(job), job.num_nodes > 1
    up = _RECORDS_FOLDER + _UP if job.purpose == "measure" else _UP
    compose = () if image else (DeployFile(path="compose.yaml", text=_compose(job, needs)),)
    return Deployment(
        target="docker",
        files=(
            DeployFile(path="Dockerfile", text=dockerfile(job, needs)),
            *compose,
            DeployFile(path="check_device.py", text=template("check_device.py.txt")),
            DeployFile(path=".dockerignore", text=template("dockerignore.txt")),
        ),
        command=f"docker build --tag {job.name}:latest ." if image else up,
        needs=needs,
        assumptions=assumptions_of(job, settings),
    )


def _needs(job: Job) -> tuple[str, ...]:
    needs = [*launch.place_needs(job), *launch.code_need(job), *launch.driver_need(job)]
    if job.purpose == "train":
        needs.append(f"{launch.CHECKPOINT_VARIABLE} to be writable by user {container_user()}")
        needs.append("requirements.txt, if the script needs more than the framework")
    if job.num_nodes > 1:
        needs += launch.meeting_needs(job)
        needs.append("a cluster that starts it: deploy again to one, with this image as --image")
    return tuple(needs)


def dockerfile(job: Job, needs: Sequence[str]) -> str:
    """An image with the stack, the user's packages and code: slow layers first, not root."""
    meeting = launch.BY_VARIABLES if job.num_nodes > 1 else None
    parts = {
        "HEADER": "\n".join(f"# {line}" for line in launch.header(job, needs)),
        "BASE": job.image,
        "PACKAGES": "\n".join(
            install_lines(job.stack, job.choice.compiler, launch.tools(job), prefix="RUN ")
        ),
        "USER": str(container_user()),
        "COMMAND": json.dumps(["sh", "-c", "\n".join(launch.script_lines(job, meeting))]),
        "STOP": "SIGTERM",
    }
    return filled(template("Dockerfile.txt"), parts)


def _compose(job: Job, needs: Sequence[str]) -> str:
    document = {"name": job.name, "services": {"train": compose_service(job)}}
    return yaml_text([document], comments=launch.header(job, needs))


def compose_service(job: Job) -> dict[str, Any]:
    """One service of a Compose file: sizes, devices, mounts, and how it is stopped."""
    service: dict[str, Any] = {
        "build": ".",
        "image": f"{job.name}:latest",
        "environment": _compose_environment(job),
        "shm_size": f"{job.shm_bytes // _MIB_BYTES}m",
        "cpus": float(job.cpus_per_node),
        "mem_limit": f"{job.memory_bytes // _MIB_BYTES}m",
        "stop_signal": "SIGTERM",
        "stop_grace_period": f"{job.grace_s}s",
        "restart": "on-failure:3",
        "init": True,
    }
    return service | _compose_devices(job) | {"volumes": _compose_mounts(job)}


def _compose_mounts(job: Job) -> list[dict[str, Any]]:
    if job.purpose == "measure":
        return [mount("./records", "", f"/workspace/{launch.RECORDS}")]
    return [
        mount(job.data, launch.DATA_VARIABLE, _DATA_MOUNT, is_read_only=True),
        mount(job.checkpoints, launch.CHECKPOINT_VARIABLE, _CHECKPOINT_MOUNT),
    ]


def _compose_environment(job: Job) -> dict[str, str]:
    planned = {name: literal(value) for name, value in job.environment}
    if job.purpose == "measure":
        return planned
    places = {
        launch.DATA_VARIABLE: _DATA_MOUNT,
        launch.CHECKPOINT_VARIABLE: _CHECKPOINT_MOUNT,
    }
    return planned | places


def _compose_devices(job: Job) -> dict[str, Any]:
    if job.stack.platform == "cuda":
        reserved = {"driver": "nvidia", "count": job.devices_per_node, "capabilities": ["gpu"]}
        return {"deploy": {"resources": {"reservations": {"devices": [reserved]}}}}
    if job.stack.platform == "rocm":
        return {"devices": ["/dev/kfd", "/dev/dri"], "group_add": ["video"], "ipc": "host"}
    if job.stack.platform == "tpu":
        return {"privileged": True, "network_mode": "host"}
    return {}


def mount(
    place: str | None, variable: str, target: str, *, is_read_only: bool = False
) -> dict[str, Any]:
    """A folder of the machine in a container: ``place``, or what a variable names.

    The short form of three words with colons would read a colon of a path as its own.
    """
    source = f"${{{variable}:?see the top of this file}}" if place is None else literal(place)
    return {"type": "bind", "source": source, "target": literal(target), "read_only": is_read_only}


def literal(text: str) -> str:
    """Compose expands ``$``; doubled it stays."""
    return text.replace("$", "$$")
