"""A shell script that starts the job with torchrun, on one machine or on each of several."""

from __future__ import annotations

from paceline.deployment import launch, shell
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.job import Job, assumptions_of
from paceline.deployment.settings import DeploySettings


def torchrun(job: Job, settings: DeploySettings) -> Deployment:
    """``launch.sh``: the same file on every machine."""
    needs = [
        *launch.place_needs(job),
        *launch.code_need(job, has_folder=True),
        *launch.driver_need(job),
        *launch.fabric_need(job),
    ]
    lines = ["#!/bin/sh"]
    if job.num_nodes > 1:
        needs += launch.meeting_needs(job)
    lines += [f"# {line}" for line in launch.header(job, needs)]
    lines += ["set -eu", *launch.code_lines(job), *launch.place_lines(job)]
    if job.num_nodes > 1:
        lines.append(shell.require(launch.HEAD_VARIABLE, "address of machine 0"))
        lines.append(shell.require(launch.RANK_VARIABLE, "number of this machine, from 0"))
    lines += launch.environment_lines(job)
    lines += launch.script_lines(job, launch.BY_VARIABLES)
    return Deployment(
        target="torchrun",
        files=(DeployFile(path="launch.sh", text="\n".join(lines) + "\n"),),
        command="sh launch.sh",
        runs_beside_code=True,
        needs=tuple(needs),
        assumptions=assumptions_of(job, settings),
    )
