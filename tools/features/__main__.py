"""Run one command for each feature and requirement, and write ``docs/reference/features.md``.

``PYTHONPATH=src:tools python -m features`` tries the commands of ``features.csv`` in order in one
folder; ``--only 1,W3`` some of them again, the others standing as they were. A row counts where
its command ends as it should and says what it must; what only a GPU could show is said to be so.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_PAGE = _ROOT / "docs" / "reference" / "features.md"
_LIMIT_S = 300
#: Files that commands read, from their folders.
_FILES = (
    "tools/features/files", "tools/calls/files/desktop.toml", "tools/calls/files/facts.toml",
    "examples/scenarios/purchases.toml", "examples/scenarios/pool.yaml",
    "examples/scenarios/lifecycle.yaml", "examples/scenarios/machines",
    "docs/how-to/examples/lab.toml",
)  # fmt: skip
_GROUPS = (
    ("Predict", "1", "15"), ("Measure", "16", "33"), ("Choose", "34", "45"), ("Run", "46", "57"),
    ("Software", "58", "65"), ("Launch", "66", "73"), ("Report", "74", "78"), ("Use", "79", "85"),
    ("Reliability", "86", "90"),
)  # fmt: skip
_INTRODUCTION = """# Features, each tried

Written by `make features`, which runs every command below, in order in one folder, on a machine
without a GPU. *works*: the command ended as it should and said what it must. *on a GPU*: built,
and tested on devices that a test makes up. *partly*: what is missing stands behind it. A command
that ends in `--help` shows that something is there; its tests show that it works.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A feature.

    Attributes:
        name: Number of a feature of the field, or letter and number of a requirement.
        feature: In words.
        state: ``works``, ``partly`` or ``on a GPU``, if its command does what it must.
        command: What paceline is asked; ``python …`` and ``pytest …`` run as they are.
        says: Pattern that must be in the answer.
        limits: What is missing, or where else it is shown.
    """

    name: str
    feature: str
    state: str
    command: str
    says: str
    limits: str


def main(argv: Sequence[str]) -> int:
    """Try the rows, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of rows, with commas")
    parser.add_argument("--jobs", type=int, default=1, help="commands at once")
    arguments = parser.parse_args(argv)
    wanted = set(filter(None, arguments.only.split(",")))
    with (_HERE / "features.csv").open(encoding="utf-8", newline="") as lines:
        rows = [Row(name=one.pop("id"), **one) for one in csv.DictReader(lines)]
    kept = [row for row in rows if not wanted or row.name in wanted]
    answers = _answers(list(dict.fromkeys(row.command for row in kept)), arguments.jobs)
    failed = [row for row in kept if not _holds(row, answers[row.command])]
    for row in failed:
        print(f"{row.name}: `{row.command}` does not say {row.says}", file=sys.stderr)
        print(answers[row.command][-600:], file=sys.stderr)
    names = {row.name for row in failed} | (_failed_before() - {row.name for row in kept})
    _PAGE.write_text(page(rows, names), encoding="utf-8")
    return 1 if failed else 0


def _failed_before() -> set[str]:
    """Names of the rows that failed when the page was last written."""
    if not _PAGE.exists():
        return set()
    return set(re.findall(r"^\| (\w+) \|.*\*\*fails\*\*", _PAGE.read_text("utf-8"), re.MULTILINE))


def _answers(commands: Sequence[str], num_jobs: int) -> dict[str, str]:
    """What each command says, in one folder."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(num_jobs) as pool:
        folder = Path(name)
        _lay_out(folder)
        said = pool.map(lambda command: _answer(command, folder), commands)
        return dict(zip(commands, said, strict=True))


def page(rows: Sequence[Row], failed: set[str]) -> str:
    """The page in Markdown."""
    counts = Counter(_state(row, failed) for row in rows)
    total = ", ".join(f"{number} {state}" for state, number in counts.most_common())
    blocks = [_INTRODUCTION, f"{len(rows)} rows: {total}.\n", "## The field's 90 features\n"]
    fields = [row for row in rows if row.name.isdigit()]
    for title, first, last in _GROUPS:
        blocks.append(f"### {title}\n")
        within = range(int(first), int(last) + 1)
        blocks.append(_table([row for row in fields if int(row.name) in within], failed))
    blocks.append("## Requirements\n")
    blocks.append(_table([row for row in rows if not row.name.isdigit()], failed))
    return "\n".join(blocks)


def _table(rows: Sequence[Row], failed: set[str]) -> str:
    lines = ["| | feature | | command | |", "|--:|---|---|---|---|"]
    for row in rows:
        command = row.command.replace("|", "\\|")
        shown = command if command.startswith(("python ", "pytest ")) else f"paceline {command}"
        state = _state(row, failed)
        lines.append(f"| {row.name} | {row.feature} | {state} | `{shown}` | {row.limits} |")
    return "\n".join(lines) + "\n"


def _state(row: Row, failed: set[str]) -> str:
    return "**fails**" if row.name in failed else row.state


def _holds(row: Row, answer: str) -> bool:
    has_failed = "Traceback" in answer or "FAILED" in answer
    return re.search(row.says, answer) is not None and not has_failed


def _answer(command: str, folder: Path) -> str:
    """What a command says, on both streams."""
    words = shlex.split(command)
    if words[0] == "python":
        words = [sys.executable, *words[1:]]
    elif words[0] == "pytest":
        tests = [f"{_ROOT}/{word}" if word.startswith("tests/") else word for word in words[1:]]
        words = [sys.executable, "-m", "pytest", "-q", f"--rootdir={_ROOT}", *tests]
    else:
        words = [sys.executable, "-m", "paceline", *words]
    try:
        done = subprocess.run(
            words, cwd=folder, env=dict(_environment(folder)), capture_output=True, text=True,
            timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"took longer than {_LIMIT_S} s"
    return f"{done.stdout}\n{done.stderr}"


def _environment(folder: Path) -> Iterator[tuple[str, str]]:
    """This process's, with this source tree, and with nothing kept outside the folder."""
    own: Mapping[str, str] = {
        "PYTHONPATH": f"{_ROOT / 'src'}{os.pathsep}{folder}", "COLUMNS": "100", "NO_COLOR": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PACELINE_RUNS": str(folder / "runs"),
    }  # fmt: skip
    yield from {**os.environ, **own}.items()


def _lay_out(folder: Path) -> None:
    """Copy what commands read, and draw pictures."""
    for name in _FILES:
        source = _ROOT / name
        if source.is_dir() and source.name == "files":
            shutil.copytree(source, folder, dirs_exist_ok=True)
        elif source.is_dir():
            shutil.copytree(source, folder / source.name)
        else:
            shutil.copy(source, folder)
    _draw(folder / "pictures")


def _draw(folder: Path) -> None:
    """Two classes of JPEG pictures."""
    import numpy as np
    from PIL import Image

    numbers = np.random.default_rng(0)
    for label in ("cats", "dogs"):
        (folder / label).mkdir(parents=True)
        for number in range(24):
            pixels = numbers.integers(0, 255, (160, 200, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number}.jpg")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
