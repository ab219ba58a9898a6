"""A choice of a plan as a job: everything that a launch file states, in one value."""

from __future__ import annotations

import math
from typing import Any

from paceline.deployment.facts import platforms, sizing
from paceline.deployment.images import checked_image, image_of
from paceline.deployment.program import Program, read_program
from paceline.deployment.settings import DeploySettings, Purpose, label_of
from paceline.dtypes import ELEMENT_BYTES, DType
from paceline.errors import InvalidInputError, MissingFactError
from paceline.model.rewrite.optimizer import find_optimizer
from paceline.parallelism.collectives.failures import usual_mtbf_s
from paceline.planfile import PlanFile, PlannedChoice, PlannedStack, PlannedWorkload
from paceline.planning.places.interruption import (
    UNPUBLISHED_FRAC_PER_MONTH,
    Checkpointing,
    best_interval_s,
    interrupted_run,
    interruptions_per_s,
)
from paceline.units import format_bytes, format_duration, format_percent
from paceline.values import dataclass

_MINUTE_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """When a job saves its state, and how long it may take in all.

    Attributes:
        checkpoint_bytes: FP32 weights with the optimizer's state.
        interval_s: Work between two saves (Daly's optimum); None where nothing is saved.
        wall_time_s: Upper end of the planned time with saves, expected restarts and the start,
            in whole minutes; None where the job has no end.
        num_starts: How often it may begin before somebody should look at it.
    """

    checkpoint_bytes: float
    save_s: float
    interval_s: float | None
    wall_time_s: float | None
    num_starts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every launcher needs to know.

    Attributes:
        name: Label that every target accepts.
        title: Model and device, as printed.
        purpose: Train, measure or serve.
        command: Script or program with its arguments, as words.
        program: The command that trains, taken apart; None where nothing is trained.
        stack: Software.
        published_image: Container image to start from; None where none is on record.
        compiler_image: Likewise with a C compiler inside, where the plan needs one to run.
        choice: The plan's choice.
        num_nodes: Machines.
        devices_per_node: Accelerators used in each; 0 on a CPU.
        ranks_per_node: Processes that torchrun starts in each; 1 where the framework drives all.
        cpus_per_node: CPUs to ask for, the system's share taken off.
        memory_bytes: Main memory to ask for in each, likewise.
        shm_bytes: Size of ``/dev/shm``.
        port: Of the rendezvous.
        grace_s: Notice before a machine is taken back.
        saving: Checkpoints and wall time.
        environment: Variables of every rank, in order.
        data: Location of the data; None if it is to be named at the top.
        checkpoints: Location of the checkpoints, likewise.
        workload: What the plan is of.
    """

    name: str
    title: str
    purpose: Purpose
    command: tuple[str, ...]
    program: Program | None
    stack: PlannedStack
    published_image: str | None
    compiler_image: str | None
    choice: PlannedChoice
    num_nodes: int
    devices_per_node: int
    ranks_per_node: int
    cpus_per_node: int
    memory_bytes: int
    shm_bytes: int
    port: int
    grace_s: int
    saving: Saving
    environment: tuple[tuple[str, str], ...]
    data: str | None
    checkpoints: str | None
    workload: PlannedWorkload

    @property
    def num_ranks(self) -> int:
        """Ranks of all nodes."""
        return self.num_nodes * self.ranks_per_node

    @property
    def ready_image(self) -> str:
        """Container image that runs the plan as it is, its compiler included."""
        return self.compiler_image or self.image

    @property
    def image(self) -> str:
        """Container image to start from.

        Raises:
            MissingFactError: None is on record for the stack, and none was given.
        """
        if self.published_image is None:
            raise MissingFactError(
                f"no image of {self.stack.framework} for {self.stack.platform} is on record",
                hint="give one with `--image NAME:TAG`",
            )
        return self.published_image


def job_of(plan: PlanFile, settings: DeploySettings) -> Job:
    """The job that ``plan`` describes with what ``settings`` adds.

    Raises:
        InvalidInputError: No such choice in the plan, or one that runs on two kinds of machine.
        MissingFactError: Something that a launch file must state is not known.
    """
    choice = _choice(plan, settings)
    command = _command(plan, choice, settings)
    program = read_program(command) if settings.purpose == "train" else None
    stack = _stack(choice)
    ranks = _ranks_per_node(choice, stack)
    cpus, memory_bytes, shm_bytes = _host(choice, settings)
    saving = _saving(plan, choice, settings)
    return Job(
        name=label_of(settings.name or f"{plan.workload.model}-{settings.purpose}"),
        title=f"{plan.workload.title} on {_count(choice)} {choice.place.device}",
        purpose=settings.purpose,
        command=command,
        program=program,
        stack=stack,
        published_image=checked_image(settings.image or image_of(stack)),
        compiler_image=checked_image(settings.image or _compiler_image(stack, choice)),
        choice=choice,
        num_nodes=1 if settings.purpose == "measure" else choice.place.num_nodes,
        devices_per_node=_devices_per_node(choice, stack),
        ranks_per_node=1 if settings.purpose != "train" else ranks,
        cpus_per_node=cpus,
        memory_bytes=memory_bytes,
        shm_bytes=shm_bytes,
        port=int(sizing()["rendezvous"]["port"]),
        grace_s=int(sizing()["preemption"]["grace_s"]),
        saving=saving,
        environment=_environment(plan, choice, saving, max(1, cpus // ranks), program),
        data=settings.data,
        checkpoints=settings.checkpoints,
        workload=plan.workload,
    )


def assumptions_of(job: Job, settings: DeploySettings) -> tuple[str, ...]:
    """What was taken for granted, one sentence each."""
    saving, lines = job.saving, _of_the_script(job)
    if saving.interval_s is not None:
        lines.append(
            f"a checkpoint of {format_bytes(saving.checkpoint_bytes)} every "
            f"{format_duration(saving.interval_s)}, {format_duration(saving.save_s)} each "
            "(Daly's interval; measured: --set checkpoint-rate=…, restart=…)"
        )
    if saving.wall_time_s is not None and settings.wall_time_s is None:
        why = "the plan's upper bound with saves, expected restarts and the start"
        if job.purpose == "measure":
            why = "a sweep of some twenty cells"
        lines.append(f"at most {format_duration(saving.wall_time_s)}: {why} (--set wall-time=…)")
    host = sizing()["host"]
    lines.append(
        f"{job.cpus_per_node} CPUs and {format_bytes(job.memory_bytes)} of each machine "
        f"({host['allocatable_frac']:.0%}), /dev/shm {format_bytes(job.shm_bytes)}"
    )
    place = job.choice.place
    if place.is_spot and place.interruption_frac_per_month is None:
        most = format_percent(UNPUBLISHED_FRAC_PER_MONTH[-1])
        lines.append(f"up to {most} of machines taken back a month: {place.cloud} publishes none")
    if job.program is not None and job.program.replaced:
        lines.append(f"the plan's ranks and meeting in place of {' '.join(job.program.replaced)}")
    return tuple(lines)


def _of_the_script(job: Job) -> list[str]:
    """A launcher starts ranks; what they split among themselves is the script's own work."""
    if job.program is None:
        return []
    choice, script = job.choice, job.program.script or "the command"
    micro = f" in {choice.microbatches} microbatches" if choice.microbatches > 1 else ""
    return [
        f"{script} itself runs {choice.strategy}{micro}, {choice.precision} and "
        f"{choice.compiler}: no launcher does; PACELINE_STRATEGY and the like say so to it"
    ]


def fabric_of(job: Job) -> dict[str, Any] | None:
    """The network of the cloud's own between machines; None on one, or where it needs no asking.

    Keys are those of ``[fabric.CLOUD]`` in ``platforms.toml``.
    """
    if job.num_nodes == 1 or not job.devices_per_node:
        return None
    found: dict[str, Any] | None = platforms()["fabric"].get(job.choice.place.cloud)
    return found


def _compiler_image(stack: PlannedStack, choice: PlannedChoice) -> str | None:
    if choice.compiler != "compiled":
        return None
    return image_of(stack, family="image_with_compiler")


def _choice(plan: PlanFile, settings: DeploySettings) -> PlannedChoice:
    if not 0 <= settings.choice < len(plan.choices):
        raise InvalidInputError(
            f"the plan has {len(plan.choices)} choices, and no number {settings.choice + 1}",
            hint="choices are counted from 1, as `paceline plan` prints them",
        )
    choice = plan.choices[settings.choice]
    if choice.shares:
        raise InvalidInputError(
            f"`{choice.place.offer}` are machines of two kinds with unequal shares of each batch",
            hint="start your own script on each with its share, or deploy another choice of the "
            "plan with --choice N",
        )
    return choice


def _stack(choice: PlannedChoice) -> PlannedStack:
    if choice.stack is None:
        raise MissingFactError(
            f"the plan names no software for {choice.place.device}",
            hint="ask `paceline stack resolve --gpu …`, or plan with another device",
        )
    return choice.stack


def _count(choice: PlannedChoice) -> str:
    devices = f"{choice.place.devices_per_node:g}×"
    return devices if choice.place.num_nodes == 1 else f"{choice.place.num_nodes}×{devices}"


def _command(plan: PlanFile, choice: PlannedChoice, settings: DeploySettings) -> tuple[str, ...]:
    if settings.purpose == "measure":
        return _measurement(plan, choice)
    if settings.purpose == "train" and plan.workload.task != "train":
        raise InvalidInputError(
            f"the plan is for inference: it trains no {plan.workload.title}",
            hint="add `--purpose measure`, or `--purpose serve --to triton`",
        )
    if settings.purpose == "train" and not settings.command:
        raise MissingFactError(
            f"the plan does not say which script trains {plan.workload.title}",
            hint="give it with `--command 'python train.py --epochs 90'`",
        )
    return settings.command


def _measurement(plan: PlanFile, choice: PlannedChoice) -> tuple[str, ...]:
    """The sweep around the planned point: batches by powers of two up to it, devices likewise."""
    batches = _powers(choice.batch_per_device)
    devices = _powers(max(1, math.floor(choice.place.devices_per_node)))
    return (
        "paceline", "measure", plan.workload.model,
        "--batch", ",".join(map(str, batches)),
        "--devices", ",".join(map(str, devices)),
        "--precision", choice.precision,
        "--compiler", choice.compiler,
        "--mode", "step" if plan.workload.task == "train" else "forward",
    )  # fmt: skip


def _powers(largest: int) -> list[int]:
    powers = [2**n for n in range(largest.bit_length()) if 2**n < largest]
    return [*powers[-3:], largest]


def _devices_per_node(choice: PlannedChoice, stack: PlannedStack) -> int:
    return 0 if stack.platform == "cpu" else max(1, math.ceil(choice.place.devices_per_node))


def _ranks_per_node(choice: PlannedChoice, stack: PlannedStack) -> int:
    """One rank per GPU under torchrun; elsewhere one process drives the machine."""
    if stack.framework != "torch" or stack.platform in {"cpu", "tpu"}:
        return 1
    return _devices_per_node(choice, stack)


def _host(choice: PlannedChoice, settings: DeploySettings) -> tuple[int, int, int]:
    """CPUs, memory and shared memory of one node, in bytes."""
    cpus = settings.cpus_per_node or choice.place.num_vcpus_per_node
    memory_bytes = settings.host_memory_bytes_per_node or choice.place.host_memory_bytes_per_node
    if cpus is None:
        raise MissingFactError(
            f"the CPUs of {choice.place.offer} are not known", hint="give them with `--set cpus=32`"
        )
    if memory_bytes is None:
        raise MissingFactError(
            f"the main memory of {choice.place.offer} is not known",
            hint="give it with `--set host-memory=256GiB`",
        )
    host = sizing()["host"]
    share = float(host["allocatable_frac"])
    shm_bytes = int(memory_bytes * float(host["shm_frac"]))
    return max(1, math.floor(cpus * share)), int(memory_bytes * share), shm_bytes


def _saving(plan: PlanFile, choice: PlannedChoice, settings: DeploySettings) -> Saving:
    facts = sizing()["checkpoint"]
    size_bytes = plan.workload.num_parameters * _bytes_per_parameter(plan.workload.optimizer)
    rate = settings.checkpoint_write_bytes_per_s or float(facts["write_bytes_per_s"])
    save_s = size_bytes / rate
    restart_s = settings.restart_s or float(facts["restart_s"])
    failures_per_s = _failures_per_s(choice)
    interval_s = best_interval_s(save_s, failures_per_s) if settings.purpose == "train" else None
    wall_time_s = _wall_time_s(choice, settings, save_s, restart_s, failures_per_s)
    if interval_s is not None and wall_time_s is not None:
        interval_s = min(interval_s, _longest_interval_s(wall_time_s, save_s))
    return Saving(
        checkpoint_bytes=size_bytes,
        save_s=save_s,
        interval_s=interval_s,
        wall_time_s=wall_time_s,
        num_starts=_num_starts(choice, settings, wall_time_s),
    )


def _longest_interval_s(wall_time_s: float, save_s: float) -> float:
    """An interval after which a save still ends before the job is stopped, or half its time."""
    left_s = wall_time_s - float(sizing()["preemption"]["grace_s"]) - 2 * save_s
    return max(left_s, wall_time_s / 2)


def _num_starts(choice: PlannedChoice, settings: DeploySettings, wall_time_s: float | None) -> int:
    """How often a job may begin: as often as its work needs, and some more for lost machines."""
    spare = int(sizing()["rendezvous"]["max_restarts"])
    if choice.time_s is None or wall_time_s is None or settings.purpose != "train":
        return 1 + spare
    return math.ceil(choice.time_s.high / wall_time_s) + spare


def _bytes_per_parameter(optimizer: str | None) -> float:
    """FP32 weights, and what the optimizer keeps beside them."""
    weight_bytes = ELEMENT_BYTES[DType.FP32]
    if optimizer is None:
        return weight_bytes
    rule = find_optimizer(optimizer)
    return weight_bytes + rule.states_per_element * ELEMENT_BYTES[rule.state_dtype]


def _failures_per_s(choice: PlannedChoice) -> float:
    """Hardware failures, and on spot machines the upper end of the band of interruptions."""
    rate = choice.num_devices / usual_mtbf_s()
    if choice.place.is_spot:
        band = choice.place.interruption_frac_per_month or UNPUBLISHED_FRAC_PER_MONTH
        rate += interruptions_per_s(band[-1], choice.place.num_nodes)
    return rate


def _wall_time_s(
    choice: PlannedChoice,
    settings: DeploySettings,
    save_s: float,
    restart_s: float,
    failures_per_s: float,
) -> float | None:
    if settings.wall_time_s is not None or settings.purpose == "serve":
        return settings.wall_time_s
    if settings.purpose == "measure":
        return float(sizing()["measurement"]["wall_time_s"])
    if choice.time_s is None:
        raise MissingFactError(
            "the plan has rates and no amount of work, so no wall time",
            hint="plan again with `--samples` and `--epochs`, or give `--set wall-time=12h`",
        )
    checkpointing = Checkpointing(save_s=save_s, restart_s=restart_s)
    run = interrupted_run(choice.time_s.high, checkpointing, failures_per_s)
    return math.ceil((run.paid_s + restart_s) / _MINUTE_S) * _MINUTE_S


def _environment(
    plan: PlanFile,
    choice: PlannedChoice,
    saving: Saving,
    threads: int,
    program: Program | None,
) -> tuple[tuple[str, str], ...]:
    """What a script reads to run exactly what was planned."""
    pairs = [
        ("OMP_NUM_THREADS", str(threads)),
        ("PYTHONUNBUFFERED", "1"),
        ("PACELINE_STRATEGY", choice.strategy),
        ("PACELINE_BATCH_PER_DEVICE", str(choice.batch_per_device // choice.microbatches)),
        ("PACELINE_MICROBATCHES", str(choice.microbatches)),
        ("PACELINE_GLOBAL_BATCH", str(choice.global_batch)),
        ("PACELINE_PRECISION", choice.precision),
        ("PACELINE_COMPILER", choice.compiler),
        ("PACELINE_RECOMPUTE", choice.checkpointing),
    ]
    if "rewrite" in plan.goal:
        pairs.append(("PACELINE_REWRITE", plan.goal["rewrite"]))
    if saving.interval_s is not None:
        pairs.append(("PACELINE_CHECKPOINT_INTERVAL_S", str(max(1, round(saving.interval_s)))))
    own = dict(program.environment) if program else {}
    place = choice.place
    fabric = platforms()["fabric"].get(place.cloud, {}) if place.num_nodes > 1 else {}
    return tuple((dict(pairs) | dict(fabric.get("environment", {})) | own).items())


def require_one_node(job: Job) -> None:
    """Refuse a plan on several machines where the target connects none.

    Raises:
        MissingFactError: There is more than one.
    """
    if job.num_nodes > 1:
        raise MissingFactError(
            f"the plan runs on {job.num_nodes} machines, which this target does not connect",
            hint="deploy to torchrun, slurm, kubernetes, jobset or skypilot",
        )


def disk_bytes(job: Job) -> int:
    """Disk of a rented machine: room for image and data, and for checkpoints that wait there."""
    disk = sizing()["disk"]
    return int(disk["least_bytes"] + disk["num_checkpoints"] * job.saving.checkpoint_bytes)


def container_words(job: Job, program: str) -> list[str]:
    """Options that hand the accelerator to a container, for ``docker`` or ``apptainer``."""
    known = platforms()["container"]
    words = known.get(job.stack.platform, {}).get(program)
    if words is None:
        raise MissingFactError(
            f"how {program} passes a {job.stack.platform} device is not on record",
            hint="deploy to a target of that device's own cloud",
        )
    return list(words)
