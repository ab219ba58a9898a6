"""A cluster that is none: programs that imitate `kubectl`, `sky` and `ssh`."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from warm_workers import WORKERS

SCRIPT = Path(__file__).with_name("imitated.py")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the programs on the path take for their cluster."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "cluster").mkdir()
    for name in ("kubectl", "sky", "ssh"):
        program = tmp_path / "bin" / name
        words = shlex.join([sys.executable, "-S", str(SCRIPT), name])
        program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("IMITATED", str(tmp_path / "cluster"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/local/bin:/usr/bin:/bin")
    return tmp_path / "cluster"


@pytest.fixture
def warm_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that are run for what is seen in them begin with PyTorch imported."""
    warm = SimpleNamespace(**{**vars(subprocess), "Popen": WORKERS.start_watched})
    monkeypatch.setattr("paceline.watch.throwaway.subprocess", warm)
