"""Runs a script with and without the observer, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from paceline.watch.command import observed_environment
from paceline.watch.events import RunEvents, read_run
from paceline.watch.folder import Run

SCRIPTS = Path(__file__).parent / "scripts"
WORKERS = Path(__file__).parents[3] / "src" / "paceline" / "frontends" / "torch"


@dataclass(frozen=True)
class Ended:
    status: int
    out: bytes
    err: bytes


def plain(*command: str) -> Ended:
    """The command as it is."""
    found = subprocess.run(command, capture_output=True, check=False, env=_quiet(), timeout=300)
    return Ended(found.returncode, found.stdout, found.stderr)


def observed(folder: Path, *command: str) -> tuple[Ended, RunEvents]:
    """The command with the observer on its path, and what that wrote."""
    run = Run(id="test", folder=folder, command=command, started_at="")
    more = {"PACELINE_TRACE_WORKERS": str(WORKERS)}
    environment = observed_environment(run, _quiet(), more)
    found = subprocess.run(command, capture_output=True, check=False, env=environment, timeout=300)
    return Ended(found.returncode, found.stdout, found.stderr), read_run(folder)


def script(name: str, *arguments: str) -> tuple[str, ...]:
    """The words that run a script of ours."""
    return (sys.executable, str(SCRIPTS / name), *arguments)


def _quiet() -> dict[str, str]:
    left_out = ("PYTHONPATH", "PYTHONUNBUFFERED", "RANK", "WORLD_SIZE")
    kept = {k: v for k, v in os.environ.items() if k not in left_out}
    return {**kept, "OMP_NUM_THREADS": "1"}
