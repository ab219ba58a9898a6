"""``paceline train``: a run that survives kills, without a script of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from paceline.app import options as common
from paceline.app.api import training as api
from paceline.app.command_line import Argument, Option
from paceline.app.option_table import asks
from paceline.app.verbs.run import VerdictFile, end_with_verdict, tell


@asks(
    api.train,
    what=Annotated[
        str,
        Argument(
            "PLAN|MODEL",
            "A plan file; or a model: a name, module:function, keras:NAME, or a .keras file.",
        ),
    ],
    data=Option(
        "Images, one folder per class, or token files; `generated` makes images. For Keras an "
        ".npz file with x and y, too.",
        "FOLDER",
    ),
    epochs=Option("Passes over the data; the plan's, else 1."),
    batch=Option("Samples of one process; the plan's, else 32."),
    optimizer=Option("sgd, adam or adamw; the plan's, else sgd.", "NAME"),
    rate=Option("Largest learning rate; 0.1."),
    size=Option("Pixels of a side; 224."),
    classes=Option("Number of classes; those of the data."),
    window=Option("Tokens of a sample: the data are token files, for a decoder."),
    dtype=Option("Of token files without a header: uint16.", "NAME"),
    samples=Option("How many images are generated; 2048."),
    seed=Option("Of weights, order and augmentation; 0."),
    saves=Option("Of the saves; saves/train without.", "FOLDER"),
    framework=Option(
        "torch; or jax or tensorflow for a model of Keras. The plan's, else torch.", "NAME"
    ),
    devices=Option("Of one process of Keras; the plan's, else all GPUs or one CPU."),
    processes=Option("On this machine; the plan's, else 1. Of TensorFlow, its workers."),
    restarts=Option("How often lost processes are started again."),
    choice=Option("Which choice of the plan."),
    python=common.Python,
    facts=common.Facts,
    calibration=common.Calibration,
    runs=common.Runs,
    form=common.Format,
    is_json=common.Json,
    output=VerdictFile,
)
def train(*, form: str, is_json: bool, output: Path | None, **asked: Any) -> int:
    """Train so that a kill costs little: paceline train PLAN|MODEL --data FOLDER.

    The same command goes on where a killed run was, on any number of processes. It is watched as
    `paceline run` watches a script: lines of the watcher go to standard error; the verdict there
    is JSON with --json.
    """
    wanted = common.form_of(form, is_json=is_json)
    return end_with_verdict(api.train(**asked, on_notice=tell), wanted, output)
