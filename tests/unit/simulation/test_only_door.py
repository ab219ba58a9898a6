"""Only the simulation room lowers graphs, times passes and sizes processes."""

from __future__ import annotations

import ast
import builtins
import re
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import paceline
from paceline.catalog.load import load_catalog
from paceline.model.reading.load import load_workload
from paceline.parallelism.strategy.strategy import Strategy
from paceline.simulation.job import Job
from paceline.simulation.machine import Machine
from paceline.simulation.simulator import simulate

ROOT = Path(paceline.__file__).parent
INNER = {"lower", "predict_pass", "peak_memory_bytes"}
#: The rooms that make them, and the one that may call them.
OWN = ("model", "prediction", "simulation")


def imported(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    # What imports none of the names need not be parsed.
    named = any(re.search(rf"\bimport\b(\s*\([^()]*|.*)\b{name}\b", text) for name in INNER)
    for node in ast.walk(ast.parse(text if named else "")):
        if isinstance(node, ast.ImportFrom):
            yield from (name.name for name in node.names)


def test_only_the_door_lowers_times_and_sizes() -> None:
    callers = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in OWN and INNER & set(imported(path))
    }
    assert callers == set()


def test_a_step_needs_no_file_clock_or_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its tables are read: what a step is made of is in its arguments."""
    machine = Machine.parse("8xH100 SXM5 80GB@dgx-h100-nvls,dgx-h100-ib", load_catalog())
    workload = load_workload("gpt2")
    texts = ("dp8", "dp8/mb2+zero2", "pp2.dp2.tp2+zero1", "dp4.cp2")
    jobs = [Job(workload=workload, strategy=Strategy.parse(text)) for text in texts]
    known = simulate(jobs, [machine] * len(jobs))

    def blocked(*_: object, **__: object) -> None:
        raise AssertionError("a file, the clock or package metadata was asked for")

    for owner, name in (
        (builtins, "open"), (Path, "open"), (Path, "read_text"), (Path, "read_bytes"),
        (time, "time"), (time, "monotonic"), (metadata, "version"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, blocked)
    again = simulate([*jobs], [machine] * len(jobs))
    monkeypatch.undo()
    assert again.step_s.tolist() == known.step_s.tolist()
    assert again.reasons.tolist() == [None] * len(jobs)
