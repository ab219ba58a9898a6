"""Runs a script with and without the observer, as a user would or as a fork of a warm process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.watch.command import observed_environment
from paceline.watch.events import RunEvents, read_run
from paceline.watch.folder import Run
from warm_workers import WORKERS as WARM

SCRIPTS = Path(__file__).parent / "scripts"
WORKERS = Path(__file__).parents[3] / "src" / "paceline" / "frontends" / "torch"


@dataclass(frozen=True)
class Ended:
    status: int
    out: bytes
    err: bytes


def plain(*command: str) -> Ended:
    """The command as it is."""
    return _ended(command, _quiet())


def observed(folder: Path, *command: str) -> tuple[Ended, RunEvents]:
    """The command with the observer on its path, and what that wrote."""
    run = Run(id="test", folder=folder, command=command, started_at="")
    more = {"PACELINE_TRACE_WORKERS": str(WORKERS)}
    environment = observed_environment(run, _quiet(), more)
    return _ended(command, environment), read_run(folder)


def _ended(command: tuple[str, ...], environment: Mapping[str, str]) -> Ended:
    program, *words = command
    if program == sys.executable and words[0].endswith(".py"):
        with tempfile.TemporaryFile("w+") as talk:
            begun = WARM.start_script(*words, talk=talk, env=environment)
            out, err = (text.encode() for text in begun.communicate())
            return Ended(begun.wait(), out, err)
    found = subprocess.run(command, capture_output=True, check=False, env=environment, timeout=300)
    return Ended(found.returncode, found.stdout, found.stderr)


def script(name: str, *arguments: str) -> tuple[str, ...]:
    """The words that run a script of ours."""
    return (sys.executable, str(SCRIPTS / name), *arguments)


def _quiet() -> dict[str, str]:
    left_out = ("PYTHONPATH", "PYTHONUNBUFFERED", "RANK", "WORLD_SIZE")
    kept = {k: v for k, v in os.environ.items() if k not in left_out}
    return {**kept, "OMP_NUM_THREADS": "1"}
