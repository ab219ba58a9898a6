"""Kill a sweep with SIGKILL at random moments; it must resume to the same table.

    python benchmarks/measure_kill.py [KILLS]

Every kill hits a `paceline measure` of a small model in a store of its own; the run after the last
kill finishes the sweep. Lost are at most the cells in flight: no record is damaged or missing, and
none is there twice within one run.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from paceline.measurements.records import Record
from paceline.measurements.store import Store

COMMAND = [
    sys.executable, "-m", "paceline.app.main", "measure", "mnist-cnn", "--batch", "1,2,4,8",
    "--mode", "forward,step", "--threads", "1", "--seconds", "0.05", "--json",
]  # fmt: skip
NUM_CELLS = 8


def main(num_kills: int) -> int:
    """Kill and resume; 1 where the table differs."""
    generator = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PACELINE_STORE": folder, "OMP_NUM_THREADS": "1"}
        _finish(environment)  # measures the machine's ceilings once
        before = len(_steps(folder))
        kills = _kill_often(environment, folder, num_kills, generator)
        table = _finish(environment)
        steps = _steps(folder)
    runs: dict[str, list[str]] = {}
    for record in steps[before:]:
        runs.setdefault(record.sweep, []).append(record.cell)
    doubled = [sweep for sweep, cells in runs.items() if len(cells) != len(set(cells))]
    print(f"kills: {kills}, cells kept between them: {len(steps) - before}")
    print(f"runs: {len(runs)}, with a cell twice: {len(doubled)}, final table: {len(table)} cells")
    whole = all(len(cells) == NUM_CELLS for cells in list(runs.values())[:-1])
    ok = len(table) == NUM_CELLS and not doubled and whole
    print("ok" if ok else "FAILED")
    return 0 if ok else 1


def _kill_often(
    environment: dict[str, str], folder: str, num_kills: int, generator: random.Random
) -> int:
    kills = 0
    while kills < num_kills:
        process = subprocess.Popen(
            COMMAND, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + generator.uniform(0.2, 14.0)
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        contents = Store(Path(folder)).read()
        assert contents.num_damaged <= kills, "more lines damaged than kills"
    return kills


def _finish(environment: dict[str, str]) -> list[Any]:
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout)["rows"])


def _steps(folder: str) -> list[Record]:
    return [r for r in Store(Path(folder)).read().records if r.kind == "step"]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50))
