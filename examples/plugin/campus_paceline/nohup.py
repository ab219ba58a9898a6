"""A launch target: a job that goes on when its user logs out."""

from __future__ import annotations

from paceline.deployment import launch, shell
from paceline.deployment.deploying import LaunchTarget, Target
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.job import Job, assumptions_of
from paceline.deployment.settings import DeploySettings


def nohup(job: Job, settings: DeploySettings) -> Deployment:
    """``start.sh`` for one machine, which runs ``job.sh`` in the background."""
    log = settings.options.get("log", "job.log")
    lines = ["#!/bin/sh", "set -eu", *launch.environment_lines(job)]
    lines += launch.script_lines(job, None)
    start = f"nohup sh job.sh > {shell.quote(log)} 2>&1 &"
    return Deployment(
        target="nohup",
        files=(
            DeployFile(path="job.sh", text="\n".join(lines) + "\n"),
            DeployFile(path="start.sh", text=f"#!/bin/sh\n{start}\n"),
        ),
        command="sh start.sh",
        runs_beside_code=True,
        needs=tuple(launch.driver_need(job)),
        assumptions=assumptions_of(job, settings),
    )


TARGET = LaunchTarget(
    target=Target(
        name="nohup",
        purposes=("train", "measure"),
        summary="shell script that goes on after log-out",
        options=("log",),
    ),
    write=nohup,
)
