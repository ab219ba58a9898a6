"""Five models of beginners on Keras's backends: steps predicted after calibration on other models.

    python benchmarks/frontends_measured.py jax=PYTHON tensorflow=PYTHON torch=PYTHON [COMMAND...]

Each step runs on one thread by ``paceline measure`` in the Python named; a command in front of it,
such as ``taskset -c 0``, may follow. What is printed beside a model is said by this machine's
ceilings and the steps of other models on that backend. The table stands in ``frontends.md``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "frontends.md"
START, END = "<!-- measured -->", "<!-- end of measured -->"
#: Models that are measured together, with their batches; those to learn from go first.
GROUPS = (
    ("wide_cnn deep_cnn wide_lstm wide_gru wide_rnn dense", "8,32"),
    ("resnet_head vgg_head", "1,4"),
    ("cnn simple_rnn lstm gru", "16,64"),
)
FIVE = {f"beginners:{name}" for name in ("cnn", "simple_rnn", "lstm", "gru", "vgg_head")}
STACKS = {"jax": "jax", "tensorflow": "tensorflow", "torch": "keras-torch"}


def measured(
    backend: str, python: str, models: str, batches: str, store: Path, under: list[str]
) -> list[dict]:
    """Rows of ``paceline measure``, each a record beside its prediction."""
    words = [
        *under, sys.executable, "-m", "paceline", "measure", "--device", "cpu", "--threads", "1",
        "--seq", "64", "--seconds", "0.3", "--stack", STACKS[backend], "--python", python,
        "--batch", batches, "--store", str(store), "--json",
        *(f"beginners:{name}" for name in models.split()),
    ]  # fmt: skip
    environment = os.environ | {"KERAS_BACKEND": backend}
    done = subprocess.run(words, cwd=HERE, env=environment, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["rows"]


def line(backend: str, row: dict) -> str:
    """A row of the table."""
    record = row["record"]
    samples = sorted(record["samples_s"])
    measured_s, told_s = samples[len(samples) // 2], row["predicted_s"]
    name = record["workload"].removeprefix("beginners:")
    return (
        f"| {backend} | {name} | {record['batch_per_device']:.0f} | {measured_s * 1e3:.2f} "
        f"| {told_s * 1e3:.2f} | {told_s / measured_s - 1:+.0%} |"
    )


def main(arguments: list[str]) -> None:
    """Measure, predict, and write the table."""
    pythons = dict(one.split("=", 1) for one in arguments if "=" in one)
    under = [one for one in arguments if "=" not in one]
    lines = ["| backend | model | batch | measured ms | predicted ms | error |",
             "|---|---|--:|--:|--:|--:|"]  # fmt: skip
    with tempfile.TemporaryDirectory() as store:
        for backend, python in pythons.items():
            for models, batches in GROUPS:
                rows = measured(backend, python, models, batches, Path(store), under)
                asked = [row for row in rows if row["record"]["workload"] in FIVE]
                lines += [line(backend, row) for row in asked]
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(START)[0], text.partition(END)[2]
    PAGE.write_text("\n".join([f"{before}{START}", *lines, END]) + after, encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
