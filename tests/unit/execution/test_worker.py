"""Whatever a worker does becomes a result with its cause."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from paceline.execution.processes import descendants, end_tree, tree_usage
from paceline.execution.worker import WORKERS, Limits, run_worker

FAKE = [sys.executable, str(Path(__file__).parent / "fixtures/fake_engine.py")]
TIMING = {
    "min_samples": 5, "max_samples": 50, "min_s": 0.05, "max_s": 0.5, "max_warmup_s": 0.2,
    "min_sample_s": 0.001,
}  # fmt: skip


def run(entry, *, timeout_s=30.0, memory_bytes=None, on_progress=lambda event: None, batch=2):
    request = {"entry": entry, "batch": batch, "timing": TIMING, "memory_limit_bytes": None}
    return run_worker(
        FAKE,
        request,
        limits=Limits(timeout_s=timeout_s, memory_bytes=memory_bytes),
        environment={"PACELINE_WORKERS": str(WORKERS)},
        on_progress=on_progress,
    )


def test_a_good_worker_answers_and_tells_its_stages():
    stages = []
    result = run("good", on_progress=lambda event: stages.append(event["stage"]))
    assert result.ending == "ok"
    assert stages == ["warm-up", "measuring"]
    assert len(result.answer["samples_s"]) >= 5
    assert min(result.answer["samples_s"]) >= 0.001


@pytest.mark.parametrize(
    ("entry", "ending", "reason"),
    [
        ("raises", "raised", "ValueError: a model that cannot be built"),
        ("unsupported", "unsupported", "no such thing"),
        ("crashes", "died", "SIGABRT"),
        ("exits", "died", "exit status 3"),
    ],
)
def test_bad_endings_have_their_cause(entry, ending, reason):
    result = run(entry)
    assert result.ending == ending
    assert reason in result.reason
    assert result.answer == {}


def test_a_worker_that_hangs_is_ended_at_its_time_out():
    assert run("hangs", timeout_s=0.6).ending == "timeout"


def test_chatter_on_stdout_and_stderr_is_harmless():
    result = run("prints")
    assert result.ending == "ok"
    assert "chatter" in result.details


@pytest.mark.parametrize("entry", ["allocates", "allocates-natively"])
def test_a_worker_that_allocates_without_end_is_out_of_memory(entry):
    result = run(entry, memory_bytes=300e6)
    assert result.ending == "out-of-memory"
    assert "above the cap of 0.3 GB" in result.reason


def test_a_python_that_is_not_there_is_the_callers_mistake():
    with pytest.raises(FileNotFoundError):
        run_worker(["/nonexistent/python"], {}, limits=Limits(timeout_s=1.0))


def test_a_worker_that_writes_a_broken_result_died(tmp_path):
    script = tmp_path / "broken.py"
    script.write_text(
        "import json, sys\n"
        "open(json.load(open(sys.argv[1]))['output'], 'w').write('{half')\n"
        "print('not json'); print('[1]'); print('{\"event\": 3}')\n"
    )
    result = run_worker([sys.executable, str(script)], {}, limits=Limits(timeout_s=30.0))
    assert (result.ending, result.reason) == ("died", "it ended without a readable result")


def test_a_process_that_ends_while_its_threads_are_listed_has_no_children(monkeypatch):
    def gone(_path):
        raise FileNotFoundError

    monkeypatch.setattr(os, "scandir", gone)
    assert descendants(os.getpid()) == (os.getpid(),)
    assert tree_usage(os.getpid()).resident_bytes > 0


def test_children_are_counted_and_ended_with_their_parent(tmp_path):
    child = "import time; time.sleep(1000)"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(1000)"
    )
    import subprocess

    parent = subprocess.Popen([sys.executable, "-c", code])
    while len(descendants(parent.pid)) < 2 and parent.poll() is None:
        time.sleep(0.05)
    pids = descendants(parent.pid)
    assert len(pids) == 2
    assert len(descendants(parent.pid)) == 2
    end_tree(parent.pid)
    parent.wait()
    stat = Path(f"/proc/{pids[1]}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_worker_does_not_outlive_whoever_started_it(tmp_path):
    code = (
        "import json, sys\n"
        "from paceline.execution.worker import Limits, run_worker\n"
        f"request = {{'entry': 'hangs', 'batch': 1, 'memory_limit_bytes': None}}\n"
        f"run_worker({FAKE!r}, request, limits=Limits(timeout_s=1000.0),"
        f" environment={{'PACELINE_WORKERS': {str(WORKERS)!r}}},"
        " on_progress=lambda event: print(event['stage'], flush=True))\n"
    )
    import signal
    import subprocess

    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "hanging\n"
        (_, worker) = descendants(parent.pid)
        os.kill(parent.pid, signal.SIGKILL)
    # The kernel ends it with its parent; else it would sleep for a quarter of an hour.
    end = time.monotonic() + 300
    while Path(f"/proc/{worker}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


def test_requests_are_plain_json(tmp_path):
    script = tmp_path / "echo.py"
    script.write_text(
        "import json, sys\n"
        "request = json.load(open(sys.argv[1]))\n"
        "open(request['output'], 'w').write(json.dumps(request))\n"
    )
    result = run_worker(
        [sys.executable, str(script)], {"a": [1, None]}, limits=Limits(timeout_s=30)
    )
    assert json.loads(json.dumps(result.answer["a"])) == [1, None]
