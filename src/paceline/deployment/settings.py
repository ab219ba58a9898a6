"""What a user adds to a plan so that it can be launched."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Literal

from paceline.errors import InvalidInputError, MissingFactError
from paceline.units import parse_bytes, parse_count, parse_duration_s
from paceline.values import dataclass

Purpose = Literal["train", "measure", "serve"]


#: Facts of the plan that ``--set`` replaces on every target.
COMMON_OPTIONS = ("cpus", "host-memory", "wall-time", "checkpoint-rate", "restart")

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
#: Kubernetes and SageMaker take 63 characters; of these, room for what they and we append.
_MAX_LABEL = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploySettings:
    """Facts that no plan knows. None means: take it from the plan, or name it at the top.

    Attributes:
        command: Training script with its arguments, as words.
        purpose: Train, measure the machine with ``paceline measure``, or serve.
        choice: Which choice of the plan, 0 being the first.
        name: Job name; the model's by default.
        image: Container image to use instead of the published one of the stack.
        data: Where the training data lies: a path, claim, bucket or URL, as the target has it.
        checkpoints: Where checkpoints go, likewise.
        cpus_per_node: Overrides the plan's.
        host_memory_bytes_per_node: Overrides the plan's.
        wall_time_s: Overrides the plan's.
        checkpoint_write_bytes_per_s: Measured rate of writing a checkpoint.
        restart_s: Measured time from a lost machine to work going on.
        variant: ``gke-gpu`` or ``gke-tpu`` on Kubernetes.
        options: Facts of the target, such as ``partition``, ``role``, ``region``.
    """

    command: tuple[str, ...] = ()
    purpose: Purpose = "train"
    choice: int = 0
    name: str | None = None
    image: str | None = None
    data: str | None = None
    checkpoints: str | None = None
    cpus_per_node: int | None = None
    host_memory_bytes_per_node: float | None = None
    wall_time_s: float | None = None
    checkpoint_write_bytes_per_s: float | None = None
    restart_s: float | None = None
    variant: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def need(self, option: str, what: str) -> str:
        """The value of a target's option.

        Raises:
            MissingFactError: It was not given; the hint says where to put it.
        """
        value = self.options.get(option)
        if not value:
            raise MissingFactError(
                f"{what} is not in the plan", hint=f"give it with `--set {option}=…`"
            )
        return value


def with_common_options(settings: DeploySettings) -> DeploySettings:
    """Options that every target knows, read with their units into the fields they stand for.

    Raises:
        InvalidInputError: A value cannot be read.
    """
    given = settings.options

    def read(option: str, parse: Callable[[str], float]) -> float | None:
        return parse(given[option]) if option in given else None

    cpus = read("cpus", parse_count)
    return replace(
        settings,
        options={name: value for name, value in given.items() if name not in COMMON_OPTIONS},
        cpus_per_node=settings.cpus_per_node if cpus is None else int(cpus),
        host_memory_bytes_per_node=read("host-memory", parse_bytes)
        or settings.host_memory_bytes_per_node,
        wall_time_s=read("wall-time", parse_duration_s) or settings.wall_time_s,
        checkpoint_write_bytes_per_s=read("checkpoint-rate", parse_bytes)
        or settings.checkpoint_write_bytes_per_s,
        restart_s=read("restart", parse_duration_s) or settings.restart_s,
    )


def label_of(text: str) -> str:
    """``text`` as a name that every target accepts: lower case, digits and dashes.

    Raises:
        InvalidInputError: Nothing of it is left.

    >>> label_of("torchvision:ResNet_50")
    'torchvision-resnet-50'
    """
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_MAX_LABEL].strip("-")
    if not _LABEL.fullmatch(label):
        raise InvalidInputError(
            f"`{text}` leaves no letter or digit for a job name", hint="give one with `--name`"
        )
    return label
