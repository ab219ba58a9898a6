"""Azure Machine Learning: a command job."""

from __future__ import annotations

from typing import Any

from paceline.deployment import launch, shell
from paceline.deployment.documents import without_none, yaml_text
from paceline.deployment.facts import api_version
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.job import Job, assumptions_of
from paceline.deployment.settings import DeploySettings
from paceline.errors import InvalidInputError, MissingFactError

_EXPRESSION = "${{"


def azureml(job: Job, settings: DeploySettings) -> Deployment:
    """``azureml.yaml``; the service starts one process per GPU and sets their ranks.

    Raises:
        MissingFactError: The compute target or a location was not given, or the machine is
            another cloud's.
        InvalidInputError: The command holds an expression of the service.
    """
    needs = (
        "a workspace set as default (`az configure`)",
        f"a compute cluster of {_machine(job, settings)}",
        *launch.code_need(job),
        *launch.driver_need(job),
    )
    document = {
        "$schema": api_version("azure_job_schema"),
        "type": "command",
        "display_name": job.name,
        "experiment_name": job.name,
        "code": ".",
        "command": _command(job),
        "environment": {"image": job.ready_image},
        "environment_variables": _environment(job),
        "compute": f"azureml:{settings.need('compute', 'the compute cluster')}",
        "resources": {
            "instance_count": job.num_nodes,
            "shm_size": f"{max(1, job.shm_bytes // 2**30)}g",
        },
        "distribution": _distribution(job),
        "inputs": {"data": _folder(job.data, "data", "ro_mount")},
        "outputs": {"checkpoints": _folder(job.checkpoints, "checkpoints", "rw_mount")},
        "limits": _limits(job),
        "queue_settings": {"job_tier": "spot"} if job.choice.place.is_spot else None,
    }
    text = yaml_text([without_none(document)], comments=launch.header(job, needs))
    return Deployment(
        target="azureml",
        files=(DeployFile(path="azureml.yaml", text=text),),
        command="az ml job create --file azureml.yaml --stream",
        needs=needs,
        assumptions=assumptions_of(job, settings),
    )


def _machine(job: Job, settings: DeploySettings) -> str:
    """Size of the cluster's machines, and that they are cheaper where the plan says spot."""
    place = job.choice.place
    given = settings.options.get("instance-type")
    if given is None and place.cloud != "azure":
        raise MissingFactError(
            f"Azure ML has no machine of {place.cloud}",
            hint="choose an Azure offer (--choice), or give `--set instance-type=Standard_…`",
        )
    tier = ", low-priority tier" if place.is_spot else ""
    return f"{given or place.instance_type}{tier}"


def _command(job: Job) -> str:
    if any(_EXPRESSION in word for word in job.command):
        raise InvalidInputError(
            f"the command holds `{_EXPRESSION}`, which Azure ML would read as its own",
            hint="put that argument into a file that the script reads",
        )
    places = (
        f"{launch.DATA_VARIABLE}=${{{{inputs.data}}}} "
        f"{launch.CHECKPOINT_VARIABLE}=${{{{outputs.checkpoints}}}} "
    )
    program = launch.trained(job)
    if program.launcher:
        raise launch.starts_ranks(program, "Azure ML")
    return places + shell.join(program.python_words)


def _environment(job: Job) -> dict[str, str]:
    """Planned figures; an image with a compiler states a newer driver than its code needs."""
    planned = dict(job.environment)
    return planned if job.compiler_image is None else planned | {"NVIDIA_DISABLE_REQUIRE": "true"}


def _distribution(job: Job) -> dict[str, Any] | None:
    if not launch.uses_torchrun(job) or job.num_ranks == 1:
        return None
    return {"type": "pytorch", "process_count_per_instance": job.ranks_per_node}


def _folder(place: str | None, option: str, mode: str) -> dict[str, str]:
    if place is None:
        raise MissingFactError(
            f"the datastore of the {option} is not in the plan",
            hint=f"give it with `--{option} azureml://datastores/…/paths/…`",
        )
    return {"type": "uri_folder", "path": place, "mode": mode}


def _limits(job: Job) -> dict[str, int] | None:
    seconds = job.saving.wall_time_s
    return None if seconds is None else {"timeout": int(seconds)}
