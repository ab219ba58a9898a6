"""The targets by name, and the one function that deploys to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.job import Job, job_of
from paceline.deployment.settings import (
    COMMON_OPTIONS,
    DeploySettings,
    Purpose,
    with_common_options,
)
from paceline.deployment.targets import engine_server
from paceline.deployment.targets.apptainer import apptainer
from paceline.deployment.targets.azureml import azureml
from paceline.deployment.targets.docker import docker
from paceline.deployment.targets.jobset import jobset
from paceline.deployment.targets.kubernetes import kubernetes
from paceline.deployment.targets.rayjob import rayjob
from paceline.deployment.targets.sagemaker import sagemaker, sagemaker_endpoint
from paceline.deployment.targets.serving import kserve, tensorflow_serving, torchserve, triton
from paceline.deployment.targets.side_by_side import side_by_side
from paceline.deployment.targets.skypilot import skypilot
from paceline.deployment.targets.slurm import slurm
from paceline.deployment.targets.torchrun import torchrun
from paceline.deployment.targets.trainjob import trainjob
from paceline.deployment.targets.vertex import vertex
from paceline.errors import InvalidInputError, UnknownNameError
from paceline.planfile import PlanFile
from paceline.plugins import load_plugin, plugins
from paceline.units import parse_count
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A place that launch files can be written for.

    Attributes:
        name: As typed.
        summary: What is written, in a few words.
        options: Facts that the user may or must add with ``--set``.
        serves_by_engine: Whether it serves what an engine serves, such as vLLM, whatever else is
            among its purposes.
    """

    name: str
    purposes: tuple[Purpose, ...]
    summary: str
    options: tuple[str, ...] = ()
    serves_by_engine: bool = False

    @property
    def all_purposes(self) -> tuple[Purpose, ...]:
        """Its own, and to serve where it does so by an engine."""
        is_more = self.serves_by_engine and "serve" not in self.purposes
        return (*self.purposes, "serve") if is_more else self.purposes


Writer = Callable[[Job, DeploySettings], Deployment]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTarget:
    """A target with what writes its files.

    Attributes:
        write: Makes the files of a job.
        write_server: Makes those of an engine's server, where a plan has one; None where none is
            known.
    """

    target: Target
    write: Writer
    write_server: Writer | None = None


#: Option of a measurement: on how many of the plan's offers to sweep, one after the other.
_OFFERS = "offers"
_DEFAULT_OFFERS = "3"

_TRAIN: tuple[Purpose, ...] = ("train",)
_SERVE: tuple[Purpose, ...] = ("serve",)
_RUN: tuple[Purpose, ...] = ("train", "measure")
_CLUSTER = ("namespace", "service-account", "node-selector", "accelerator", "user")
_SCHEDULER = ("partition", "account", "qos", "constraint", "reservation", "gres", "gpu-type")


def _entry(
    name: str,
    write: Writer,
    summary: str,
    purposes: tuple[Purpose, ...] = _RUN,
    options: tuple[str, ...] = (),
    server: Writer | None = None,
) -> LaunchTarget:
    summary += "" if server is None else "; to serve, vLLM or SGLang"
    target = Target(
        name=name, purposes=purposes, summary=summary, options=options,
        serves_by_engine=server is not None,
    )  # fmt: skip
    return LaunchTarget(target=target, write=write, write_server=server)


def _docker(job: Job, settings: DeploySettings) -> Deployment:
    """One image, or with the option ``cuda`` one for each CUDA line side by side."""
    toolkits = tuple(filter(None, settings.options.get("cuda", "").split(",")))
    return side_by_side(job, settings, toolkits) if toolkits else docker(job, settings)


_TARGETS: dict[str, LaunchTarget] = {
    entry.target.name: entry
    for entry in (
        _entry("torchrun", torchrun, "shell script for one or several machines"),
        _entry("docker", _docker, "Dockerfile and Compose file", _RUN, ("cuda", "driver"),
               engine_server.compose),
        _entry("apptainer", apptainer, "Apptainer definition and run script"),
        _entry("slurm", slurm, "sbatch file", _RUN, (*_SCHEDULER, "venv", "container")),
        _entry("kubernetes", kubernetes, "Indexed Job with a headless service", _RUN, _CLUSTER,
               engine_server.kubernetes),
        _entry("jobset", jobset, "JobSet", _RUN, _CLUSTER),
        _entry("trainjob", trainjob, "Kubeflow Trainer TrainJob", _TRAIN, ("runtime", *_CLUSTER)),
        _entry("skypilot", skypilot, "SkyPilot task with spot recovery", _RUN,
               ("region", "accelerator"), engine_server.skyserve),
        _entry("rayjob", rayjob, "KubeRay RayJob", _TRAIN, ("ray", *_CLUSTER)),
        _entry("sagemaker", sagemaker, "SageMaker training job, one or two kinds of machines",
               _TRAIN, ("role", "instance-type", "data-instance-type", "data-instances",
                        "data-command")),
        _entry("azureml", azureml, "Azure ML command job", _TRAIN, ("compute", "instance-type")),
        _entry("vertex", vertex, "Vertex AI custom job", _TRAIN,
               ("region", "machine-type", "service-account", "accelerator")),
        _entry("triton", triton, "Triton model configuration", _SERVE, ("backend",)),
        _entry("torchserve", torchserve, "TorchServe configuration", _SERVE),
        _entry("kserve", kserve, "KServe InferenceService", _SERVE, ("format", *_CLUSTER),
               engine_server.kserve),
        _entry("tensorflow-serving", tensorflow_serving, "TensorFlow Serving configuration",
               _SERVE),
        _entry("sagemaker-endpoint", sagemaker_endpoint, "SageMaker multi-model end point", _SERVE,
               ("role", "instance-type")),
    )
}  # fmt: skip


def targets() -> tuple[Target, ...]:
    """Every target, those of plug-ins last."""
    return tuple(one.target for one in (*_TARGETS.values(), *_added().values()))


@cache
def _added() -> dict[str, LaunchTarget]:
    """Those of plug-ins, by name.

    Raises:
        InvalidInputError: A plug-in that cannot be loaded, or is something else.
    """
    found: dict[str, LaunchTarget] = {}
    for point in plugins("launch_targets"):
        one = load_plugin(point)
        if not isinstance(one, LaunchTarget):
            raise InvalidInputError(
                f"the plug-in `{point.name}` is no LaunchTarget but a {type(one).__name__}",
                hint=f"correct or uninstall the package of `{point.value}`",
            )
        found[one.target.name] = one
    return found


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
    if settings.purpose == "measure" and _OFFERS in settings.options:
        return _together(target, measurements(plan, target, settings))
    settings = with_common_options(settings)
    found = _find(target)
    if settings.purpose == "serve" and found.write_server is not None:
        job = job_of(plan, settings)
        if engine_server.is_engine_service(job):
            options = (*found.target.options, *engine_server.SERVER_OPTIONS)
            _check_options(replace(found.target, options=options), settings)
            return found.write_server(job, settings)
    known = found.target
    if settings.purpose not in known.purposes:
        reason = ", and the plan is for inference" if plan.workload.task == "infer" else ""
        raise InvalidInputError(
            f"{target} cannot {settings.purpose}{reason}",
            hint=_instead(plan, known, settings),
        )
    _check_options(known, settings)
    return found.write(job_of(plan, settings), settings)


def _instead(plan: PlanFile, target: Target, settings: DeploySettings) -> str:
    """What this target can do with a plan, and which ones do what is wanted, as planned."""
    purpose = settings.purpose
    all_targets = (*_TARGETS.values(), *_added().values())
    able = [one for one in all_targets if purpose in one.target.purposes]
    if purpose == "serve" and engine_server.is_engine_service(job_of(plan, settings)):
        able = [one for one in all_targets if one.write_server is not None]
    names = ", ".join(f"`--to {one.target.name}`" for one in able)
    trains = plan.workload.task == "train"
    others = [f"`--purpose {one}`" for one in target.purposes if trains or one != "train"]
    add = f"; or add {' or '.join(others)}" if others else ""
    return f"what can {purpose}: {names}{add}"


def measurements(plan: PlanFile, target: str, settings: DeploySettings) -> tuple[Deployment, ...]:
    """A sweep on each of the first offers of ``plan``, as many as the option ``offers`` says.

    Raises:
        InvalidInputError: ``offers`` is no count.
    """
    options = dict(settings.options)
    num_offers = int(parse_count(options.pop(_OFFERS, _DEFAULT_OFFERS)))
    return tuple(
        deploy(
            plan,
            target,
            replace(
                settings,
                purpose="measure",
                choice=index,
                name=f"measure-{plan.workload.model}-{plan.choices[index].place.offer}",
                options=options,
            ),
        )
        for index in first_offers(plan, num_offers)
    )


def first_offers(plan: PlanFile, num_offers: int) -> tuple[int, ...]:
    """The best choice of each of the first offers of ``plan``, 0 being the first."""
    first: dict[str, int] = {}
    for index, choice in enumerate(plan.choices):
        first.setdefault(choice.place.offer, index)
    return tuple(first.values())[:num_offers]


def _together(target: str, sweeps: tuple[Deployment, ...]) -> Deployment:
    """Several sweeps as one: a folder each, and a script that runs them and gathers records."""
    folders = [f"{number}-offer" for number in range(1, len(sweeps) + 1)]
    lines = ["#!/bin/sh", "# Runs a sweep on each offer and gathers the records in ./records."]
    for folder, sweep in zip(folders, sweeps, strict=True):
        lines += [f"# {folder} needs {' '.join(need.split())}" for need in sweep.needs]
    lines.append("mkdir -p records")
    for folder, sweep in zip(folders, sweeps, strict=True):
        lines.append(f"(cd {folder} && {sweep.command})")
        lines.append(f"if [ -d {folder}/records ]; then cp -R {folder}/records/. records/; fi")
    script = DeployFile(path="measure-all.sh", text="\n".join(lines) + "\n")
    files = [
        DeployFile(path=f"{folder}/{file.path}", text=file.text)
        for folder, sweep in zip(folders, sweeps, strict=True)
        for file in sweep.files
    ]
    return Deployment(
        target=target,
        files=(script, *files),
        command="sh measure-all.sh",
        needs=tuple(dict.fromkeys(need for sweep in sweeps for need in sweep.needs)),
        assumptions=tuple(dict.fromkeys(a for sweep in sweeps for a in sweep.assumptions)),
    )


def _find(name: str) -> LaunchTarget:
    if found := _TARGETS.get(name.lower()) or _added().get(name.lower()):
        return found
    known = (*_TARGETS, *_added())
    raise UnknownNameError.from_name("target", name, known, command="paceline deploy --list")


def _check_options(target: Target, settings: DeploySettings) -> None:
    for option in settings.options:
        if option not in target.options:
            known = ", ".join((*target.options, *COMMON_OPTIONS, _OFFERS))
            raise InvalidInputError(
                f"{target.name} has no option `{option}`", hint=f"it has: {known}"
            )
