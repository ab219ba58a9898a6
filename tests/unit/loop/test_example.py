"""The README's example for real: killed, taken up on two processes, and its ledger shown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

SCRIPT = Path(__file__).parents[3] / "examples" / "cifar_cnn" / "train.py"
NUM_STEPS, KILLED_AFTER = 4 * 32, 70
_TRAIN = (str(SCRIPT), "--samples", "2048", "--epochs", "4")
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def _environment(folder: Path) -> dict[str, str]:
    """One thread, saves and runs in the folder, and a place that interrupts every other second."""
    more = {"OMP_NUM_THREADS": "1", "PACELINE_INTERRUPTIONS_PER_HOUR": "1800"}
    return {**os.environ, **more, "PACELINE_RUNS": str(folder / "runs")}


def _start(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    with (folder / "said.txt").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, *command], cwd=folder, env=_environment(folder),
            stdout=said, stderr=said,
        )  # fmt: skip


def _watched(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    return _start(folder, "-m", "paceline", "run", "--", sys.executable, *command)


def _losses(folder: Path) -> list[tuple[int, float]]:
    """Step and loss of each line, in the order in which they were written."""
    path = folder / "losses.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [(row["step"], row["loss"]) for row in rows]


def _kill_once_it_trained(folder: Path, watcher: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the training process, whose number is in the name of its file of events."""
    while not (folder / "losses.jsonl").exists() or (
        (folder / "losses.jsonl").read_text().count("\n") < KILLED_AFTER
    ):
        assert watcher.poll() is None, (folder / "said.txt").read_text()
        time.sleep(0.01)
    (events,) = (folder / "runs").rglob("rank-0-*.jsonl")
    os.kill(int(events.stem.split("-")[2]), signal.SIGKILL)


def _shown(folder: Path, *words: str) -> str:
    command = [sys.executable, "-m", "paceline", "runs", *words]
    return subprocess.run(
        command, env=_environment(folder), capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_killed_it_goes_on_with_two_processes_as_if_undisturbed(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir(), cut.mkdir()
    assert _start(whole, *_TRAIN).wait(300) == 0
    undisturbed = dict(_losses(whole))
    assert sorted(undisturbed) == list(range(1, NUM_STEPS + 1))

    watcher = _watched(cut, *_TRAIN)
    _kill_once_it_trained(cut, watcher)
    assert watcher.wait(60) in (-signal.SIGKILL, 128 + signal.SIGKILL)
    before = _losses(cut)
    assert KILLED_AFTER <= len(before) < NUM_STEPS

    assert _watched(cut, *_TORCHRUN, *_TRAIN).wait(300) == 0
    after = _losses(cut)[len(before) :]
    assert after[0][0] > 2, "it began anew"
    assert [step for step, _ in after] == list(range(after[0][0], NUM_STEPS + 1))
    assert after[0][0] <= before[-1][0] + 1
    assert max(abs(loss - undisturbed[step]) for step, loss in before + after) <= 1e-5

    assert "ended by signal 9" in _shown(cut, "list")
    ledger = _shown(cut, "show")
    assert "ranks 2" in ledger
    assert f"{len(after)} steps" in ledger
