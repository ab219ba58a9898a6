"""A sweep as cells: one per combination, each with a key that is the same in every run."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from paceline.errors import InvalidInputError
from paceline.execution.stacks import Stack
from paceline.values import dataclass

Mode = Literal["forward", "forward-backward", "step"]
Optimizer = Literal["sgd", "adam", "adamw"]

#: What a user may write instead of a compiler's name: how people run that framework.
USUAL_COMPILER = "usual"
#: The same of a mode: a training step where a stack trains.
USUAL_MODE = "usual"
#: Length of texts where a user names none.
DEFAULT_SEQ = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One measurement to make.

    Attributes:
        workload: Model, as a user types it.
        mode: What one step is.
        batch_per_device: Items per device and step.
        num_devices: Devices, or processes on the CPU.
        precision: Name in ``dtypes.PRECISIONS``.
        compiler: ``eager``, ``compiled``, ``xla``, ``tensorrt``.
        stack: Name of the stack.
        seq: Sequence length; only texts have one.
        image_size: Side of the square input; None for the model's own.
        optimizer: Of the whole step.
        channels_last: Memory layout of images in PyTorch.
    """

    workload: str
    mode: Mode
    batch_per_device: int
    num_devices: int
    precision: str
    compiler: str
    stack: str
    seq: int = DEFAULT_SEQ
    image_size: int | None = None
    optimizer: Optimizer = "sgd"
    channels_last: bool = False

    @property
    def key(self) -> str:
        """Canonical and readable, equal for equal measurements."""
        parts = [self.workload, self.mode, self.precision, self.compiler, self.stack]
        if self.mode == "step":
            parts.append(self.optimizer)
        parts.extend(f"{name}{value}" for name, value in self._variations() if value)
        return "/".join((*parts, f"b{self.batch_per_device}x{self.num_devices}"))

    def _variations(self) -> tuple[tuple[str, int], ...]:
        seq = 0 if self.seq == DEFAULT_SEQ else self.seq
        return ("s", seq), ("i", self.image_size or 0), ("nhwc", int(self.channels_last))

    @property
    def series(self) -> str:
        """Key of the cells that differ from this one in the batch alone."""
        return replace(self, batch_per_device=0).key


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a user asked to measure: the product of these lists.

    Attributes:
        workloads: Models.
        batches: Items per device and step, any order; empty to search for the largest.
        precisions: Names in ``dtypes.PRECISIONS``.
        compilers: Names, or ``usual``.
        modes: What one step is.
        seq: Sequence length of texts.
        image_size: Side of the square input; None for each model's own.
        optimizer: Of the whole step.
        channels_last: Memory layout of images in PyTorch.
    """

    workloads: tuple[str, ...]
    batches: tuple[int, ...]
    devices: tuple[int, ...] = (1,)
    precisions: tuple[str, ...] = ("fp32",)
    compilers: tuple[str, ...] = (USUAL_COMPILER,)
    modes: tuple[Mode, ...] = ("step",)
    seq: int = DEFAULT_SEQ
    image_size: int | None = None
    optimizer: Optimizer = "sgd"
    channels_last: bool = False


def sweep_cells(sweep: Sweep, stacks: Sequence[Stack]) -> tuple[Cell, ...]:
    """Cells of a sweep in the order they are measured: batches rise innermost.

    What a stack's engine cannot do is left out where another stack of the sweep can do it, and
    kept (to be reported as skipped) where none can.

    Raises:
        InvalidInputError: Nothing to measure, or a number that is not positive.
    """
    _check(sweep)
    batches = sorted(set(sweep.batches)) or [1]
    product = itertools.product(
        dict.fromkeys(sweep.workloads), stacks, dict.fromkeys(sweep.compilers),
        dict.fromkeys(sweep.modes), dict.fromkeys(sweep.precisions),
        sorted(set(sweep.devices)), batches,
    )  # fmt: skip
    cells = (
        Cell(
            workload=workload,
            mode=mode,
            batch_per_device=batch,
            num_devices=num_devices,
            precision=precision,
            compiler=_compiler(compiler, stack),
            stack=stack.spec.name,
            seq=sweep.seq,
            image_size=sweep.image_size,
            optimizer=sweep.optimizer,
            channels_last=sweep.channels_last,
        )
        for workload, stack, compiler, mode, precision, num_devices, batch in product
        if _can(stack, compiler, mode) or not _any_can(stacks, compiler, mode)
    )
    return tuple(dict.fromkeys(cells))


def sweep_key(cells: Sequence[Cell], machine: str) -> str:
    """Key of a set of cells on one kind of device of a machine, whatever their order."""
    text = "\n".join(sorted(cell.key for cell in cells))
    return hashlib.sha256(f"{machine}\n{text}".encode()).hexdigest()[:12]


def _check(sweep: Sweep) -> None:
    if not sweep.workloads:
        raise InvalidInputError("no model to measure", hint="name one, such as resnet18")
    for what, values in (("batch", sweep.batches), ("number of devices", sweep.devices)):
        wrong = [value for value in values if value < 1]
        if wrong:
            raise InvalidInputError(
                f"a {what} of {wrong[0]}", hint="write whole numbers above zero"
            )


def _compiler(name: str, stack: Stack) -> str:
    return stack.spec.compilers[0] if name == USUAL_COMPILER else name


def _can(stack: Stack, compiler: str, mode: str) -> bool:
    return mode in stack.spec.modes and compiler in (USUAL_COMPILER, *stack.spec.compilers)


def _any_can(stacks: Sequence[Stack], compiler: str, mode: str) -> bool:
    return any(_can(stack, compiler, mode) for stack in stacks)
