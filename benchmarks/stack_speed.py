"""Time the software resolver and deploying as whole processes; writes benchmarks/stack_speed.md.

Wall time only means something on a quiet machine, so the load is recorded beside it; CPU time is
what the process itself used. The best of several runs is kept.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "stack_speed.md"
NUM_RUNS = 9
#: The plan that is deployed; prices are judged on one day, so that it does not age.
_PLAN = ["plan", "resnet50", "--deadline", "24h", "--as-of", "2026-11-20"]
_CONFLICT = ["stack", "check", "--gpu", "k80", "--cuda", "13"]
HEAD = """# Speed of the software resolver and of deploying

Written by `python benchmarks/stack_speed.py` on {today}; best of {runs} whole processes,
{cores} cores, load average {load:.1f}. Wanted: under 0.5 s each on a quiet machine, without any
framework.

| command | wall s | CPU s | of it, Python with numpy alone |
| --- | --- | --- | --- |
"""


def main() -> None:
    """Time every command and write the page."""
    with tempfile.TemporaryDirectory() as folder:
        cli = [sys.executable, "-m", "paceline"]
        subprocess.run([*cli, *_PLAN], cwd=folder, check=True, capture_output=True)
        plan = Path(folder) / "plan.yaml"
        deploy = [*cli, "deploy", str(plan), "--to", "slurm", "--command", "train.py", "--dry-run"]
        commands = {
            "paceline stack resolve": [*cli, "stack", "resolve", "--gpu", "h100"],
            "paceline stack check (a conflict)": [*cli, *_CONFLICT],
            "paceline deploy --to slurm": deploy,
        }
        base = _best([sys.executable, "-c", "import numpy"])[1]
        rows = [_row(name, _best(words), base) for name, words in commands.items()]
    head = HEAD.format(
        today=date.today(), runs=NUM_RUNS, cores=os.cpu_count(), load=os.getloadavg()[0]
    )
    RESULT.write_text(head + "\n".join(rows) + "\n")
    print(RESULT.read_text())


def _row(name: str, seconds: tuple[float, float], base_s: float) -> str:
    return f"| `{name}` | {seconds[0]:.2f} | {seconds[1]:.2f} | {base_s:.2f} |"


def _best(words: list[str]) -> tuple[float, float]:
    """Least wall and CPU seconds of a process."""
    walls, cpus = [], []
    for _ in range(NUM_RUNS):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(words, check=False, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls.append(time.perf_counter() - start)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(walls), min(cpus)


if __name__ == "__main__":
    main()
