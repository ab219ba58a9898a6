"""Scripts with a planted fault and healthy ones: what `diagnose` names, and whether it holds.

``python benchmarks/diagnose.py`` diagnoses each script of `diagnosed/`, makes the change that the
first remedy asks for in a copy, measures the script before and after by the same steps, and writes
`diagnose.md`. Names of scripts do those alone; earlier figures are kept in ``--kept FILE``. Scripts
run at a raised priority, for the machine may be crowded; ``--crowded`` measures how often a crowd
is named, beside busy loops and at the usual priority.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError
from paceline.watch.diagnosis.diagnosing import diagnosis_of, try_in_script
from paceline.watch.folder import new_run

HERE = Path(__file__).parent
SCRIPTS = HERE / "diagnosed"
_PRIORITY = "-20"
_LIMIT_S = 25.0
_FILE_NUMBERS, _NUM_FILES = 2_000_000, 160
#: A raised priority of the session that a script runs in, where that is allowed, and its cores.
_RAISED = (
    "import os,sys\n"
    "try: open('/proc/self/autogroup','w').write(sys.argv[1])\n"
    "except OSError: pass\n"
    "cores = sorted(os.sched_getaffinity(0))\n"
    "os.sched_setaffinity(0, cores[-int(sys.argv[2]):])\n"
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def command_of(path: Path, facts: dict[str, Any], folder: Path, *, is_raised: bool) -> list[str]:
    """How a script is started."""
    ranks = facts.get("ranks", 1)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    files = [str(folder / "files")] if facts.get("needs_files") else []
    words = [sys.executable, str(path), *files]
    if is_raised:
        num_cores = str(facts.get("cores", 2))
        words = [sys.executable, "-c", _RAISED, _PRIORITY, num_cores, *words]
    return [sys.executable, *torchrun, "--no-python", *words] if ranks > 1 else words


@contextmanager
def cold_files(folder: Path, *, is_cold: bool):
    """Inside, there is a folder of arrays that the kernel keeps out of memory, or in it."""
    import numpy as np

    where = folder / "files"
    where.mkdir(exist_ok=True)
    if not list(where.glob("*.npy")):
        for number in range(_NUM_FILES):
            np.save(where / f"{number}.npy", np.zeros(_FILE_NUMBERS, np.float32))
        os.sync()
    stop = threading.Event()

    def evict() -> None:
        paths = sorted(where.glob("*.npy"))
        while not stop.is_set():
            for path in paths:
                file = os.open(path, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)
            stop.wait(0.25)

    thread = threading.Thread(target=evict, daemon=True)
    if is_cold:
        thread.start()
        time.sleep(0.5)
    else:
        for path in where.glob("*.npy"):
            path.read_bytes()
    try:
        yield
    finally:
        stop.set()


def measured_s(path: Path, facts: dict[str, Any], folder: Path) -> tuple[float, float]:
    """A step of a script as it is, without the time in line for a core, and the share of that."""
    run = new_run(tuple(command_of(path, facts, folder, is_raised=True)), folder=folder / "runs")
    found, _ = try_in_script(run, limit_s=30.0, is_measured_only=True)
    return found.step_s("own"), found.crowd.stood_frac if found.crowd else 0.0


def row_of(name: str, facts: dict[str, Any], folder: Path) -> dict[str, Any]:
    """One script: what is named, promised and reached."""
    path = SCRIPTS / f"{name}.py"
    command = command_of(path, facts, folder, is_raised=True)
    run = new_run(tuple(command), folder=folder / "runs")
    began = time.monotonic()
    with cold(facts, folder, is_cold=True):
        found, failed = try_in_script(run, limit_s=_LIMIT_S)
    said = diagnosis_of(run, found, failed)
    causes = [[c.kind, c.gain, c.known_by, c.remedy, c.step_s.mid] for c in said.causes]
    row = {
        "name": name, "cause": facts.get("cause"), "causes": causes, "step_s": said.step_s.mid,
        "wall_s": said.wall_s, "seconds": time.monotonic() - began, "failed": failed,
        "others_cores": said.crowd.others_cores if said.crowd else None,
        "stood_frac": said.crowd.stood_frac if said.crowd else 0.0,
    }  # fmt: skip
    named = [c for c in said.causes if c.kind == facts.get("cause")]
    if named:
        reached = _reached(path, facts, named[0].remedy, folder)
        reached["stood_frac"] = max(reached["stood_frac"], row["stood_frac"])
        row.update(reached)
        row["promised_frac"] = named[0].step_s.mid / said.step_s.mid
    return row


def cold(facts: dict[str, Any], folder: Path, *, is_cold: bool):
    """`cold_files` where a script needs them."""
    from contextlib import nullcontext

    return cold_files(folder, is_cold=is_cold) if facts.get("needs_files") else nullcontext()


def _reached(path: Path, facts: dict[str, Any], remedy: str, folder: Path) -> dict[str, Any]:
    number = re.search(r"\d+", remedy)
    n = int(number.group()) if number else 1
    text = path.read_text()
    for old, new in facts.get("change", ()):
        assert old in text, (path, old)
        text = text.replace(old, new.replace("{n}", str(n)))
    changed = folder / path.name
    changed.write_text(text)
    with cold(facts, folder, is_cold=True):
        before_s, before_frac = measured_s(path, facts, folder)
    with cold(facts, folder, is_cold=False):
        after_s, after_frac = measured_s(changed, facts, folder)
    items = n / facts["samples"] if "samples" in facts else 1.0
    items = n if "batches" in facts else items
    return {
        "reached_frac": after_s / items / before_s, "before_s": before_s,
        "stood_frac": max(before_frac, after_frac),
    }  # fmt: skip


def crowded(num: int, folder: Path) -> list[bool]:
    """Whether a crowd is named, beside two busy loops."""
    burner = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(burner) for _ in range(os.cpu_count() or 1)]
    try:
        return [_is_named(folder) for _ in range(num)]
    finally:
        for one in busy:
            one.kill()


def _is_named(folder: Path) -> bool:
    words = command_of(SCRIPTS / "healthy_mlp.py", {}, folder, is_raised=False)
    run = new_run(tuple(words), folder=folder / "runs")
    found, _ = try_in_script(run, limit_s=30.0, is_measured_only=True)
    return diagnosis_of(run, found).is_crowded


def page(rows: list[dict[str, Any]], named: list[bool]) -> str:
    """The page of figures."""
    faults = [row for row in rows if row["cause"]]
    healthy = [row for row in rows if not row["cause"]]
    first = [row for row in faults if row["causes"] and row["causes"][0][0] == row["cause"]]
    reached = [row for row in faults if "reached_frac" in row]
    errors = [abs(row["promised_frac"] / row["reached_frac"] - 1) for row in reached]
    lines = [
        "# Diagnosis: named, promised, reached",
        "",
        _HEAD.format(day=date.today()),
        "",
        "| asked | figure |",
        "|---|---|",
        f"| named first in 14 of 16 | {len(first)} of {len(faults)} |",
        "| step promised against reached after the change by hand: median at most 10 %, worst at "
        f"most 25 % | {statistics.median(errors):.1%}, {max(errors):.0%} ({len(errors)} scripts) |",
        f"| six healthy scripts: nothing above 5 % | {_most(healthy)} |",
        f"| a crowded machine is named in 10 of 10 | {sum(named)} of {len(named)}, a busy loop per "
        "core beside |",
        f"| at most 2 minutes at 100 ms a step | {max(r['seconds'] for r in rows):.0f} s at most |",
        "",
        _FAULT_COLUMNS,
        "|---|---|---|---|---|---|---|---|---|",
        *map(_fault_line, faults),
        "",
        "Promised and reached are shares of the step before. *In line* is the share of its time",
        "that a script stood behind others, in its worst run. `s` is what the diagnosis took.",
        "",
        "| healthy script | step, ms | largest gain said | in line |",
        "|---|---|---|---|",
        *map(_healthy_line, healthy),
        "",
    ]
    return "\n".join(lines)


def _most(healthy: list[dict[str, Any]]) -> str:
    gains = [max((one[1] for one in row["causes"]), default=1.0) for row in healthy] or [1.0]
    return f"{sum(gain <= 1.05 for gain in gains)} of {len(gains)}, at most {max(gains) - 1:.0%}"


_HEAD = """\
{day}, two cores of an AMD EPYC shared with other programs, PyTorch 2.13 on CPU, by
`make diagnose` (`benchmarks/diagnose.py`); scripts in `benchmarks/diagnosed`. Each fault is
diagnosed, the change is made by hand (`scripts.toml`), and the script is measured before and after,
once each. Steps leave out what the script stood in line behind other programs; scripts run at a
raised priority, and those that use one thread and no workers on one core: the other would be a
second fault."""
_FAULT_COLUMNS = (
    "| script | step, ms | named first | its rank | promised | reached | off | in line | s |"
)


def _fault_line(row: dict[str, Any]) -> str:
    kinds = [one[0] for one in row["causes"]]
    place = str(kinds.index(row["cause"]) + 1) if row["cause"] in kinds else "not named"
    promised, reached = row.get("promised_frac"), row.get("reached_frac")
    cells = [row["name"], f"{1e3 * row['step_s']:.1f}", kinds[0] if kinds else "nothing", place]
    if promised and reached:
        cells += [f"{promised:.2f}", f"{reached:.2f}", f"{promised / reached - 1:+.0%}"]
    else:
        cells += ["", "", ""]
    return "| " + " | ".join([*cells, _in_line(row), f"{row['seconds']:.0f}"]) + " |"


def _healthy_line(row: dict[str, Any]) -> str:
    best = max(row["causes"], key=lambda one: one[1], default=None)
    said = f"{best[1]:.2f} × ({best[0]})" if best else "nothing"
    return f"| {row['name']} | {1e3 * row['step_s']:.1f} | {said} | {_in_line(row)} |"


def _in_line(row: dict[str, Any]) -> str:
    """Share of its time that the script stood in line behind other programs, at its worst."""
    return f"{row['stood_frac']:.0%}"


def main() -> None:
    """Diagnose, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "diagnosed.json")
    parser.add_argument("--crowded", type=int, default=0, metavar="RUNS")
    asked = parser.parse_args()
    scripts = tomllib.loads((SCRIPTS / "scripts.toml").read_text())
    kept = json.loads(asked.kept.read_text()) if asked.kept.exists() else {}
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    os.environ.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as place:
        for name in asked.names or ([] if asked.crowded else scripts):
            try:
                kept[name] = row_of(name, scripts[name], Path(place))
            except PacelineError as error:
                print(name, error, getattr(error, "details", ""), flush=True)
                continue
            print(_fault_line(kept[name]), kept[name]["causes"][:3], flush=True)
            asked.kept.write_text(json.dumps(kept))
        if asked.crowded:
            kept["crowded"] = crowded(asked.crowded, Path(place))
            asked.kept.write_text(json.dumps(kept))
    rows = [kept[name] for name in scripts if name in kept]
    (HERE / "diagnose.md").write_text(page(rows, kept.get("crowded", [])))


if __name__ == "__main__":
    main()
