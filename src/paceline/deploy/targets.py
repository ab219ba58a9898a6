"""The targets by name, and the one function that deploys to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from paceline.deploy.docker import apptainer, docker
from paceline.deploy.files import Deployment
from paceline.deploy.job import Job, job_of
from paceline.deploy.jobset import jobset
from paceline.deploy.kubernetes import kubernetes
from paceline.deploy.settings import DeploySettings, Purpose
from paceline.deploy.skypilot import skypilot
from paceline.deploy.slurm import slurm
from paceline.deploy.torchrun import torchrun
from paceline.deploy.trainjob import trainjob
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.planfile import PlanFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A place that launch files can be written for.

    Attributes:
        name: As typed.
        purposes: What it can do.
        summary: What is written, in a few words.
        options: Facts that the user may or must add with ``--set``.
    """

    name: str
    purposes: tuple[Purpose, ...]
    summary: str
    options: tuple[str, ...] = ()


_Writer = Callable[[Job, DeploySettings], Deployment]
_RUN: tuple[Purpose, ...] = ("train", "measure")
_CLUSTER = ("namespace", "service-account", "accelerator")

_TARGETS: dict[str, tuple[Target, _Writer]] = {
    target.name: (target, writer)
    for target, writer in (
        (Target(name="torchrun", purposes=_RUN, summary="shell script for one or several machines"),
         torchrun),
        (Target(name="docker", purposes=_RUN, summary="Dockerfile and Compose file"), docker),
        (Target(name="apptainer", purposes=_RUN, summary="Apptainer definition and run script"),
         apptainer),
        (Target(name="slurm", purposes=_RUN, summary="sbatch file",
                options=("partition", "account", "qos", "constraint", "gres", "venv", "container")),
         slurm),
        (Target(name="kubernetes", purposes=_RUN, summary="Indexed Job with a headless service",
                options=_CLUSTER), kubernetes),
        (Target(name="jobset", purposes=_RUN, summary="JobSet", options=_CLUSTER), jobset),
        (Target(name="trainjob", purposes=("train",), summary="Kubeflow Trainer TrainJob",
                options=("runtime", *_CLUSTER)), trainjob),
        (Target(name="skypilot", purposes=_RUN, summary="SkyPilot task with spot recovery",
                options=("region", "accelerator")), skypilot),
    )
}  # fmt: skip


def targets() -> tuple[Target, ...]:
    """Every target, in the order in which they are listed."""
    return tuple(target for target, _ in _TARGETS.values())


def deploy(plan: PlanFile, target: str, settings: DeploySettings | None = None) -> Deployment:
    """Launch files for one choice of ``plan``.

    Args:
        plan: A plan, as read from its file.
        target: Name of a target.
        settings: What the plan does not know.

    Raises:
        UnknownNameError: No such target.
        InvalidInputError: The target does not serve the purpose, or does not know an option.
        MissingFactError: A fact is missing; the hint says where to put it.
    """
    settings = settings or DeploySettings()
    known, writer = _find(target)
    if settings.purpose not in known.purposes:
        raise InvalidInputError(
            f"{target} cannot {settings.purpose}",
            hint=f"it can {' or '.join(known.purposes)}; see `paceline deploy --list`",
        )
    _check_options(known, settings)
    return writer(job_of(plan, settings), settings)


def measurements(
    plan: PlanFile, target: str, settings: DeploySettings, *, num_offers: int = 3
) -> tuple[Deployment, ...]:
    """A sweep on each of the first offers of ``plan``, one machine each."""
    first: dict[str, int] = {}
    for index, choice in enumerate(plan.choices):
        first.setdefault(choice.place.offer, index)
    chosen = list(first.values())[:num_offers]
    return tuple(
        deploy(plan, target, replace(settings, purpose="measure", choice=index, name=name))
        for index in chosen
        for name in [f"measure-{plan.workload.model}-{plan.choices[index].place.offer}"]
    )


def _find(name: str) -> tuple[Target, _Writer]:
    try:
        return _TARGETS[name.lower()]
    except KeyError:
        raise UnknownNameError.from_name(
            "target", name, _TARGETS, command="paceline deploy --list"
        ) from None


def _check_options(target: Target, settings: DeploySettings) -> None:
    for option in settings.options:
        if option not in target.options:
            known = ", ".join(target.options) or "none"
            raise InvalidInputError(
                f"{target.name} has no option `{option}`", hint=f"it has: {known}"
            )
