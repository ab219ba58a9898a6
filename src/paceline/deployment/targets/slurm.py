"""An sbatch file that survives preemption and the time limit."""

from __future__ import annotations

import re

from paceline.deployment import launch, shell
from paceline.deployment.facts import filled, template
from paceline.deployment.files import DeployFile, Deployment
from paceline.deployment.job import Job, assumptions_of
from paceline.deployment.settings import DeploySettings
from paceline.deployment.targets.apptainer import build_command, definition, inside
from paceline.errors import InvalidInputError
from paceline.units import DAY_S, HOUR_S

_MIB_BYTES = 2**20
_DIRECTIVES = ("partition", "account", "qos", "constraint", "reservation", "gres")
_OWN = "own"
_PLAIN = re.compile(r"[\w.:,|&()\[\]+=*-]+")
_NODE_RANK = "SLURM_NODEID"


def slurm(job: Job, settings: DeploySettings) -> Deployment:
    """``job.sbatch``, and an Apptainer definition beside it where a container is wanted."""
    needs = [
        *launch.place_needs(job),
        *launch.code_need(job, has_folder=True),
        *launch.driver_need(job),
        *launch.fabric_need(job),
    ]
    needs += _type_need(job, settings)
    has_container = _has_container(settings)
    if has_container:
        needs.append(f"the image, built with `{build_command(job)}`")
    text = template("job.sbatch.txt")
    parts = {
        "DIRECTIVES": "\n".join(_directives(job, settings)),
        "HEADER": "\n".join(f"# {line}" for line in launch.header(job, needs)),
        "STARTS": str(job.saving.num_starts),
        "SETUP": "\n".join(_setup_lines(job, settings)),
        "STEP": shell.join(_step_words(job, settings)),
    }
    return Deployment(
        target="slurm",
        files=(
            DeployFile(path="job.sbatch", text=filled(text, parts)),
            *((definition(job, needs),) if has_container else ()),
        ),
        command="sbatch job.sbatch",
        runs_beside_code=True,
        needs=tuple(needs),
        assumptions=assumptions_of(job, settings),
    )


def _has_container(settings: DeploySettings) -> bool:
    engine = settings.options.get("container")
    if engine not in (None, "apptainer"):
        raise InvalidInputError(
            f"Slurm jobs are not run in `{engine}` here", hint="write --set container=apptainer"
        )
    return engine is not None


def _directives(job: Job, settings: DeploySettings) -> list[str]:
    memory_mib = job.memory_bytes // _MIB_BYTES
    values = {
        "job-name": job.name,
        "nodes": str(job.num_nodes),
        "ntasks-per-node": "1",
        "cpus-per-task": str(job.cpus_per_node),
        "mem": f"{memory_mib}M",
        "gpus-per-node": _gpus(job, settings),
        "time": _time_limit(job),
        "signal": f"B:TERM@{job.grace_s}",
        "open-mode": "append",
        "output": "%x-%j.out",
    }
    values |= {name: _plain_option(settings, name) for name in _DIRECTIVES}
    values["partition"] = values["partition"] or _listed(job)[0] or None
    if values["gres"] is not None:
        values["gpus-per-node"] = None
    lines = [f"#SBATCH --{name}={value}" for name, value in values.items() if value is not None]
    return [*lines, "#SBATCH --requeue"]


def _listed(job: Job) -> tuple[str, str]:
    """Partition and type of accelerator of own nodes, as the list of nodes has them; else empty."""
    place = job.choice.place
    partition, is_listed, kind = place.instance_type.partition("/")
    if place.cloud != _OWN or not is_listed or not _PLAIN.fullmatch(partition + kind):
        return "", ""
    return partition, kind


def _gpus(job: Job, settings: DeploySettings) -> str | None:
    """How many accelerators of which type; the names of types are the cluster's own."""
    if not job.devices_per_node:
        return None
    kind = _plain_option(settings, "gpu-type") or _listed(job)[1]
    return f"{kind}:{job.devices_per_node}" if kind else str(job.devices_per_node)


def _type_need(job: Job, settings: DeploySettings) -> list[str]:
    """A count alone takes any accelerator of the partition."""
    named = {"gpu-type", "gres", "constraint"} & set(settings.options)
    if not job.devices_per_node or named or _listed(job)[1]:
        return []
    device = job.choice.place.device
    return [f"{device} as the partition's only GPUs, or `--set gpu-type=…` (`sinfo -o %G`)"]


def _plain_option(settings: DeploySettings, name: str) -> str | None:
    """A directive's value; sbatch reads no quotes there, so nothing that needs them may pass."""
    value = settings.options.get(name)
    if value is not None and not _PLAIN.fullmatch(value):
        raise InvalidInputError(
            f"`{name}={value}` has characters that an #SBATCH line cannot hold",
            hint="letters, digits and .:,|&()[]+=*-_ are fine",
        )
    return value


def _time_limit(job: Job) -> str | None:
    """``days-hours:minutes:seconds``; None leaves the partition's own limit."""
    seconds = job.saving.wall_time_s
    if seconds is None:
        return None
    days, rest = divmod(int(seconds), int(DAY_S))
    hours, rest = divmod(rest, int(HOUR_S))
    minutes, seconds = divmod(rest, 60)
    return f"{days}-{hours:02}:{minutes:02}:{int(seconds):02}"


def _setup_lines(job: Job, settings: DeploySettings) -> list[str]:
    lines = launch.code_lines(job) + launch.place_lines(job) + launch.environment_lines(job)
    venv = settings.options.get("venv")
    if venv:
        lines.append(". " + shell.quote(f"{venv}/bin/activate"))
    if job.num_nodes > 1:
        lines.append('head_node=$(scontrol show hostnames "${SLURM_JOB_NODELIST}" | head -n 1)')
        lines.append("export head_node")
    return lines


def _step_words(job: Job, settings: DeploySettings) -> list[shell.Word]:
    """One task per node, each a shell that becomes the launcher."""
    meeting = launch.Meeting(rank_variable=_NODE_RANK, host=shell.Variable("head_node"))
    script = "\n".join(launch.script_lines(job, meeting))
    cpus = f"--cpus-per-task={job.cpus_per_node}"
    container = inside(job) if _has_container(settings) else []
    return ["srun", "--kill-on-bad-exit=1", cpus, *container, "sh", "-c", script]
