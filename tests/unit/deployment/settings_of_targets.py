"""For each target, a plan that suits it and the settings that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.deployment.settings import DeploySettings
from paceline.planfile import PlanFile

from . import plans

PLANS: dict[str, Callable[[], PlanFile]] = {
    "torchrun": plans.two_nodes,
    "docker": plans.plan,
    "apptainer": plans.plan,
    "slurm": plans.two_nodes,
    "kubernetes": plans.two_nodes,
    "jobset": plans.two_nodes,
    "trainjob": plans.two_nodes,
    "skypilot": lambda: plans.two_nodes(is_spot=True),
    "rayjob": plans.two_nodes,
    "sagemaker": lambda: plans.two_nodes(is_spot=True),
    "azureml": lambda: plans.two_nodes(is_spot=True),
    "vertex": plans.google,
    "triton": plans.plan,
    "torchserve": plans.plan,
    "kserve": plans.plan,
    "tensorflow-serving": plans.plan,
    "sagemaker-endpoint": plans.four_t4,
}

_CHANGES: dict[str, dict[str, Any]] = {
    "sagemaker": {
        "data": "s3://bucket/data",
        "checkpoints": "s3://bucket/checkpoints",
        "options": {"role": "arn:aws:iam::123456789012:role/training"},
    },
    "azureml": {
        "data": "azureml://datastores/store/paths/data",
        "checkpoints": "azureml://datastores/store/paths/checkpoints",
        "options": {"compute": "cluster", "instance-type": "Standard_ND96asr_v4"},
    },
    "vertex": {"data": "gs://bucket/data", "checkpoints": "gs://bucket/checkpoints"},
    "triton": {"purpose": "serve", "command": (), "options": {"backend": "onnxruntime"}},
    "kserve": {
        "purpose": "serve",
        "command": (),
        "data": "s3://bucket/model",
        "options": {"format": "onnx"},
    },
    "torchserve": {"purpose": "serve", "command": ()},
    "tensorflow-serving": {"purpose": "serve", "command": ()},
    "sagemaker-endpoint": {
        "purpose": "serve",
        "command": (),
        "data": "s3://bucket/models/",
        "options": {"role": "arn:aws:iam::123456789012:role/serving"},
    },
}


def settings_for(target: str, **changes: Any) -> DeploySettings:
    """Settings with which ``target`` writes its files."""
    return plans.training(**(_CHANGES.get(target, {}) | changes))
