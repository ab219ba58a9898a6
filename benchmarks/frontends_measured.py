"""Five models of beginners on Keras's backends: steps predicted after calibration on other models.

    python benchmarks/frontends_measured.py jax=PYTHON tensorflow=PYTHON torch=PYTHON

Each step runs on one thread in the engine of `paceline measure`, in the Python named, its clock
being the CPU time of its process, so that a crowded machine can measure too. Each model is
predicted by the model of this machine calibrated on the steps of all other models on that backend,
and never on its own. The table stands in ``frontends.md``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from paceline.app.truth.local_prediction import _lowered_here
from paceline.execution.machine_model import LocalModel, fit_local, predict_local
from paceline.execution.machine_work import Work, amounts_of, step_work
from paceline.execution.worker import WORKERS
from paceline.model.reading.load import load_workload

HERE = Path(__file__).parent
PAGE = HERE / "frontends.md"
START, END = "<!-- measured -->", "<!-- end of measured -->"
SEQ = 64
#: Models with the batches of each; the five are asked for, the others are there to learn from.
FIVE = dict.fromkeys(("cnn", "simple_rnn", "lstm", "gru"), (16, 64)) | {"vgg_head": (1, 4)}
OTHERS = {"wide_cnn": (8, 32), "deep_cnn": (8, 32), "wide_lstm": (8, 32), "wide_gru": (8, 32),
          "wide_rnn": (8, 32), "dense": (16, 256), "resnet_head": (1, 4)}  # fmt: skip
FRAMEWORKS = {"jax": "jax", "tensorflow": "tensorflow", "torch": "keras-torch"}
COMPILERS = {"jax": "xla", "tensorflow": "compiled", "torch": "eager"}
TIMED = """
import sys, time
sys.path.insert(0, sys.argv.pop(1))
import engine, keras_engine
engine.time = type(sys)("clock"); engine.time.perf_counter = time.process_time
engine.main(keras_engine.serve)
"""
MODELS = """
import keras
from keras import layers

IMAGE = dict(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])


def _compiled(stack, **settings):
    model = keras.Sequential(stack)
    model.compile(**(settings or IMAGE))
    return model


def _convolutions(side, *widths):
    stack = [keras.Input((side, side, 1 if side == 28 else 3))]
    for width in widths:
        stack += [layers.Conv2D(width, (3, 3), activation="relu"), layers.MaxPooling2D((2, 2))]
    stack += [layers.Flatten(), layers.Dense(64, activation="relu")]
    return _compiled([*stack, layers.Dense(10, activation="softmax")])


def cnn():
    return _convolutions(28, 32, 64)


def wide_cnn():
    return _convolutions(32, 64, 128)


def deep_cnn():
    return _convolutions(64, 32, 64, 128, 128)


def _recurrent(layer, units=64, features=10):
    stack = [layer(units, input_shape=(None, features)), layers.Dense(1)]
    return _compiled(stack, optimizer="adam", loss="mse")


def simple_rnn():
    return _recurrent(layers.SimpleRNN)


def lstm():
    return _recurrent(layers.LSTM)


def gru():
    return _recurrent(layers.GRU)


def wide_lstm():
    return _recurrent(layers.LSTM, 128, 32)


def wide_gru():
    return _recurrent(layers.GRU, 128, 32)


def wide_rnn():
    return _recurrent(layers.SimpleRNN, 128, 32)


def dense():
    wide = [layers.Dense(1024, activation="relu") for _ in range(3)]
    return _compiled([keras.Input((784,)), *wide, layers.Dense(10, activation="softmax")])


def _headed(build):
    base = build(weights=None, include_top=False, input_shape=(224, 224, 3))
    base.trainable = False
    head = [layers.Flatten(), layers.Dense(256, activation="relu")]
    stack = [base, *head, layers.Dense(5, activation="softmax")]
    return _compiled(stack, optimizer="adam", loss="categorical_crossentropy")


def vgg_head():
    return _headed(keras.applications.VGG16)


def resnet_head():
    return _headed(keras.applications.ResNet50)
"""


def measured_s(backend: str, python: str, folder: Path, name: str, batch: int) -> float:
    """CPU seconds of a training step."""
    timing = {"min_samples": 5, "max_samples": 40, "min_s": 1.0, "max_s": 8.0,
              "max_warmup_s": 3.0, "min_sample_s": 0.05}  # fmt: skip
    request = {
        "action": "measure", "framework": backend, "entry": f"beginners:{name}", "mode": "step",
        "batch": batch, "num_devices": 1, "precision": "fp32", "compiler": COMPILERS[backend],
        "seq": SEQ, "image_size": None, "optimizer": "sgd", "device": "cpu", "threads": 1,
        "timing": timing, "directory": str(folder), "output": str(folder / "answer.json"),
    }  # fmt: skip
    environment = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin",
                   "TF_CPP_MIN_LOG_LEVEL": "2", "HOME": str(folder)}  # fmt: skip
    subprocess.run([python, "-c", TIMED, str(WORKERS)], input=json.dumps(request) + "\n", text=True,
                   env=environment, check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    answer = json.loads((folder / "answer.json").read_text())
    return statistics.median(answer["samples_s"])


def rows_of(backend: str, python: str, folder: Path) -> list[tuple]:
    """(model, batch, measured, predicted) of the five, each predicted without its own steps."""
    seen = []
    for name, batches in (FIVE | OTHERS).items():
        workload = load_workload(f"beginners:{name}", python=python)
        lowered = _lowered_here(workload, COMPILERS[backend])
        for batch in batches:
            work = step_work(lowered, batch=batch, seq=SEQ, framework=FRAMEWORKS[backend])
            seen.append((name, batch, work, measured_s(backend, python, folder, name, batch)))
            print(backend, name, batch, f"{seen[-1][3] * 1e3:.2f} ms", file=sys.stderr, flush=True)
    rows = []
    for name in FIVE:
        pairs = [(work, seconds) for other, _, work, seconds in seen if other != name]
        model = fit_local(start(), pairs)
        for other, batch, work, seconds in seen:
            if other == name:
                rows.append((name, batch, seconds, predict_local(model, work).mid_s))
    return rows


def start() -> LocalModel:
    """Where coefficients begin: those of one core of a server, which other steps move."""
    flop = {work: 4e10 for work in Work if work < Work.OPERANDS}
    num_bytes = {Work.OPERANDS: 4e9, Work.STREAM: 8e9, Work.UPDATE: 8e9, Work.POOL: 1e9}
    others = {Work.PAGES: 2e9, Work.DISPATCH: 1e5}
    return LocalModel(
        rates=amounts_of(flop | num_bytes | others), shared_frac={}, all_reduce_bytes_per_s={}
    )


def main(arguments: list[str]) -> None:
    """Measure, predict, and write the table."""
    lines = ["| backend | model | batch | measured, CPU ms | predicted ms | error |",
             "|---|---|--:|--:|--:|--:|"]  # fmt: skip
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "beginners.py").write_text(MODELS)
        os.chdir(folder)
        for argument in arguments:
            backend, _, python = argument.partition("=")
            os.environ["KERAS_BACKEND"] = backend
            for name, batch, seconds, told in rows_of(backend, python, folder):
                error = told / seconds - 1
                lines.append(f"| {backend} | {name} | {batch} | {seconds * 1e3:.1f} "
                             f"| {told * 1e3:.1f} | {error:+.0%} |")  # fmt: skip
        os.chdir(HERE)
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(START)[0], text.partition(END)[2]
    PAGE.write_text("\n".join([f"{before}{START}", *lines, END]) + after, encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
