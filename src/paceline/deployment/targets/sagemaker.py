"""Amazon SageMaker: training jobs, clusters of two kinds of machines, multi-model end points."""

from __future__ import annotations

import shlex
from typing import Any

from paceline.deployment import launch, shell
from paceline.deployment.documents import Document, json_text
from paceline.deployment.facts import platforms, template
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.job import Job, assumptions_of, disk_bytes
from paceline.deployment.settings import DeploySettings
from paceline.errors import InvalidInputError, MissingFactError

_MOUNT = "/opt/ml/input/data/data"
_CHECKPOINT_MOUNT = "/opt/ml/checkpoints"
_TRAIN_GROUP = "train"
_DATA_GROUP = "data"
_SCRIPT_VARIABLE = "PACELINE_LAUNCH"
_MAX_VALUE = 512
_MAX_PARTS = 6
_GIB_BYTES = 2**30
_SHELL = ("sh", "-c")


def sagemaker(job: Job, settings: DeploySettings) -> Deployment:
    """``training-job.json``: a request of the service, with a second group of machines on demand.

    The name in it is replaced when it is sent: the service takes each name once, and the job that
    goes on from the checkpoints of another needs a name of its own.

    Raises:
        MissingFactError: The role, image, data or checkpoint location was not given.
        InvalidInputError: The command is longer than the service takes.
    """
    image = _image(settings)
    data, checkpoints = _place(job.data, "data"), _place(job.checkpoints, "checkpoints")
    seconds = _seconds(job)
    is_spot = job.choice.place.is_spot
    stopping = {"MaxRuntimeInSeconds": seconds}
    parts = _script_parts(job, settings)
    request: Document = {
        "TrainingJobName": job.name,
        "RoleArn": settings.need("role", "the execution role"),
        "AlgorithmSpecification": {
            "TrainingImage": image,
            "TrainingInputMode": "FastFile",
            "ContainerEntrypoint": list(_SHELL),
            "ContainerArguments": [_evaluation(parts)],
        },
        "InputDataConfig": [_channel(data)],
        "OutputDataConfig": {"S3OutputPath": f"{checkpoints.rstrip('/')}/output"},
        "CheckpointConfig": {"S3Uri": checkpoints, "LocalPath": _CHECKPOINT_MOUNT},
        "ResourceConfig": _resources(job, settings),
        "StoppingCondition": stopping | ({"MaxWaitTimeInSeconds": 2 * seconds} if is_spot else {}),
        "EnableManagedSpotTraining": is_spot,
        "RetryStrategy": {"MaximumRetryAttempts": 3},
        "Environment": _environment(job) | parts,
    }
    return _deployment(
        job,
        settings,
        {"training-job.json": request},
        "aws sagemaker create-training-job --cli-input-json file://training-job.json "
        f"--training-job-name {job.name}-$(date -u +%y%m%d%H%M%S)",
    )


def sagemaker_endpoint(job: Job, settings: DeploySettings) -> Deployment:
    """Requests for one end point that serves every model under a prefix."""
    models = _place(job.data, "data", "prefix of the model archives")
    names = {kind: f"{job.name}-{kind}" for kind in ("model", "config", "endpoint")}
    model = {
        "ModelName": names["model"],
        "ExecutionRoleArn": settings.need("role", "the execution role"),
        "PrimaryContainer": {
            "Image": _image(settings),
            "Mode": "MultiModel",
            "ModelDataUrl": models,
            "MultiModelConfig": {"ModelCacheSetting": "Enabled"},
        },
    }
    variant = {
        "VariantName": "all",
        "ModelName": names["model"],
        "InstanceType": _instance_type(job, settings),
        "InitialInstanceCount": job.num_nodes,
    }
    config = {"EndpointConfigName": names["config"], "ProductionVariants": [variant]}
    endpoint = {"EndpointName": names["endpoint"], "EndpointConfigName": names["config"]}
    requests: dict[str, Document] = {
        "model.json": model,
        "endpoint-config.json": config,
        "endpoint.json": endpoint,
    }
    calls = ("create-model", "create-endpoint-config", "create-endpoint")
    command = " && ".join(
        f"aws sagemaker {call} --cli-input-json file://{path}"
        for call, path in zip(calls, requests, strict=True)
    )
    return _deployment(job, settings, requests, command)


def _deployment(
    job: Job, settings: DeploySettings, requests: dict[str, Document], command: str
) -> Deployment:
    """JSON has no comments, so what is needed stands in a file of its own, first."""
    needs = ("AWS credentials of the account of the role", "an image in a registry of that account")
    name = next(iter(requests)).removesuffix(".json")
    lines = [f"# {line}" for line in launch.header(job, needs)]
    script = DeployFile(path=f"{name}.sh", text="\n".join(["#!/bin/sh", *lines, command]) + "\n")
    files = [DeployFile(path=path, text=json_text(request)) for path, request in requests.items()]
    return Deployment(
        target="sagemaker",
        files=(script, *files),
        command=f"sh {name}.sh",
        needs=needs,
        assumptions=assumptions_of(job, settings),
    )


def _resources(job: Job, settings: DeploySettings) -> dict[str, Any]:
    """One kind of machine, or a group that trains and a group that prepares data."""
    disk_gib = disk_bytes(job) // _GIB_BYTES
    mine = {"InstanceType": _instance_type(job, settings), "InstanceCount": job.num_nodes}
    if not _has_data_group(settings):
        return mine | {"VolumeSizeInGB": disk_gib}
    others = {
        "InstanceType": settings.need("data-instance-type", "the machine that prepares the data"),
        "InstanceCount": int(settings.options.get("data-instances", "1")),
    }
    groups = [
        mine | {"InstanceGroupName": _TRAIN_GROUP},
        others | {"InstanceGroupName": _DATA_GROUP},
    ]
    return {"InstanceGroups": groups, "VolumeSizeInGB": disk_gib}


def _has_data_group(settings: DeploySettings) -> bool:
    return any(option.startswith("data-") for option in settings.options)


def _environment(job: Job) -> dict[str, str]:
    places = {launch.DATA_VARIABLE: _MOUNT, launch.CHECKPOINT_VARIABLE: _CHECKPOINT_MOUNT}
    return dict(job.environment) | places


def _script_parts(job: Job, settings: DeploySettings) -> dict[str, str]:
    """The launcher's script in variables, since the service takes only short arguments.

    Raises:
        InvalidInputError: It is longer than all of them hold.
    """
    script = _script(job, settings)
    starts = range(0, len(script), _MAX_VALUE)
    if len(starts) > _MAX_PARTS:
        raise InvalidInputError(
            f"the command makes a script of {len(script)} characters, and SageMaker takes "
            f"{_MAX_PARTS * _MAX_VALUE}",
            hint="put the arguments into a file that the script reads",
        )
    return {
        f"{_SCRIPT_VARIABLE}_{number}": script[start : start + _MAX_VALUE]
        for number, start in enumerate(starts)
    }


def _evaluation(parts: dict[str, str]) -> str:
    return 'eval "' + "".join(f"${{{name}}}" for name in parts) + '"'


def _script(job: Job, settings: DeploySettings) -> str:
    """Lines that every machine evaluates: who am I, where is the first, then the launcher."""
    meeting = launch.Meeting(rank_variable="node_rank", host=shell.Variable("head_host"))
    lines = launch.script_lines(job, meeting)
    if job.num_nodes == 1 and not _has_data_group(settings):
        return "\n".join(lines)
    places = template("sagemaker_hosts.sh.txt").strip()
    if _has_data_group(settings):
        command = settings.need("data-command", "the command that prepares the data")
        words = ["exec", *shlex.split(command)]
        places += f'\nif [ "$group" = {_DATA_GROUP} ]; then {shell.join(words)}; fi'
    return "\n".join([places, *lines])


def _channel(uri: str) -> dict[str, Any]:
    source = {
        "S3DataType": "S3Prefix",
        "S3Uri": uri,
        "S3DataDistributionType": "FullyReplicated",
    }
    return {"ChannelName": "data", "DataSource": {"S3DataSource": source}}


def _instance_type(job: Job, settings: DeploySettings) -> str:
    """The managed service's name of the planned machine."""
    given = settings.options.get("instance-type")
    if given:
        return given
    if job.choice.place.cloud != "aws":
        raise MissingFactError(
            f"SageMaker has no machine of {job.choice.place.cloud}",
            hint="choose an AWS offer (--choice), or give `--set instance-type=ml.…`",
        )
    return str(platforms()["sagemaker"]["instance_prefix"]) + job.choice.place.instance_type


def _image(settings: DeploySettings) -> str:
    if settings.image is None:
        raise MissingFactError(
            "the image in the account's registry is not in the plan",
            hint="build and push one (`paceline deploy PLAN --to docker`), then `--image NAME:TAG`",
        )
    return settings.image


def _place(value: str | None, option: str, what: str = "") -> str:
    if value is None or not value.startswith("s3://"):
        raise MissingFactError(
            f"the S3 location of the {what or option} is not in the plan",
            hint=f"give it with `--{option} s3://bucket/prefix`",
        )
    return value


def _seconds(job: Job) -> int:
    if job.saving.wall_time_s is None:
        raise MissingFactError("the wall time is not in the plan", hint="give --set wall-time=12h")
    return int(job.saving.wall_time_s)
