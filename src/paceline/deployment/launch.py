"""The lines that start a job's ranks, the same on every target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.deployment import shell
from paceline.deployment.facts import sizing, template
from paceline.deployment.job import Job
from paceline.errors import InvalidInputError
from paceline.release import __version__

#: Where a job finds its data and leaves its checkpoints, on every target.
DATA_VARIABLE = "DATA_DIR"
CHECKPOINT_VARIABLE = "CHECKPOINT_DIR"

#: Folder of a sweep's records, where the job runs.
RECORDS = "paceline-records"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """How the nodes of a job find each other.

    Attributes:
        rank_variable: Shell variable with the number of this node.
        host: Name or address of node 0, or the variable that holds it.
    """

    rank_variable: str
    host: shell.Word


#: Where nothing else numbers the machines, the one who starts them says these.
RANK_VARIABLE = "NODE_RANK"
HEAD_VARIABLE = "HEAD_ADDRESS"
BY_VARIABLES = Meeting(rank_variable=RANK_VARIABLE, host=shell.Variable(HEAD_VARIABLE))


def meeting_needs(job: Job) -> list[str]:
    """What the one who starts several machines must say on each."""
    return [
        f"{HEAD_VARIABLE}: address of machine 0, reachable on port {job.port}",
        f"{RANK_VARIABLE}: 0 to {job.num_nodes - 1}, the number of this machine",
    ]


def script_lines(job: Job, meeting: Meeting | None) -> list[str]:
    """Shell lines that become the launcher; signals reach it, since the shell is replaced.

    Args:
        job: The job.
        meeting: Needed with more than one node.

    Raises:
        InvalidInputError: Several machines that nothing here connects.
    """
    _check_connected(job)
    if job.num_nodes == 1 or meeting is None or not uses_torchrun(job):
        return ["exec " + shell.join(single_node_words(job))]
    rank = shell.quote(shell.Variable(meeting.rank_variable))
    is_host = f"if [ {rank} = 0 ]; then is_host=true; else is_host=false; fi"
    launcher = "exec " + shell.join(_multi_node_words(job, meeting.host))
    return [is_host, _local_address(job, meeting.host), launcher]


def _check_connected(job: Job) -> None:
    """Machines of a TPU slice know each other; elsewhere torchrun makes the ranks meet."""
    is_alone = job.num_nodes == 1 or job.purpose != "train"
    if not (is_alone or uses_torchrun(job) or job.stack.platform == "tpu"):
        raise InvalidInputError(
            f"several machines of {job.stack.framework} are not connected by these files",
            hint="deploy a choice with one machine (`--choice`), or plan with torch",
        )


def uses_torchrun(job: Job) -> bool:
    """Whether torchrun starts the ranks; elsewhere one process drives the machine."""
    return job.purpose == "train" and job.stack.framework == "torch" and job.stack.platform != "tpu"


def single_node_words(job: Job) -> list[shell.Word]:
    """The launcher on one machine."""
    if job.purpose == "measure":
        return [*job.command, "--store", RECORDS]
    if not uses_torchrun(job):
        return ["python", *job.command]
    return ["torchrun", "--standalone", *_counts(job), *job.command]


def _multi_node_words(job: Job, host: shell.Word) -> list[shell.Word]:
    """The launcher on each of several machines; ``is_host`` says which one keeps the store.

    The store's keeper is named because torchrun otherwise compares host names, which fails
    behind a service name.
    """
    return [
        "torchrun",
        f"--nnodes={job.num_nodes}",
        *_counts(job),
        "--rdzv-backend=c10d",
        f"--rdzv-id={job.name}",
        _endpoint(host, job.port),
        shell.Variable("is_host", prefix="--rdzv-conf=is_host="),
        shell.Variable("local_address", prefix="--local-addr="),
        *job.command,
    ]


def environment_lines(job: Job) -> list[str]:
    """Exports of the planned figures."""
    return [shell.export(name, value) for name, value in job.environment]


def place_lines(job: Job) -> list[str]:
    """Lines that set the data and checkpoint folders, or stop where they are not named."""
    if job.purpose == "measure":
        return []
    return [
        _place(DATA_VARIABLE, job.data, "folder with the training data"),
        _place(CHECKPOINT_VARIABLE, job.checkpoints, "folder for checkpoints, kept between runs"),
    ]


def place_needs(job: Job) -> list[str]:
    """What the user must still name, as sentences for the top of the file."""
    if job.purpose == "measure":
        return []
    needs = []
    if job.data is None:
        needs.append(f"{DATA_VARIABLE}: folder with the training data, or deploy with --data")
    if job.checkpoints is None:
        needs.append(f"{CHECKPOINT_VARIABLE}: folder for checkpoints, or deploy with --checkpoints")
    return needs


def tools(job: Job) -> tuple[str, ...]:
    """Packages that the job needs beside its stack and the user's own."""
    return (tool(),) if job.purpose == "measure" else ()


def tool() -> str:
    """What pip installs where a job measures: the release that writes the files."""
    return f"paceline=={__version__}"


def code_need(job: Job) -> list[str]:
    """Where targets that take the user's own files look for the script."""
    if job.purpose != "train" or job.command[0].startswith("/"):
        return []
    script = "your code" if job.command[0].startswith("-") else job.command[0]
    return [f"{script} in this folder (`--folder .` writes these files beside it)"]


def header(job: Job, needs: Iterable[str]) -> list[str]:
    """Comment lines at the top of every file: what it is, what must be in place.

    Each is one line whatever the plan says, so that nothing in it can leave the comment.
    """
    stack = job.stack
    software = f"{stack.framework} {stack.framework_version}, {stack.platform}"
    lines = [
        f"{job.title}: {job.purpose}, {software} {stack.platform_version or ''}",
        f"written by paceline from a plan: {job.choice.strategy}, batch {job.choice.global_batch}",
    ]
    lines += [f"needs {need}" for need in needs] or ["needs nothing else"]
    return [" ".join(line.split()) for line in lines]


def driver_need(job: Job) -> list[str]:
    """The driver floor, where the platform has one."""
    floor = job.stack.min_driver
    return [] if floor is None else [f"a machine with NVIDIA driver {floor} or newer"]


def _local_address(job: Job, host: shell.Word) -> str:
    """A line that waits for node 0's name and takes the address that this node reaches it from.

    Without it the ranks are told node 0's own host name, which other nodes often cannot resolve.
    """
    probe = shell.join(["python", "-c", template("local_address.py.txt"), host, str(job.port)])
    return f"until local_address=$({probe}); do sleep 2; done"


def _counts(job: Job) -> list[str]:
    restarts = sizing()["rendezvous"]["max_restarts"]
    return [f"--nproc-per-node={job.ranks_per_node}", f"--max-restarts={restarts}"]


def _endpoint(host: shell.Word, port: int) -> shell.Word:
    if isinstance(host, str):
        return f"--rdzv-endpoint={host}:{port}"
    return shell.Variable(host.name, prefix="--rdzv-endpoint=", suffix=f":{port}")


def _place(variable: str, value: str | None, what: str) -> str:
    return shell.require(variable, what) if value is None else shell.export(variable, value)
