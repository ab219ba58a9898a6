"""Runs on a real Slurm, behind a real sshd and on a real Ray, the near side killed among them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from validators import harness

import paceline
from paceline.measurements.store import Store
from paceline.watch.elsewhere.submit import look_at
from paceline.watch.folder import find_run, runs_in

pytestmark = pytest.mark.validators

ROOT = Path(__file__).parents[3]
TRAIN = """
import sys, time, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if not harness.has_slurm():
        pytest.skip("needs root and the packages slurm-wlm and munge")
    folder = tmp_path_factory.mktemp("slurm")
    with pytest.MonkeyPatch.context() as patch, harness.slurm(folder):
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        yield "slurm"


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server in another namespace; the client finds it by a program of its name with options."""
    if os.geteuid() != 0 or shutil.which("sshd", path="/usr/sbin:/usr/bin") is None:
        pytest.skip("needs root and the packages openssh-server and iproute2")
    folder = tmp_path_factory.mktemp("ssh")
    script = str(ROOT / "tools" / "validators" / "second_namespace.sh")
    (folder / "bin").mkdir()
    real = shutil.which("ssh")
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {real} -F {folder}/config "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
    before = os.environ["PATH"]
    try:
        subprocess.run(["sh", script, "start", str(folder)], check=True)
        os.environ["PATH"] = f"{folder / 'bin'}:{before}"
        yield "ssh:far"
    finally:
        os.environ["PATH"] = before
        subprocess.run(["sh", script, "stop", str(folder)], check=False)


@pytest.fixture(scope="module")
def ray() -> str:
    if shutil.which("ray") is None or not os.environ.get("RAY_ADDRESS"):
        pytest.skip("needs a running Ray: RAY_ADDRESS")
    return "ray"


@pytest.fixture(params=["slurm", "ssh", "ray"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(TRAIN)
    return str(tmp_path / "train.py")


def test_a_run_is_submitted_watched_and_fetched(place: str, script: str, tmp_path: Path) -> None:
    said: list[str] = []
    summary = paceline.run(
        [sys.executable, script, "30"], on=place, runs=tmp_path / "runs", on_notice=said.append
    )
    assert summary.status == 0
    assert summary.steps is not None
    assert summary.steps.num_steps == 30
    assert [line for line in said if f"{place} job" in line]


def test_its_exit_status_and_last_lines_come_back(place: str, tmp_path: Path) -> None:
    said: list[str] = []
    words = ["sh", "-c", "echo 'it'\"'\"'s $(no) use'; exit 7"]
    summary = paceline.run(words, on=place, runs=tmp_path / "runs", on_notice=said.append)
    assert summary.status == 7
    assert "  it's $(no) use" in said


def test_a_run_that_is_stopped_ends(place: str, script: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    paceline.run([sys.executable, script, "4000"], on=place, runs=runs, detach=True)
    _wait_for_lines(runs)
    assert paceline.runs_stop(runs=runs).state == "failed"


def test_the_near_side_is_killed_and_another_attaches(
    place: str, script: str, tmp_path: Path
) -> None:
    counts = Counter[str]()
    for number in range(int(os.environ.get("PACELINE_KILLS", "3"))):
        runs = tmp_path / f"runs{number}"
        command = [sys.executable, "-m", "paceline", "run", "--on", place, "--runs", str(runs)]
        near = subprocess.Popen([*command, "--", sys.executable, script, "60"])
        # Killed at another moment each time: while it starts and submits, and while it follows.
        if number % 2:
            _wait_for_a_job(runs)
        time.sleep(0.5 + 0.2 * number)
        near.send_signal(signal.SIGKILL)
        near.wait()
        if not (runs_in(runs) and look_at(find_run(None, runs)).job):
            counts["before the job was handed over"] += 1
            continue
        *_, last = paceline.runs_follow(runs=runs)
        assert last.state == "done"
        assert last.steps is not None
        assert last.steps.num_steps == 60
        counts["attached again, 60 of 60 steps, done"] += 1
    with Path(os.environ.get("PACELINE_KILL_COUNTS", os.devnull)).open("a") as file:
        file.write(f"{place}: {dict(counts)}\n")


def test_a_sweep_is_measured_there_and_its_records_come_back(place: str, tmp_path: Path) -> None:
    """The near side is killed once; the same command finds its sweep and brings the records."""
    words = ["measure", "mnist-cnn", "--batch", "2,4", "--seconds", "0.1", "--on", place]
    folders = ["--runs", str(tmp_path / "runs"), "--store", str(tmp_path / "store")]
    there = ["--in", str(ROOT / "src"), "--python", sys.executable]
    command = [sys.executable, "-m", "paceline", *words, *folders, *there]
    near = subprocess.Popen(command)
    _wait_for_a_job(tmp_path / "runs")
    near.send_signal(signal.SIGKILL)
    near.wait()
    subprocess.run(command, check=True)
    assert len(runs_in(tmp_path / "runs")) == 1
    steps = [one for one in Store(tmp_path / "store").read().records if one.kind == "step"]
    assert [one.batch_per_device for one in steps] == [2, 4]
    assert all(one.median_s for one in steps)


def _wait_for_lines(runs: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while paceline.runs_show(runs=runs).steps is None:
        assert time.monotonic() < end
        time.sleep(0.5)


def _wait_for_a_job(runs: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not any(run.job for run in runs_in(runs)):
        assert time.monotonic() < end
        time.sleep(0.1)
