"""Several CUDA versions on one host: an image for each, in one Compose file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from paceline.catalog.load import load_catalog
from paceline.catalog.lookup import find_device
from paceline.deployment import launch
from paceline.deployment.documents import yaml_text
from paceline.deployment.facts import template
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.images import image_of
from paceline.deployment.job import Job, assumptions_of
from paceline.deployment.settings import DeploySettings
from paceline.deployment.targets.docker import compose_service, dockerfile
from paceline.errors import InvalidInputError
from paceline.stack.devices import planned_stack, target_of
from paceline.stack.queries import Constraints, check


def side_by_side(job: Job, settings: DeploySettings, toolkits: tuple[str, ...]) -> Deployment:
    """A Dockerfile per CUDA line and a Compose file with a service each, run one after the other.

    A driver runs every older CUDA, and each image brings its own, so they live on one host.

    Args:
        job: The job, as planned for one CUDA.
        settings: ``driver`` among its options bounds what the host can run.
        toolkits: CUDA lines.

    Raises:
        InvalidInputError: The plan's device is not an NVIDIA GPU.
        StackConflictError: The device or the driver cannot have one of them, and why.
    """
    variants = dict(_variants(job, settings, toolkits))
    needs = (*launch.place_needs(job), _driver_need(variants))
    services: dict[str, Any] = {}
    files = []
    for toolkit, variant in variants.items():
        name = f"cuda-{toolkit.replace('.', '-')}"
        files.append(DeployFile(path=f"Dockerfile.{name}", text=dockerfile(variant, needs)))
        build = {"context": ".", "dockerfile": f"Dockerfile.{name}"}
        image = f"{job.name}:{name}"
        services[name] = compose_service(variant) | {"build": build, "image": image}
    document = {"name": job.name, "services": services}
    compose = yaml_text([document], comments=launch.header(job, needs))
    runs = " && ".join(f"docker compose run --rm {name}" for name in services)
    return Deployment(
        target="docker",
        files=(
            DeployFile(path="compose.yaml", text=compose),
            *files,
            DeployFile(path="check_device.py", text=template("check_device.py.txt")),
        ),
        command=f"docker compose build && {runs}",
        needs=needs,
        assumptions=assumptions_of(job, settings),
    )


def _variants(
    job: Job, settings: DeploySettings, toolkits: tuple[str, ...]
) -> Iterator[tuple[str, Job]]:
    """The job on the newest release of its framework for each CUDA line."""
    device = find_device(load_catalog(), job.choice.place.device)
    target = target_of(device)
    if target is None or target.platform != "cuda":
        raise InvalidInputError(
            f"{device.name} runs no CUDA", hint="leave `--set cuda=…` out for this plan"
        )
    for toolkit in toolkits:
        wanted = Constraints(
            gpu=target.code,
            driver=settings.options.get("driver"),
            cuda=toolkit,
            framework=job.stack.framework,
        )
        stack = planned_stack(check(wanted))
        yield toolkit, replace(job, stack=stack, published_image=image_of(stack))


def _driver_need(variants: dict[str, Job]) -> str:
    floors = ", ".join(f"{job.stack.min_driver} for CUDA {line}" for line, job in variants.items())
    return f"an NVIDIA driver from {floors}"
