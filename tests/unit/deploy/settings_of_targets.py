"""For each target, a plan that suits it and the settings that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.deploy import DeploySettings
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
}


def settings_for(target: str, **changes: Any) -> DeploySettings:
    """Settings with which ``target`` writes its files."""
    return plans.training(**changes)
