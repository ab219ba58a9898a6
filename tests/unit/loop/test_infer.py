"""``infer``: one row per sample, whatever stops it in between."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as parquet
import pytest
import torch
from tests.unit.loop import samples

from paceline.loop.errors import LoopError
from paceline.loop.inferring import inference, parts, runtimes


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(12, 5))


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root = samples.folder(tmp_path / "images", 45)
    for name in ("class0/0006.jpg", "class2/0044.jpg"):
        (root / name).write_bytes(b"\xff\xd8 no image")
    module = tmp_path / "a_module.py"
    module.write_text(
        "from tests.unit.loop.test_infer import _model\nmodel = _model\nnone = dict\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return {
        "model": "a_module:model", "data": str(root), "out": str(tmp_path / "labels.parquet"),
        "batch": 4, "size": 16, "normalise": "imagenet", "runtime": "auto", "device": "cpu",
        "threads": 2, "scores": True, "part": 8, "mode": "throughput", "export": None,
    }  # fmt: skip


def _infer(request):
    return inference.infer(request, lambda line: None)


def _rows(request):
    return parquet.read_table(request["out"]).to_pylist()


def _is_whole(request) -> None:
    rows = _rows(request)
    assert [row["index"] for row in rows] == list(range(45))
    assert not Path(request["out"] + ".parts").exists()


def test_every_sample_has_one_row_and_damaged_ones_say_why(asked) -> None:
    found = _infer(asked)
    assert [found["num_rows"], found["num_damaged"], found["runtime"]] == [45, 2, "torch"]
    _is_whole(asked)
    rows = _rows(asked)
    bad = [row for row in rows if row["damage"]]
    assert [Path(row["name"]).name for row in bad] == ["0006.jpg", "0044.jpg"]
    assert all(row["label"] is None and "JPEG" in row["damage"] for row in bad)
    for row in rows:
        if row["damage"] is None:
            assert row["score"] == max(row["scores"]) == row["scores"][row["label"]]
            assert sum(row["scores"]) == pytest.approx(1.0)


class _Nowhere:
    """Parts of three rows that are written nowhere."""

    num_rows, part_rows, fed = (
        3,
        3,
        SimpleNamespace(reader=SimpleNamespace(name_of=str), damaged=()),
    )

    def write(self, position, columns) -> None:
        self.columns = columns


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")
def test_rows_are_made_by_one_thread_that_starts_no_others() -> None:
    scores, threads, parts = torch.randn(3, 50_000), torch.get_num_threads(), _Nowhere()
    torch.set_num_threads(4)
    try:
        before = len(os.listdir("/proc/self/task"))
        rows = inference._Rows(parts.fed, parts, 0, False)
        rows.put([0, 1, 2], scores)
        while rows._begin < 3:
            time.sleep(0.01)
        after = len(os.listdir("/proc/self/task"))
        rows.close()
    finally:
        torch.set_num_threads(threads)
    assert after == before + 1
    shares = torch.softmax(scores, dim=1).max(dim=1)
    assert parts.columns["label"].to_pylist() == shares.indices.tolist()
    assert parts.columns["score"].to_pylist() == pytest.approx(shares.values.tolist())


def test_labels_do_not_depend_on_batch_or_mode(asked, tmp_path: Path) -> None:
    found = []
    for number, (batch, mode) in enumerate(((4, "throughput"), (7, "throughput"), (1, "latency"))):
        request = {
            **asked,
            "batch": batch,
            "mode": mode,
            "out": str(tmp_path / f"{number}.parquet"),
        }
        answer = _infer(request)
        assert answer["latency_p99_s"] >= answer["latency_p50_s"] > 0
        found.append([(row["index"], row["label"]) for row in _rows(request)])
    assert found[0] == found[1] == found[2]


#: Processes that are forked before any thread is started: those of BLAS do not survive a fork.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.unit.loop.test_infer"])


def _killed(
    request, *, after_writes: int | None = None, after_s: float = 0.0, pause_s: float = 0.0
) -> int:
    """Run in a process that kills itself; its signal, or 0 if it ended before."""
    given = (request, after_writes, after_s, pause_s)
    process = _FORKS.Process(target=_infer_until_killed, args=given)
    process.start()
    process.join()
    assert process.exitcode is not None
    return -process.exitcode


def _infer_until_killed(request, after_writes: int | None, after_s: float, pause_s: float) -> None:
    if pause_s:
        write = parts._write
        parts._write = lambda *a: (time.sleep(pause_s), write(*a))
    if after_writes is None:
        threading.Timer(after_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    else:
        _kill_at(after_writes)
    _infer(request)
    os._exit(0)


def _kill_at(number: int) -> None:
    """Before or after a file gets its name, by turns."""
    replace, seen = os.replace, [0]

    def counted(source: str, target: str) -> None:
        for is_after in (False, True):
            if is_after:
                replace(source, target)
            if seen[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)
            seen[0] += 1

    parts.os.replace = counted


def test_killed_at_every_write_it_goes_on_without_doubles(asked) -> None:
    undisturbed = {**asked, "out": asked["out"] + ".whole"}
    _infer(undisturbed)
    kills = 0
    for number in (0, 1, 2, 3, 0, 1, 0, 3, 0, 1):
        kills += _killed(asked, after_writes=number) == signal.SIGKILL
    assert kills >= 6
    _infer(asked)
    _is_whole(asked)
    assert _rows(asked) == _rows(undisturbed)
    again = _infer(asked)
    assert again["num_done_before"] == 45


@pytest.mark.slow
def test_killed_fifty_times_at_any_moment(asked) -> None:
    undisturbed = {**asked, "out": asked["out"] + ".whole"}
    _infer(undisturbed)
    draw, kills = random.Random(0), 0
    for _ in range(400):
        stop_s = draw.uniform(0.0, 0.15)
        kills += _killed(asked, after_s=stop_s, pause_s=0.01) == signal.SIGKILL
        if kills == 50:
            break
        if Path(asked["out"]).exists() and not Path(asked["out"] + ".parts").exists():
            _is_whole(asked)
            Path(asked["out"]).unlink()
    assert kills == 50
    _infer(asked)
    _is_whole(asked)
    assert _rows(asked) == _rows(undisturbed)


def test_parts_of_another_question_are_not_joined(asked) -> None:
    assert _killed(asked, after_writes=2) == signal.SIGKILL
    with pytest.raises(LoopError, match="another question"):
        _infer({**asked, "size": 24})
    _infer(asked)
    with pytest.raises(LoopError, match="other settings"):
        _infer({**asked, "normalise": "none", "size": 24})


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("weights.pt", "unpickled"),
        ("resnet50", "no trained weights"),
        ("a_module:absent", "absent"),
        ("a_module:none", "returned a dict"),
        ("absent.onnx", "no file"),
    ],
)
def test_models_that_cannot_be_used_are_refused(asked, model: str, words: str) -> None:
    with pytest.raises(LoopError, match=words):
        _infer({**asked, "model": model})
    assert not Path(asked["out"] + ".parts").exists()


def test_a_device_that_is_not_here_is_refused(asked) -> None:
    with pytest.raises(LoopError, match="no device `hpu` here"):
        _infer({**asked, "device": "hpu"})


def test_each_damaged_sample_is_said_once_and_by_no_address(asked) -> None:
    root, said = Path(asked["data"]), []
    (root / "class0" / "0000.png").write_bytes(b"no image")
    inference.infer({**asked, "out": asked["out"] + "2"}, said.append)
    skipped = [line for line in said if "skipped" in line]
    assert len(skipped) == len(set(skipped)) == 3
    assert not any(" at 0x" in line for line in skipped)


def test_an_error_of_the_rows_thread_is_raised(asked, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(parts, "_write", full)
    with pytest.raises(OSError, match="no space left"):
        _infer(asked)


def test_of_two_runtimes_the_faster_is_taken(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"")
    monkeypatch.setattr(runtimes, "_onnxruntime", lambda *_: lambda x: (time.sleep(0.02), x)[1])
    monkeypatch.setattr(runtimes, "_openvino", lambda *_: lambda x: x)
    monkeypatch.setattr(runtimes, "_TRIAL_S", 0.05)
    _, name, seconds = runtimes.open_model(str(path), "auto", "cpu", torch.zeros(1))
    assert name == "openvino"
    assert 0 < seconds < 0.02
    asked = runtimes.open_model(str(path), "onnxruntime", "cpu", torch.zeros(1))
    assert asked[1:] == ("onnxruntime", None)


def test_an_export_without_its_packages_names_them(asked, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "onnx" else name)
    path = str(tmp_path / "models" / "m.onnx")
    with pytest.raises(LoopError, match=r"an export needs onnx .*pip install onnx"):
        _infer({**asked, "export": path})
    assert not Path(path).exists()


def test_the_next_batch_is_made_while_one_is_computed() -> None:
    made, is_next_made = [], threading.Event()

    def batches():
        for number in range(5):
            made.append(number)
            if number == 1:
                is_next_made.set()
            yield (number,)

    ahead = inference._ahead(batches())
    assert next(ahead) == (0,)
    assert is_next_made.wait(60)
    ahead.close()
    assert len(made) < 5
    assert "infer-ahead" not in {thread.name for thread in threading.enumerate()}


def test_an_error_while_a_batch_is_made_is_raised() -> None:
    def batches():
        yield (0,)
        raise LoopError("torn", "mend it")

    ahead = inference._ahead(batches())
    assert next(ahead) == (0,)
    with pytest.raises(LoopError, match="torn"):
        next(ahead)
