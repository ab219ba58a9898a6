"""An Apptainer definition with the stack, and the command that runs words inside it."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.deployment import launch, shell
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.images import install_lines
from paceline.deployment.job import Job, assumptions_of, container_words, require_one_node
from paceline.deployment.settings import DeploySettings


def apptainer(job: Job, settings: DeploySettings) -> Deployment:
    """``run.sh`` on one machine, and the definition of the image that it runs in."""
    require_one_node(job)
    needs = (*launch.place_needs(job), *launch.code_need(job), *launch.driver_need(job))
    comments = [f"# {line}" for line in launch.header(job, needs)]
    words = [*inside(job), *launch.single_node_words(job)]
    lines = ["#!/bin/sh", *comments, "set -eu", *launch.place_lines(job)]
    lines += [*launch.environment_lines(job), "exec " + shell.join(words)]
    return Deployment(
        target="apptainer",
        files=(DeployFile(path="run.sh", text="\n".join(lines) + "\n"), definition(job, needs)),
        command=f"{build_command(job)} && sh run.sh",
        needs=needs,
        assumptions=assumptions_of(job, settings),
    )


def definition(job: Job, needs: Sequence[str]) -> DeployFile:
    """The file that `build_command` reads."""
    installs = install_lines(job.stack, job.choice.compiler, launch.tools(job), prefix="    ")
    comments = [f"# {line}" for line in launch.header(job, needs)]
    lines = [*comments, "Bootstrap: docker", f"From: {job.image}", "", "%post", *installs]
    lines += ["", "%runscript", '    exec "$@"']
    return DeployFile(path="apptainer.def", text="\n".join(lines) + "\n")


def build_command(job: Job) -> str:
    """What makes the image beside the definition."""
    return f"apptainer build {_image(job)} apptainer.def"


def inside(job: Job) -> list[shell.Word]:
    """Words before a command that run it in the image, with its folders bound in."""
    binds: list[shell.Word] = []
    if job.purpose != "measure":
        for variable in (launch.DATA_VARIABLE, launch.CHECKPOINT_VARIABLE):
            binds += ["--bind", shell.Variable(variable)]
    return ["apptainer", "run", *container_words(job, "apptainer"), *binds, _image(job)]


def _image(job: Job) -> str:
    return f"{job.name}.sif"
