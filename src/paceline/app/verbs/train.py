"""``paceline train``: a run that survives kills, without a script of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from paceline.app import options as common
from paceline.app.command_line import Argument, Commands, Option
from paceline.app.verbs.run import VerdictFile


def register(app: Commands) -> None:
    """Add the verb."""
    app.add_verb("train", train)


def train(
    what: Annotated[
        str,
        Argument(
            metavar="PLAN|MODEL",
            help="A plan file; or a model: a name, module:function, keras:NAME, or a .keras file.",
        ),
    ],
    data: Annotated[
        str | None,
        Option(
            metavar="FOLDER",
            help="Images, one folder per class, or token files; `generated` makes images. For "
            "Keras an .npz file with x and y, too.",
        ),
    ] = None,
    epochs: Annotated[int | None, Option(help="Passes over the data; the plan's, else 1.")] = None,
    batch: Annotated[
        int | None, Option(help="Samples of one process; the plan's, else 32.")
    ] = None,
    optimizer: Annotated[
        str | None, Option(metavar="NAME", help="sgd, adam or adamw; the plan's, else sgd.")
    ] = None,
    rate: Annotated[float | None, Option(help="Largest learning rate; 0.1.")] = None,
    size: Annotated[int | None, Option(help="Pixels of a side; 224.")] = None,
    classes: Annotated[int | None, Option(help="Number of classes; those of the data.")] = None,
    window: Annotated[
        int | None, Option(help="Tokens of a sample: the data are token files, for a decoder.")
    ] = None,
    dtype: Annotated[
        str | None, Option(metavar="NAME", help="Of token files without a header: uint16.")
    ] = None,
    samples: Annotated[int | None, Option(help="How many images are generated; 2048.")] = None,
    seed: Annotated[int | None, Option(help="Of weights, order and augmentation; 0.")] = None,
    saves: Annotated[
        Path | None, Option(metavar="FOLDER", help="Of the saves; saves/train without.")
    ] = None,
    framework: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="torch; or jax or tensorflow for a model of Keras. The plan's, else torch.",
        ),
    ] = None,
    devices: Annotated[
        int | None,
        Option(help="Of one process of Keras; the plan's, else all GPUs or one CPU."),
    ] = None,
    processes: Annotated[
        int | None,
        Option(help="On this machine; the plan's, else 1. Of TensorFlow, its workers."),
    ] = None,
    restarts: Annotated[int, Option(help="How often lost processes are started again.")] = 0,
    choice: Annotated[int, Option(help="Which choice of the plan.")] = 1,
    python: common.Python = None,
    facts: common.Facts = None,
    calibration: common.Calibration = None,
    runs: common.Runs = None,
    form: common.Format = "text",
    is_json: common.Json = False,
    output: VerdictFile = None,
) -> int:
    """Train so that a kill costs little: paceline train PLAN|MODEL --data FOLDER.

    The same command goes on where a killed run was, on any number of processes. It is watched as
    `paceline run` watches a script: lines of the watcher go to standard error; the verdict there
    is JSON with --json.
    """
    from paceline.app.api.training import train as train_model
    from paceline.app.verbs.run import end_with_verdict, tell

    wanted = common.form_of(form, is_json=is_json)
    summary = train_model(
        what, data=data, epochs=epochs, batch=batch, optimizer=optimizer, rate=rate, size=size,
        classes=classes, window=window, dtype=dtype, samples=samples, seed=seed, saves=saves,
        framework=framework, devices=devices, processes=processes, restarts=restarts,
        choice=choice, python=python, facts=facts or (),
        calibration=calibration, runs=runs, on_notice=tell,
    )  # fmt: skip
    return end_with_verdict(summary, wanted, output)
