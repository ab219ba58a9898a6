"""What a CPU that AlexNet alone calibrated is predicted to take for a script, and what it takes.

``python benchmarks/watch_predicted.py`` measures AlexNet, runs six scripts under `paceline run`,
learns from each of them (`paceline calibrate --run`), runs them again, and writes the table into
`watch.md` under its heading. All runs on one core; the machine should be calm.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

from watch_soak import write_part

from paceline.errors import PacelineError

HERE = Path(__file__).parent
SCRIPT = HERE / "watched" / "predicted.py"
_NAMES = (
    "wide perceptron",
    "deep perceptron",
    "convolutions",
    "transformer",
    "recurrent",
    "residual",
)
_MOST_TRIES = 4
_HEADING = "Predicted against watched"


def paceline(*words: str) -> str:
    """Standard output of a verb."""
    command = [sys.executable, "-m", "paceline", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PacelineError(done.stderr[-600:] + done.stdout[-600:], hint=" ".join(words))
    return done.stdout


def watched(name: str) -> tuple[str, float, float]:
    """A run of a script: its name, the predicted and the measured step in seconds.

    One that stood in line for a core tells of other programs; it is run again, some times.
    """
    for _ in range(_MOST_TRIES):
        with tempfile.NamedTemporaryFile() as verdict:
            command = ("--", sys.executable, str(SCRIPT), name)
            paceline("run", "--quiet", "--json", "--output", verdict.name, *command)
            said = json.loads(Path(verdict.name).read_text())
        if not any("in line for a core" in one for one in said["differences"]):
            break
    step = next(one for one in said["ledger"] if one["name"] == "step")
    return said["id"], step["predicted"]["mid"], step["measured"]


def table() -> list[str]:
    """Rows before and after learning."""
    paceline("measure", "alexnet", "--batch", "4,16", "--threads", "1", "--seconds", "0.3")
    print("AlexNet is measured", flush=True)
    before = {name: watched(name) for name in _NAMES}
    print(before, flush=True)
    for run, _, _ in before.values():
        paceline("calibrate", "--run", run)
    after = {name: watched(name) for name in _NAMES}
    print(after, flush=True)
    lines = [
        "| script | measured, ms | predicted, ms | off | predicted after `calibrate --run` | off |",
        "|---|---|---|---|---|---|",
    ]
    for name in _NAMES:
        (_, told_s, first_s), (_, learned_s, again_s) = before[name], after[name]
        lines.append(
            f"| {name} | {1e3 * first_s:.1f} | {1e3 * told_s:.1f} | {told_s / first_s - 1:+.0%} | "
            f"{1e3 * learned_s:.1f} of {1e3 * again_s:.1f} | {learned_s / again_s - 1:+.0%} |"
        )
    return lines


def main() -> None:
    """Write the table."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", PACELINE_STORE=f"{folder}/store",
            PACELINE_RUNS=f"{folder}/runs",
        )  # fmt: skip
        lines = table()
    told = f"{date.today()}, `watch_predicted.py`, one core: AlexNet alone was known at first."
    write_part(_HEADING, (told, "", *lines))


if __name__ == "__main__":
    main()
