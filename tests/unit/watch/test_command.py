from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.errors import InvalidInputError, UnknownNameError
from paceline.watch.command import choice_setting, running, wait
from paceline.watch.folder import Run, find_run, new_run, runs_in

_SLEEPER = "import time; print('up', flush=True); time.sleep(60)"


def _ended(run: Run, **more: object) -> Run:
    with running(run, **more) as started:
        return wait(started)


def _paceline(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "paceline", "run", "-q", "--runs", str(folder), "--", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.parametrize("status", [0, 1, 7, 255])
def test_the_exit_status_is_the_commands(tmp_path: Path, status: int):
    run = _ended(new_run([sys.executable, "-c", f"raise SystemExit({status})"], folder=tmp_path))
    assert run.status == status
    assert find_run(folder=tmp_path).status == status
    assert find_run(folder=tmp_path).state == ("failed" if status else "done")


def test_the_choice_of_a_plan_reaches_the_command(tmp_path: Path):
    choice = SimpleNamespace(
        strategy="dp2/mb4", batch_per_device=8, microbatches=4, global_batch=16, precision="bf16",
        compiler="eager", checkpointing="none", channels_last=True,
    )  # fmt: skip
    code = "import json, os; raise SystemExit(json.loads(os.environ['PACELINE_CHOICE']) != %r)"
    command = [sys.executable, "-c", code % vars(choice)]
    choice.place = SimpleNamespace(interruption_frac_per_month=None)
    assert _ended(new_run(command, folder=tmp_path), more=choice_setting(choice)).status == 0


def test_a_program_that_is_not_there_leaves_no_run(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="cannot be started"):
        _ended(new_run(["no-such-program"], folder=tmp_path))
    assert runs_in(tmp_path) == ()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_go_to_the_command_and_end_both_alike(tmp_path: Path, number: int):
    process = _paceline(tmp_path, sys.executable, "-c", _SLEEPER)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert process.wait(20) == -number
    process.communicate()
    assert find_run(folder=tmp_path).status == -number


@pytest.mark.parametrize("is_there", [False, True])
def test_a_signal_before_the_wait_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_there: bool
):
    begin, before, heard = subprocess.Popen, signal.getsignal(signal.SIGTERM), []

    def begun(*words: object, **more: object) -> subprocess.Popen[bytes]:
        if not is_there:
            os.kill(os.getpid(), signal.SIGTERM)
        return begin(*words, **more)

    monkeypatch.setattr(subprocess, "Popen", begun)
    with running(new_run([sys.executable, "-c", _SLEEPER], folder=tmp_path)) as started:
        if is_there:
            os.kill(os.getpid(), signal.SIGTERM)
        assert wait(started, hear_signal=heard.append).status == -signal.SIGTERM
    assert heard == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_command_outlives_its_watcher(tmp_path: Path):
    told = tmp_path / "told"
    code = "import os, sys, time\nprint('up', flush=True)\n"
    code += "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\nprint('done', flush=True)"
    process = _paceline(tmp_path, sys.executable, "-c", code, str(told))
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.kill()
    assert process.wait(20) == -signal.SIGKILL
    run = find_run(folder=tmp_path)
    assert run.state == "running"
    told.touch()
    assert process.stdout.readline() == b"done\n"
    process.communicate()
    deadline = time.monotonic() + 300
    while find_run(folder=tmp_path).is_alive and time.monotonic() < deadline:
        time.sleep(0.05)
    assert find_run(folder=tmp_path).state == "unknown"


def test_another_process_of_the_same_number_is_not_the_run(tmp_path: Path):
    from dataclasses import replace

    run = new_run(["x"], folder=tmp_path)
    assert not replace(run, pid=os.getpid(), process_started=1).is_alive


def test_runs_are_found_by_how_they_begin(tmp_path: Path):
    with pytest.raises(InvalidInputError, match="no run is kept"):
        find_run(folder=tmp_path)
    run = _ended(new_run(["true"], folder=tmp_path))
    assert find_run(run.id[:2], tmp_path).id == run.id
    with pytest.raises(UnknownNameError):
        find_run("zz", tmp_path)
    (tmp_path / "not-a-run").mkdir()
    (tmp_path / run.id / "end.json").write_text("{ torn")
    assert [one.state for one in runs_in(tmp_path)] == ["unknown"]
