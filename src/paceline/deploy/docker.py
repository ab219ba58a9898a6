"""Dockerfile, Compose file and Apptainer definition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from paceline.deploy import launch, shell
from paceline.deploy.documents import yaml_text
from paceline.deploy.facts import template
from paceline.deploy.files import DeployFile, Deployment
from paceline.deploy.images import packages_of, system_packages_of
from paceline.deploy.job import Job, assumptions_of, container_words
from paceline.deploy.settings import DeploySettings
from paceline.deploy.slurm import filled
from paceline.errors import MissingFactError

_DATA_MOUNT = "/data"
_CHECKPOINT_MOUNT = "/checkpoints"
_MIB_BYTES = 2**20
_UP = "docker compose up --build"
_RECORDS_FOLDER = "mkdir -p records && chmod a+rwx records && "


def docker(job: Job, settings: DeploySettings) -> Deployment:
    """Image and Compose file for one machine."""
    _one_node(job)
    needs = [*launch.place_needs(job), *launch.driver_need(job), "requirements.txt, if the script"]
    needs[-1] += " needs more than the framework"
    return Deployment(
        target="docker",
        files=(
            DeployFile(path="Dockerfile", text=dockerfile(job, needs)),
            DeployFile(path="compose.yaml", text=_compose(job, needs)),
            DeployFile(path="check_device.py", text=template("check_device.py.txt")),
            DeployFile(path=".dockerignore", text=".git\n__pycache__\n*.sif\ncheckpoints\n"),
        ),
        command=_RECORDS_FOLDER + _UP if job.purpose == "measure" else _UP,
        needs=tuple(needs),
        assumptions=assumptions_of(job, settings),
    )


def dockerfile(job: Job, needs: Sequence[str]) -> str:
    """An image with the stack, the user's packages and code: slow layers first, not root."""
    parts = {
        "HEADER": "\n".join(f"# {line}" for line in launch.header(job, needs)),
        "BASE": job.image,
        "PACKAGES": "\n".join(_install_lines(job, "RUN ")),
        "COMMAND": json.dumps(["sh", "-c", "\n".join(launch.script_lines(job, None))]),
        "STOP": "SIGTERM",
    }
    return filled(template("Dockerfile.txt"), parts)


def apptainer(job: Job, settings: DeploySettings) -> Deployment:
    """An Apptainer definition with the stack, and a script that binds code and data in."""
    _one_node(job)
    needs = launch.place_needs(job) + launch.driver_need(job)
    comments = [f"# {line}" for line in launch.header(job, needs)]
    definition = [
        "Bootstrap: docker",
        f"From: {job.image}",
        "",
        "%post",
        *_install_lines(job, "    "),
    ]
    definition += ["", "%runscript", '    exec "$@"']
    script = ["#!/bin/sh", *comments, "set -eu", *launch.place_lines(job)]
    script += [*launch.environment_lines(job), "exec " + shell.join(_apptainer_words(job))]
    return Deployment(
        target="apptainer",
        files=(
            DeployFile(path="run.sh", text="\n".join(script) + "\n"),
            DeployFile(path="apptainer.def", text="\n".join([*comments, *definition]) + "\n"),
        ),
        command=f"apptainer build {job.name}.sif apptainer.def && sh run.sh",
        needs=tuple(needs),
        assumptions=assumptions_of(job, settings),
    )


def _apptainer_words(job: Job) -> list[shell.Word]:
    words: list[shell.Word] = ["apptainer", "run", *container_words(job, "apptainer")]
    if job.purpose != "measure":
        for variable in (launch.DATA_VARIABLE, launch.CHECKPOINT_VARIABLE):
            words += ["--bind", shell.Variable(variable)]
    return [*words, f"{job.name}.sif", *launch.single_node_words(job)]


def _packages(job: Job) -> tuple[str, ...]:
    """What the image lacks: the framework where no image holds it, and the tool that measures."""
    return packages_of(job.stack) + (("paceline",) if job.purpose == "measure" else ())


def _install_lines(job: Job, prefix: str) -> list[str]:
    """Lines that add what the image lacks: a C compiler, the framework, the tool that measures."""
    lines = []
    system = system_packages_of(job.choice.compiler)
    if system:
        update = "apt-get update"
        install = shell.join(["apt-get", "install", "-y", "--no-install-recommends", *system])
        lines.append(f"{prefix}{update} && {install} && rm -rf /var/lib/apt/lists/*")
    packages = _packages(job)
    if packages:
        lines.append(prefix + shell.join(["pip", "install", "--no-cache-dir", *packages]))
    return lines or ["# The image holds all that is needed."]


def _compose(job: Job, needs: list[str]) -> str:
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
        return [_mount("./records", "", f"/workspace/{launch.RECORDS}")]
    return [
        _mount(job.data, launch.DATA_VARIABLE, _DATA_MOUNT, is_read_only=True),
        _mount(job.checkpoints, launch.CHECKPOINT_VARIABLE, _CHECKPOINT_MOUNT),
    ]


def _compose_environment(job: Job) -> dict[str, str]:
    planned = {name: _literal(value) for name, value in job.environment}
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


def _mount(
    place: str | None, variable: str, target: str, *, is_read_only: bool = False
) -> dict[str, Any]:
    source = f"${{{variable}:?see the top of this file}}" if place is None else _literal(place)
    return {"type": "bind", "source": source, "target": target, "read_only": is_read_only}


def _literal(text: str) -> str:
    """Compose expands ``$``; doubled it stays."""
    return text.replace("$", "$$")


def _one_node(job: Job) -> None:
    if job.num_nodes > 1:
        raise MissingFactError(
            f"the plan runs on {job.num_nodes} machines, which this target does not connect",
            hint="deploy to torchrun, slurm, kubernetes, jobset or skypilot",
        )
