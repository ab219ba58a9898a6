"""The public function that trains: `paceline.loop` as a script, started and watched by `run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import paceline
from paceline.app.api import running
from paceline.app.options import check_above_zero
from paceline.errors import InvalidInputError
from paceline.model.reading.worker import find_python
from paceline.planfile import PlanFile
from paceline.values import dataclass
from paceline.watch.verdict import RunSummary

#: What the script trains with.
OPTIMIZERS = ("sgd", "adam", "adamw")
_PLAN_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained, and how long; None where the script's own default holds.

    Attributes:
        model: Of torchvision or timm, or ``package.module:function``; with a window, a kind of
            decoder of transformers, or a function's.
        data: A folder of images or what else `paceline.loop.feed` reads; ``generated``.
        epochs: Passes over the data.
        batch: Samples of one process.
        optimizer: ``sgd``, ``adam`` or ``adamw``.
        rate: Largest learning rate.
        size: Pixels of a side.
        classes: Number of them; those of the data if None.
        window: Tokens of a sample, where the data are token files.
        dtype: Of token files without a header, such as ``uint16``.
        samples: How many are generated.
        seed: Of weights, order and augmentation.
        saves: Folder of the saves.
    """

    model: str
    data: str
    epochs: int | None = None
    batch: int | None = None
    optimizer: str | None = None
    rate: float | None = None
    size: int | None = None
    classes: int | None = None
    window: int | None = None
    dtype: str | None = None
    samples: int | None = None
    seed: int | None = None
    saves: Path | None = None

    def words(self) -> list[str]:
        """The options of the script."""
        names = self.__dataclass_fields__
        given = {name: getattr(self, name) for name in names}
        return [
            word
            for name, value in given.items()
            if value is not None
            for word in (f"--{name}", str(value))
        ]


def train(
    what: PlanFile | Path | str,
    *,
    data: str | None = None,
    epochs: int | None = None,
    batch: int | None = None,
    optimizer: str | None = None,
    rate: float | None = None,
    size: int | None = None,
    classes: int | None = None,
    window: int | None = None,
    dtype: str | None = None,
    samples: int | None = None,
    seed: int | None = None,
    saves: Path | None = None,
    processes: int | None = None,
    restarts: int = 0,
    choice: int = 1,
    python: str | None = None,
    facts: Sequence[Path] = (),
    calibration: Path | None = None,
    runs: Path | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> RunSummary:
    """Train a classifier or a decoder so that a kill costs little; the same call goes on later.

    Args:
        what: A plan, from `plan` or a file, or a model's name or ``package.module:function``.
        data: A folder of images per class, or what else is fed; ``"generated"`` makes images.
        epochs: Passes over the data; the plan's, else 1.
        batch: Samples of one process; the plan's, else 32.
        optimizer: ``"sgd"``, ``"adam"`` or ``"adamw"``; the plan's, else SGD.
        rate: Largest learning rate; 0.1 if None.
        size: Pixels of a side; 224 if None.
        classes: Number of them, of a decoder tokens; those of the data, or the model's, if None.
        window: Tokens of a sample of token files: the model learns each next token.
        dtype: Of token files without a header, such as ``"uint16"``.
        samples: How many are generated; 2048 if None.
        seed: Of weights, order and augmentation; 0 if None.
        saves: Folder of the saves; ``saves/train`` if None.
        processes: On this machine; the plan's, else 1.
        restarts: How often lost processes are started again.
        choice: Which choice of the plan, 1 being the first.
        python: Interpreter that has torch; found if None.
        facts: Files with your own devices.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        runs: Folder of all runs; the user's own if None.
        on_notice: Called with each line that the watcher says; silent if None.

    Raises:
        InvalidInputError: No such plan, choice or optimizer, or the plan needs several machines.
    """
    check_above_zero(
        epochs=epochs, batch=batch, rate=rate, size=size, classes=classes, samples=samples,
        window=window, processes=processes,
    )  # fmt: skip
    if restarts < 0:
        raise InvalidInputError("`--restarts` is below 0", hint="0 starts nothing again")
    _check_optimizer(optimizer)
    if not data:
        raise InvalidInputError(
            "there is no data to train on",
            hint="--data FOLDER of images, or token files with --window, or --data generated",
        )
    plan = _plan_of(what)
    wanted = Training(
        model=str(what), data=data, epochs=epochs, batch=batch, optimizer=optimizer, rate=rate,
        size=size, classes=classes, window=window, dtype=dtype, samples=samples, seed=seed,
        saves=saves,
    )  # fmt: skip
    num_processes = processes or 1
    if plan is not None:
        wanted, num_processes = _as_planned(wanted, plan, choice, processes)
    command = command_of(
        wanted, python=find_python(python), num_processes=num_processes, restarts=restarts
    )
    return running.run(
        command, plan=plan, choice=choice, facts=facts, calibration=calibration, runs=runs,
        on_notice=on_notice,
    )  # fmt: skip


def command_of(
    training: Training, *, python: str, num_processes: int = 1, restarts: int = 0
) -> list[str]:
    """The words that start the script, under torchrun where there are several processes.

    Args:
        training: What is trained.
        python: Interpreter that has torch.
        num_processes: On this machine.
        restarts: How often lost processes are started again.
    """
    script = Path(paceline.__file__).parent / "loop" / "train.py"
    launch = [
        "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}",
        f"--max-restarts={restarts}",
    ]  # fmt: skip
    is_launched = num_processes > 1 or restarts > 0
    return [python, *(launch if is_launched else []), str(script), *training.words()]


def _plan_of(what: PlanFile | Path | str) -> PlanFile | None:
    """The plan, if it is one; None for the name of a model."""
    if isinstance(what, PlanFile):
        return what
    if not isinstance(what, Path) and not what.endswith(_PLAN_ENDINGS):
        return None
    from paceline.planning.goal.files import read_plan

    return read_plan(Path(what))


def _as_planned(
    training: Training, plan: PlanFile, choice: int, processes: int | None
) -> tuple[Training, int]:
    """Model, epochs, batch and optimizer of the plan where nothing else was said."""
    if not 1 <= choice <= len(plan.choices):
        raise InvalidInputError(
            f"the plan has no choice {choice}", hint=f"it has 1 to {len(plan.choices)}"
        )
    chosen, workload = plan.choices[choice - 1], plan.workload
    if chosen.place.num_nodes > 1:
        raise InvalidInputError(
            f"choice {choice} of the plan has {chosen.place.num_nodes} machines",
            hint="start a script with `torchrun` on each: docs/how-to/launch-a-plan.md",
        )
    optimizer = training.optimizer or workload.optimizer
    _check_optimizer(optimizer)
    epochs = None if workload.num_epochs is None else max(1, round(workload.num_epochs))
    return replace(
        training,
        model=workload.model,
        epochs=training.epochs or epochs,
        batch=training.batch or chosen.batch_per_device,
        optimizer=optimizer,
    ), processes or chosen.num_devices


def _check_optimizer(name: str | None) -> None:
    if name is not None and name not in OPTIMIZERS:
        raise InvalidInputError(
            f"`{name}` is no optimizer of `paceline train`",
            hint=f"one of {', '.join(OPTIMIZERS)}; else write a script over paceline.loop",
        )
