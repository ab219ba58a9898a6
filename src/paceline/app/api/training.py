"""The public function that trains: `paceline.loop` as a script, started and watched by `run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import paceline
from paceline.app.api import running
from paceline.app.options import check_above_zero
from paceline.app.requests.words import check_choice
from paceline.errors import InvalidInputError
from paceline.model.reading.worker import find_python
from paceline.planfile import PlanFile, PlannedChoice
from paceline.values import dataclass
from paceline.watch.verdict import RunSummary

#: What the script trains with.
OPTIMIZERS = ("sgd", "adam", "adamw")
#: What trains: PyTorch, or Keras on one of its backends.
FRAMEWORKS = ("torch", "jax", "tensorflow")
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
        backend: Of Keras, ``jax`` or ``tensorflow``; None for a model of PyTorch.
        devices: On which one process of Keras trains.
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
    backend: str | None = None
    devices: int | None = None

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
    framework: str | None = None,
    devices: int | None = None,
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
        framework: ``"torch"``, or ``"jax"`` or ``"tensorflow"`` for a model of Keras; the plan's,
            else PyTorch.
        devices: On which one process of Keras trains; the plan's, else all GPUs or one CPU.
        processes: On this machine; the plan's for PyTorch, else 1. Of TensorFlow, its workers.
        restarts: How often lost processes are started again.
        choice: Which choice of the plan, 1 being the first.
        python: Interpreter that has the framework; found if None.
        facts: Files with your own devices.
        calibration: File that `calibrate` wrote; the built-in coefficients if None.
        runs: Folder of all runs; the user's own if None.
        on_notice: Called with each line that the watcher says; silent if None.

    Raises:
        InvalidInputError: No such plan, choice or optimizer, or the plan needs several machines.
    """
    check_above_zero(
        epochs=epochs, batch=batch, rate=rate, size=size, classes=classes, samples=samples,
        window=window, devices=devices, processes=processes,
    )  # fmt: skip
    if restarts < 0:
        raise InvalidInputError("`--restarts` is below 0", hint="0 starts nothing again")
    _check_optimizer(optimizer)
    data = _given(data)
    plan = _plan_of(what)
    chosen = None if plan is None else _choice_of(plan, choice)
    model = str(what) if plan is None else plan.workload.model
    wanted = Training(
        model=model, data=data, epochs=epochs, batch=batch, optimizer=optimizer, rate=rate,
        size=size, classes=classes, window=window, dtype=dtype, samples=samples, seed=seed,
        saves=saves, backend=_backend(framework, model, chosen), devices=devices,
    )  # fmt: skip
    command = _command(wanted, plan, chosen, processes=processes, restarts=restarts, python=python)
    return running.run(
        command, plan=plan, choice=choice, facts=facts, calibration=calibration, runs=runs,
        on_notice=on_notice,
    )  # fmt: skip


def _given(data: str | None) -> str:
    if not data:
        raise InvalidInputError(
            "there is no data to train on",
            hint="--data FOLDER of images, or token files with --window, or --data generated",
        )
    return data


def _command(
    training: Training,
    plan: PlanFile | None,
    chosen: PlannedChoice | None,
    *,
    processes: int | None,
    restarts: int,
    python: str | None,
) -> list[str]:
    """The words that start a training, as its plan has it where nothing else was said."""
    backend = training.backend
    if plan is not None and chosen is not None:
        training = _as_planned(training, plan, chosen)
    num_processes = processes or (chosen.num_devices if chosen and not backend else 1)
    training = _for_keras(training, chosen, num_processes) if backend else _for_torch(training)
    return command_of(
        training, python=_python_of(backend, python), num_processes=num_processes, restarts=restarts
    )


def command_of(
    training: Training, *, python: str, num_processes: int = 1, restarts: int = 0
) -> list[str]:
    """The words that start the script, under a launcher where there are several processes.

    Args:
        training: What is trained.
        python: Interpreter that has the framework.
        num_processes: On this machine.
        restarts: How often lost processes are started again.
    """
    loop = Path(paceline.__file__).parent / "loop"
    torchrun = [
        python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_processes}",
        f"--max-restarts={restarts}",
    ]  # fmt: skip
    workers = [python, str(loop / "keras" / "launch.py"), str(num_processes), str(restarts), python]
    script = loop / "keras" / "train.py" if training.backend else loop / "train.py"
    launch = workers if training.backend else torchrun
    is_launched = num_processes > 1 or restarts > 0
    return [*(launch if is_launched else [python]), str(script), *training.words()]


def _backend(framework: str | None, model: str, chosen: PlannedChoice | None) -> str | None:
    """The backend of Keras, where it trains; None for PyTorch.

    Raises:
        InvalidInputError: No such framework, or a model of Keras without one.
    """
    if framework is None and chosen is not None:
        framework = None if chosen.stack is None else chosen.stack.framework
    elif framework is None and model.startswith("keras:"):
        raise InvalidInputError(
            f"`{model}` is a model of Keras, and its backend is not said",
            hint="--framework jax, or --framework tensorflow",
        )
    if framework is not None and framework not in FRAMEWORKS:
        raise InvalidInputError(
            f"`{framework}` is no framework of `paceline train`",
            hint=f"one of {', '.join(FRAMEWORKS)}",
        )
    return None if framework == "torch" else framework


def _for_torch(training: Training) -> Training:
    if training.devices is not None:
        raise InvalidInputError(
            "PyTorch has one process for each device", hint=f"--processes {training.devices}"
        )
    return training


def _for_keras(training: Training, chosen: PlannedChoice | None, num_processes: int) -> Training:
    """What Keras can be told, on the devices of the plan where nothing else was said."""
    for name in ("window", "dtype"):
        if getattr(training, name) is not None:
            raise InvalidInputError(
                f"`--{name}` is of token files, which models of PyTorch are trained on",
                hint="leave it out, or write a script over paceline.loop.keras",
            )
    if num_processes > 1 and training.backend == "jax":
        raise InvalidInputError(
            "JAX trains on all devices of a machine in one process",
            hint=f"--devices {num_processes}",
        )
    if num_processes > 1 and training.devices is not None:
        raise InvalidInputError(
            "workers of TensorFlow have one device each", hint="leave out --devices"
        )
    if chosen is None or num_processes > 1:
        return training
    return replace(training, devices=training.devices or chosen.num_devices)


def _python_of(backend: str | None, python: str | None) -> str:
    """The interpreter named, that of the created stack, or one that has Keras or PyTorch."""
    from paceline.execution.stacks import find_spec, list_stacks, stacks_folder

    if backend is None:
        return find_python(python)
    name = find_spec(backend).name
    created = [one for one in list_stacks(stacks_folder()) if one.spec.name == name]
    if python is None and created:
        return str(created[0].python)
    return find_python(python, framework="keras")


def _plan_of(what: PlanFile | Path | str) -> PlanFile | None:
    """The plan, if it is one; None for the name of a model."""
    if isinstance(what, PlanFile):
        return what
    if not isinstance(what, Path) and not what.endswith(_PLAN_ENDINGS):
        return None
    from paceline.planning.goal.files import read_plan

    return read_plan(Path(what))


def _choice_of(plan: PlanFile, choice: int) -> PlannedChoice:
    """A choice of a plan that one machine runs.

    Raises:
        InvalidInputError: There is none of the number, or it has several machines.
    """
    check_choice(plan, choice)
    chosen = plan.choices[choice - 1]
    if chosen.place.num_nodes > 1:
        raise InvalidInputError(
            f"choice {choice} of the plan has {chosen.place.num_nodes} machines",
            hint="start a script with `torchrun` on each: docs/how-to/launch-a-plan.md",
        )
    return chosen


def _as_planned(training: Training, plan: PlanFile, chosen: PlannedChoice) -> Training:
    """Model, epochs, batch and optimizer of the plan where nothing else was said."""
    workload = plan.workload
    optimizer = training.optimizer or (None if _compiles(training) else workload.optimizer)
    _check_optimizer(optimizer)
    epochs = None if workload.num_epochs is None else max(1, round(workload.num_epochs))
    return replace(
        training,
        epochs=training.epochs or epochs,
        batch=training.batch or chosen.batch_per_device,
        optimizer=optimizer,
    )


def _compiles(training: Training) -> bool:
    """Whether a model of Keras brings its own optimizer."""
    scheme, colon, _ = training.model.partition(":")
    is_own = bool(colon) and scheme != "keras"
    return training.backend is not None and (is_own or training.model.endswith(".keras"))


def _check_optimizer(name: str | None) -> None:
    if name is not None and name not in OPTIMIZERS:
        raise InvalidInputError(
            f"`{name}` is no optimizer of `paceline train`",
            hint=f"one of {', '.join(OPTIMIZERS)}; else write a script over paceline.loop",
        )
