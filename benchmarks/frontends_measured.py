"""Five models of beginners on Keras's backends: steps predicted after calibration on other models.

    python benchmarks/frontends_measured.py measure STORE jax=PYTHON GROUP... [COMMAND...]
    python benchmarks/frontends_measured.py table STORE jax=PYTHON tensorflow=PYTHON torch=PYTHON

Each step runs on one thread by ``paceline measure`` in the Python named, in groups of models of at
most five minutes; a command in front of it, such as ``taskset -c 0``, may follow. What the table
says beside a model is told by this machine's ceilings and all steps of other models on that
backend in the store. It stands in ``frontends.md``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paceline.app.truth.local_prediction import ledger_of_store
from paceline.measurements.ledger import LedgerRow
from paceline.measurements.store import Store

HERE = Path(__file__).parent
PAGE = HERE / "frontends.md"
START, END = "<!-- measured -->", "<!-- end of measured -->"
#: Models that are measured together, with their batches.
GROUPS = {
    "asked": ("cnn simple_rnn lstm gru", "16,64"),
    "taught": ("wide_cnn deep_cnn wide_lstm wide_gru wide_rnn dense", "8,32"),
    "headed": ("resnet_head vgg_head", "1,4"),
}
STACKS = {"jax": "jax", "tensorflow": "tensorflow", "torch": "keras-torch"}
FIVE = {f"beginners:{name}" for name in (*GROUPS["asked"][0].split(), "vgg_head")}


def measure(store: str, backend: str, python: str, group: str, under: list[str]) -> None:
    """Measure a group of models on a backend into a store."""
    models, batches = GROUPS[group]
    words = [
        *under, sys.executable, "-m", "paceline", "measure", "--device", "cpu", "--threads", "1",
        "--seq", "64", "--seconds", "0.3", "--stack", STACKS[backend], "--python", python,
        "--batch", batches, "--store", store, *(f"beginners:{name}" for name in models.split()),
    ]  # fmt: skip
    subprocess.run(words, cwd=HERE, env=os.environ | {"KERAS_BACKEND": backend}, check=True)


def lines(store: str, backend: str, python: str) -> list[str]:
    """Rows of the table: each step of the five models beside what the others tell of it."""
    os.environ["KERAS_BACKEND"] = backend
    records = Store(Path(store)).read().records
    asked = [r for r in records if r.workload in FIVE and r.framework == STACKS[backend]]
    return [line(backend, row) for row in ledger_of_store(records, asked, python=python)]


def line(backend: str, row: LedgerRow) -> str:
    """A row of the table."""
    record, told_s = row.record, row.predicted_s
    assert record.median_s is not None
    assert told_s is not None
    return (
        f"| {backend} | {record.workload.removeprefix('beginners:')} "
        f"| {record.batch_per_device:.0f} | {record.median_s * 1e3:.2f} | {told_s * 1e3:.2f} "
        f"| {told_s / record.median_s - 1:+.0%} |"
    )


def main(action: str, store: str, *words: str) -> None:
    """Measure groups, or write the table."""
    store = str(Path(store).resolve())
    pythons = dict(word.split("=", 1) for word in words if "=" in word)
    groups = [word for word in words if word in GROUPS]
    if action == "measure":
        under = [word for word in words if "=" not in word and word not in GROUPS]
        for backend, python in pythons.items():
            for group in groups:
                measure(store, backend, python, group, under)
        return
    os.chdir(HERE)
    rows = [row for backend, python in pythons.items() for row in lines(store, backend, python)]
    head = ["| backend | model | batch | measured ms | predicted ms | error |",
            "|---|---|--:|--:|--:|--:|"]  # fmt: skip
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(START)[0], text.partition(END)[2]
    PAGE.write_text("\n".join([f"{before}{START}", *head, *rows, END]) + after, encoding="utf-8")
    print("\n".join(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
