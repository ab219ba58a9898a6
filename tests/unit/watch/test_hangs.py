"""Planted hangs on two ranks: the rank and the line that hold up the others."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from tests.unit.watch.watched import script

import paceline
from paceline.watch.folder import find_run

pytest.importorskip("torch")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("data", "rank 1 is waiting for a batch (hanging.py:26, __getitem__)"),
        ("lock", "rank 1 is in its own code (hanging.py:41)"),
    ],
)
def test_the_rank_that_hangs_is_named(tmp_path: Path, where: str, words: str):
    said: list[str] = []

    def note(line: str) -> None:
        said.append(line)
        if "stalled" in line:
            pid = find_run(folder=tmp_path).pid
            assert pid is not None
            os.kill(pid, signal.SIGTERM)

    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2"]
    command += script("hanging.py", where)[1:]
    paceline.run(command, runs=tmp_path, stall_after="5s", on_notice=note)
    (line,) = [one for one in said if "stalled" in one]
    assert words in line
    assert "the others wait for it in backward" in line
