"""The targets by name, and the one function that deploys to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from paceline.deploy.azureml import azureml
from paceline.deploy.docker import apptainer, docker
from paceline.deploy.files import Deployment
from paceline.deploy.job import Job, job_of
from paceline.deploy.jobset import jobset
from paceline.deploy.kubernetes import kubernetes
from paceline.deploy.rayjob import rayjob
from paceline.deploy.sagemaker import sagemaker, sagemaker_endpoint
from paceline.deploy.serving import kserve, tensorflow_serving, triton
from paceline.deploy.settings import COMMON_OPTIONS, DeploySettings, Purpose, with_common_options
from paceline.deploy.skypilot import skypilot
from paceline.deploy.slurm import slurm
from paceline.deploy.torchrun import torchrun
from paceline.deploy.trainjob import trainjob
from paceline.deploy.vertex import vertex
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
_TRAIN: tuple[Purpose, ...] = ("train",)
_SERVE: tuple[Purpose, ...] = ("serve",)
_RUN: tuple[Purpose, ...] = ("train", "measure")
_CLUSTER = ("namespace", "service-account", "accelerator")
_SCHEDULER = ("partition", "account", "qos", "constraint", "reservation", "gres")


def _entry(
    name: str,
    writer: _Writer,
    summary: str,
    purposes: tuple[Purpose, ...] = _RUN,
    options: tuple[str, ...] = (),
) -> tuple[Target, _Writer]:
    return Target(name=name, purposes=purposes, summary=summary, options=options), writer


_TARGETS: dict[str, tuple[Target, _Writer]] = {
    entry[0].name: entry
    for entry in (
        _entry("torchrun", torchrun, "shell script for one or several machines"),
        _entry("docker", docker, "Dockerfile and Compose file"),
        _entry("apptainer", apptainer, "Apptainer definition and run script"),
        _entry("slurm", slurm, "sbatch file", _RUN, (*_SCHEDULER, "venv", "container")),
        _entry("kubernetes", kubernetes, "Indexed Job with a headless service", _RUN, _CLUSTER),
        _entry("jobset", jobset, "JobSet", _RUN, _CLUSTER),
        _entry("trainjob", trainjob, "Kubeflow Trainer TrainJob", _TRAIN, ("runtime", *_CLUSTER)),
        _entry("skypilot", skypilot, "SkyPilot task with spot recovery", _RUN,
               ("region", "accelerator")),
        _entry("rayjob", rayjob, "KubeRay RayJob", _TRAIN, ("ray", *_CLUSTER)),
        _entry("sagemaker", sagemaker, "SageMaker training job, one or two kinds of machines",
               _TRAIN, ("role", "instance-type", "data-instance-type", "data-instances",
                        "data-command")),
        _entry("azureml", azureml, "Azure ML command job", _TRAIN, ("compute",)),
        _entry("vertex", vertex, "Vertex AI custom job", _TRAIN,
               ("region", "service-account", "accelerator")),
        _entry("triton", triton, "Triton model configuration", _SERVE, ("backend",)),
        _entry("kserve", kserve, "KServe InferenceService", _SERVE, ("format", *_CLUSTER)),
        _entry("tensorflow-serving", tensorflow_serving, "TensorFlow Serving configuration",
               _SERVE),
        _entry("sagemaker-endpoint", sagemaker_endpoint, "SageMaker multi-model end point", _SERVE,
               ("role", "instance-type")),
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
    settings = with_common_options(settings or DeploySettings())
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
            known = ", ".join((*target.options, *COMMON_OPTIONS))
            raise InvalidInputError(
                f"{target.name} has no option `{option}`", hint=f"it has: {known}"
            )
