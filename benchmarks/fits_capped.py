"""Small models that train under a memory cap on a CPU, by the chance that they were told to fit.

``python benchmarks/fits_capped.py [FIRST LAST]`` draws models, batches and optimizers, predicts the
peak of each process as `paceline run` does under such a limit, and sets a cap (RLIMIT_DATA) at
which the told chance to fit is one that was drawn before: each model once in each bin of chances.
It adds a line a run to ``fits_capped.csv``, and goes on behind the last one; `accuracy_fits.py`
writes the table.
"""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import torch
from watched import drawn

from paceline.app.truth.local_prediction import local_memory_bytes
from paceline.model.graph.workload import Workload
from paceline.model.reading.load import load_workload
from paceline.parallelism.memory.memory_fit import chance_to_fit, quantile_bytes

HERE = Path(__file__).parent
OUT = HERE / "fits_capped.csv"
NUM_MODELS = 104
#: Bounds of the chances that are drawn, as `accuracy_memory.strangers` tells them apart.
BINS = tuple(pairwise((0.005, 0.1, 0.3, 0.5, 0.7, 0.86, 0.94, 0.99, 0.9999)))
#: Batches are drawn between those that raise a process by so much.
_LEAST_BYTES, _MOST_BYTES = 15e6, 90e6
COLUMNS = (
    "number", "family", "optimizer", "batch", "began_bytes", "low_bytes", "mid_bytes",
    "high_bytes", "cap_bytes", "chance", "ran",
)  # fmt: skip


class Server:
    """The process that forks one for each run (`watched/drawn.py`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "watched" / "drawn.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, number: int, batch: int, cap_of: Callable[[int], float]) -> bool:
        """Whether a model trains under the cap that follows from what its process holds."""
        self._say({"number": number, "batch": batch})
        self._say(cap_of(self._hear()))
        return self._hear() == 0

    def _say(self, value: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def _hear(self) -> int:
        assert self._process.stdout is not None
        return int(json.loads(self._process.stdout.readline()))


def traced(number: int) -> tuple[str, str, Workload]:
    """Family, optimizer and graph of a model that is drawn."""
    family, model, inputs, optimizer = drawn.drawn(number)
    job = SimpleNamespace(model=model, inputs=lambda batch: inputs(batch))
    name = {"momentum": "sgd-momentum"}.get(optimizer, optimizer)
    return family, optimizer, load_workload(job, optimizer=name)


def runs(number: int, server: Server) -> Iterator[dict[str, object]]:
    """One run of a model for each bin of chances."""
    chance, heap = random.Random(f"{number} runs"), os.confstr("CS_GNU_LIBC_VERSION") or ""
    family, optimizer, workload = traced(number)

    def told(batch: int, began: float):
        return local_memory_bytes(
            workload, batch=batch, seq=1, microbatches=1, held_bytes=began, heap=heap,
            is_data=True,
        )  # fmt: skip

    # What a process holds at most grows about evenly with the batch.
    few, many = (told(batch, 0.0).low for batch in (8, 16))
    item = max((many - few) / 8, 1.0)
    for place, (low, high) in enumerate(BINS):
        if place % 2 == 0:
            wanted_bytes = chance.uniform(_LEAST_BYTES, _MOST_BYTES)
            batch = max(2, min(int((wanted_bytes - few) / item) + 8, 1024))
        wanted = chance.uniform(low, high)
        row: dict[str, object] = {"number": number, "family": family, "optimizer": optimizer}

        def cap_of(began: int, batch: int = batch, wanted: float = wanted, row=row) -> float:
            peak = told(batch, float(began))
            cap = float(quantile_bytes(peak.mid, peak.high, wanted))
            row |= {
                "batch": batch, "began_bytes": began, "low_bytes": round(peak.low),
                "mid_bytes": round(peak.mid), "high_bytes": round(peak.high),
                "cap_bytes": round(cap), "chance": f"{chance_to_fit(cap, peak.mid, peak.high):.4f}",
            }  # fmt: skip
            return cap

        row["ran"] = int(server.run(number, batch, cap_of))
        yield row


def main() -> None:
    """Add what is missing of the runs."""
    torch.set_num_threads(1)
    first, last = map(int, sys.argv[1:3] or (0, NUM_MODELS - 1))
    done = {int(row["number"]) for row in csv.DictReader(OUT.open())} if OUT.exists() else set()
    server = Server()
    with OUT.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        for number in sorted(set(range(first, last + 1)) - done):
            for row in runs(number, server):
                writer.writerow(row)
                file.flush()


if __name__ == "__main__":
    main()
