"""The lines that start a job's ranks, the same on every target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from paceline.deployment import shell
from paceline.deployment.facts import sizing, template
from paceline.deployment.job import Job, fabric_of
from paceline.deployment.program import Program
from paceline.errors import InvalidInputError
from paceline.release import __version__
from paceline.values import dataclass

#: Where a job finds its data and leaves its checkpoints, on every target.
DATA_VARIABLE = "DATA_DIR"
CHECKPOINT_VARIABLE = "CHECKPOINT_DIR"

#: Folder of a sweep's records, where the job runs.
RECORDS = "paceline-records"
#: Where records go instead, for whoever starts the file and fetches them.
RECORDS_VARIABLE = "PACELINE_RECORDS"


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

    Raises:
        InvalidInputError: Several machines that nothing here connects.
    """
    _check_connected(job)
    if job.num_nodes == 1 or meeting is None or not uses_torchrun(job):
        return ["exec " + shell.join(single_node_words(job))]
    rank = shell.quote(shell.Variable(meeting.rank_variable))
    program = trained(job)
    if program.launcher in _STARTERS:
        lines = _hosts_file(job) if program.launcher == "deepspeed" else []
        return [*lines, "exec " + shell.join(_STARTERS[program.launcher](job, program, meeting))]
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
        return [*job.command, "--store", shell.Variable(RECORDS_VARIABLE, default=RECORDS)]
    program = trained(job)
    if not uses_torchrun(job):
        return list(program.python_words)
    if program.launcher in _STARTERS:
        return _STARTERS[program.launcher](job, program, None)
    words = (*program.options, *program.ranked_words)
    return [*program.ranks_words, "--standalone", *_counts(job), *words]


def _multi_node_words(job: Job, host: shell.Word) -> list[shell.Word]:
    """The launcher on each of several machines; ``is_host`` says which one keeps the store.

    The store's keeper is named because torchrun otherwise compares host names, which fails
    behind a service name.
    """
    program = trained(job)
    return [
        *program.ranks_words,
        f"--nnodes={job.num_nodes}",
        *_counts(job),
        "--rdzv-backend=c10d",
        f"--rdzv-id={job.name}",
        _endpoint(host, job.port),
        shell.Variable("is_host", prefix="--rdzv-conf=is_host="),
        shell.Variable("local_address", prefix="--local-addr="),
        *program.options,
        *program.ranked_words,
    ]


def trained(job: Job) -> Program:
    """The command that trains, with a launcher that its framework has.

    Raises:
        InvalidInputError: Launchers of PyTorch are named, and another framework runs.
    """
    if job.program is None:
        raise InvalidInputError("nothing is trained", hint="deploy with `--purpose train`")
    if job.program.launcher and not uses_torchrun(job):
        raise starts_ranks(job.program, job.stack.framework)
    return job.program


def starts_ranks(program: Program, who: str) -> InvalidInputError:
    """The refusal of a launcher where somebody else starts the ranks."""
    return InvalidInputError(
        f"`{program.launcher}` would start ranks, which {who} does by itself here",
        hint="give what one rank runs, such as --command 'python train.py --epochs 90'",
    )


def _accelerate_words(job: Job, program: Program, meeting: Meeting | None) -> list[shell.Word]:
    """``accelerate launch`` with what the plan decides: ranks, precision, compiler, meeting."""
    precision = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}.get(job.choice.precision, "no")
    backend = "inductor" if job.choice.compiler == "compiled" else "no"
    words: list[shell.Word] = [*program.prefix, "accelerate", "launch"]
    if job.devices_per_node == 0:
        words.append("--cpu")
    elif job.num_ranks > 1:
        words.append("--multi_gpu")
    words += [f"--num_machines={job.num_nodes}", f"--num_processes={job.num_ranks}"]
    if meeting is not None and job.num_nodes > 1:
        words += [
            shell.Variable(meeting.rank_variable, prefix="--machine_rank="),
            _host_option("--main_process_ip=", meeting.host),
            f"--main_process_port={job.port}",
        ]
    given = {word.partition("=")[0].replace("_", "-") for word in program.options}
    for option, value in (("mixed", precision), ("dynamo", backend)):
        name = {"mixed": "--mixed_precision", "dynamo": "--dynamo_backend"}[option]
        if name.replace("_", "-") not in given:
            words.append(f"{name}={value}")
    return [*words, *program.options, *program.words]


def _deepspeed_words(job: Job, program: Program, meeting: Meeting | None) -> list[shell.Word]:
    """``deepspeed`` on each machine by itself: several are listed in a file, and no one logs in."""
    words: list[shell.Word] = [*program.prefix, "deepspeed"]
    if meeting is None or job.num_nodes == 1:
        words += [f"--num_gpus={job.ranks_per_node}", f"--master_port={job.port}"]
    else:
        words += [
            shell.Variable("hosts", prefix="--hostfile="),
            "--no_ssh",
            shell.Variable(meeting.rank_variable, prefix="--node_rank="),
            _host_option("--master_addr=", meeting.host),
            f"--master_port={job.port}",
        ]
    return [*words, *program.options, *program.words]


def _hosts_file(job: Job) -> list[str]:
    """Lines that list the machines for DeepSpeed, which reads their number and ranks alone."""
    if job.num_nodes == 1:
        return []
    names = [f"machine-{number}" for number in range(job.num_nodes)]
    listed = shell.join(["printf", f"%s slots={job.ranks_per_node}\\n", *names])
    return ["hosts=$(mktemp)", f'{listed} > "${{hosts}}"']


def _host_option(option: str, host: shell.Word) -> shell.Word:
    if isinstance(host, str):
        return f"{option}{host}"
    return shell.Variable(host.name, prefix=option)


#: Launchers with words of their own; the others are torchrun's.
_STARTERS: Mapping[str, Callable[[Job, Program, Meeting | None], list[shell.Word]]] = {
    "accelerate": _accelerate_words,
    "deepspeed": _deepspeed_words,
}


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


def code_need(job: Job, *, has_folder: bool = False) -> list[str]:
    """Where targets that take the user's own files look for the script."""
    script = job.program.script if job.program else None
    if job.purpose != "train" or (script or "").startswith("/"):
        return []
    where = "in the folder that the job is started in" if has_folder else "in this folder"
    beside = "" if has_folder else " (`--folder .` writes these files beside it)"
    return [f"{script or 'your code'} {where}{beside}"]


def code_lines(job: Job) -> list[str]:
    """A line that stops where the script is not in the folder that the job runs in."""
    script = job.program.script if job.program else None
    if script is None or script.startswith("/"):
        return []
    word = shell.quote(script)
    there = shell.join(["echo", f"{script} is not in this folder: start it where the code is"])
    return [f"[ -f {word} ] || {{ {there} >&2; exit 2; }}"]


def fabric_need(job: Job) -> list[str]:
    """The network between machines that the plan counts on, where it must be asked for."""
    fabric = fabric_of(job)
    return (
        [f"{fabric['title']} between the machines, as planned: {fabric['needs']}"] if fabric else []
    )


def header(job: Job, needs: Iterable[str]) -> list[str]:
    """Comment lines at the top of every file: what it is, what must be in place.

    Each is one line whatever the plan says, so that nothing in it can leave the comment.
    """
    stack = job.stack
    software = f"{stack.framework} {stack.framework_version}, {stack.platform}"
    lines = [
        f"{job.title}: {job.purpose}, {software} {stack.platform_version or ''}",
        f"written by paceline from a plan: {job.choice.strategy}, {_load(job)}",
    ]
    lines += [f"needs {need}" for need in needs] or ["needs nothing else"]
    return [" ".join(line.split()) for line in lines]


def _load(job: Job) -> str:
    """What is worked on at once: a batch, or the requests that an engine takes."""
    service = job.choice.service
    if service is None or service.max_requests is None or job.purpose != "serve":
        return f"batch {job.choice.global_batch}"
    return f"up to {service.max_requests:,} requests in flight on each replica"


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
