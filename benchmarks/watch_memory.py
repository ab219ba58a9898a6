"""Ten scripts around a memory cap: which were called fitting, and which ran.

``python benchmarks/watch_memory.py`` watches three steps of each under a cap that is far away, and
reads the bound of its memory that `paceline run` predicts after the first step. It runs it again
under the cap (RLIMIT_DATA), and writes the table into `watch.md`. Such a cap counts the process's
own data: what else a process may hold is what `paceline run` makes of the cap that is far away. It
needs the CPU's ceilings: `paceline measure alexnet --threads 1`.
"""

from __future__ import annotations

import functools
import json
import resource
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

from watch_predicted import SCRIPT, paceline
from watch_soak import write_part

from paceline.watch.folder import runs_folder

_CAP_BYTES, _FAR_CAP_BYTES = 1_200_000_000, 8_000_000_000
#: Scripts and how many times their batch they take.
_CASES = (
    ("convolutions", 10), ("convolutions", 16), ("convolutions", 26), ("convolutions", 34),
    ("transformer", 4), ("transformer", 6), ("transformer", 9), ("transformer", 12),
    ("residual", 9), ("residual", 26),
)  # fmt: skip
_HEADING = "Ten scripts around a memory cap"


def _cap(num_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (num_bytes, resource.RLIM_INFINITY))


def row(name: str, times: int) -> tuple[str, bool, bool]:
    """One script: its line, whether it was called fitting, and whether it ran."""
    command = (sys.executable, str(SCRIPT), name, "3", str(times))
    with tempfile.NamedTemporaryFile() as verdict:
        _cap(_FAR_CAP_BYTES)
        paceline("run", "--quiet", "--json", "--output", verdict.name, "--", *command)
        _cap(resource.RLIM_INFINITY)
        said = json.loads(Path(verdict.name).read_text())
    memory = next(one for one in said["ledger"] if one["name"] == "memory")
    expected = json.loads((runs_folder() / said["id"] / "expectation.json").read_text())
    allowed_bytes = expected["capacity_bytes"] - _FAR_CAP_BYTES + _CAP_BYTES
    told = memory["predicted"]
    capped = functools.partial(_cap, _CAP_BYTES)
    ended = subprocess.run(command, preexec_fn=capped, capture_output=True, check=False)
    fits, ran = told["high"] <= allowed_bytes, ended.returncode == 0
    figures = (told["mid"], told["high"], allowed_bytes, memory["measured"])
    mega = (f"{one / 1e6:,.0f}" for one in figures)
    words = ("fits" if fits else "may not fit", "ran" if ran else "died")
    return f"| {name} × {times} | {' | '.join((*mega, *words))} |", fits, ran


def main() -> None:
    """Write the table."""
    rows = [row(*case) for case in _CASES]
    died = sum(not ran for _, _, ran in rows)
    ran = len(rows) - died
    told = sum(fits and ran for _, fits, ran in rows)
    wrong = sum(fits and not ran for _, fits, ran in rows)
    said = f"Of {died} that died {wrong} were called fitting, and {told} of the {ran} that ran."
    lines = (
        f"{date.today()}, `watch_memory.py`, {_CAP_BYTES / 1e6:.0f} MB of the process's own data.",
        f"**{said}** Memory in MB, the peak without the cap.",
        "",
        "| script | predicted | bound at 95 % | allowed | peak | called | under the cap |",
        "|---|---|---|---|---|---|---|", *(line for line, _, _ in rows),
    )  # fmt: skip
    write_part(_HEADING, lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
