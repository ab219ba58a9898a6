"""Keras models in Keras' own data parallelism, killed and taken up again on other devices.

Needs ``PACELINE_KERAS_JAX`` and ``PACELINE_KERAS_TENSORFLOW``, Pythons with Keras and safetensors.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import paceline
from paceline.watch.captured import read_capture
from paceline.watch.events import read_run

SOURCE = Path(paceline.__file__).parents[1]
LAUNCH = SOURCE / "paceline" / "loop" / "keras" / "launch.py"
SCRIPT = Path(__file__).parent / "keras_run.py"
#: Steps of an undisturbed run: four epochs of six whole batches.
STEPS = 24
#: Places where a run is taken up: devices of one process, or ``w``, workers of TensorFlow.
CHAINS = {"jax": ["dp1", "dp2", "dp4", "dp1"], "tensorflow": ["dp1", "dp2", "w2", "dp1"]}

pytestmark = pytest.mark.stacks
BACKENDS = pytest.mark.parametrize("backend", ["jax", "tensorflow"])


def _python(backend: str) -> str:
    python = os.environ.get(f"PACELINE_KERAS_{backend.upper()}")
    if python is None:
        pytest.skip(f"needs PACELINE_KERAS_{backend.upper()}, a Python with Keras on it")
    return python


def run(
    backend: str, place: str, out: Path, saves: Path, restarts: int = 0, **options: object
) -> tuple[int, list[list[float]], str]:
    """Status, what Keras told of each step, and what was printed."""
    python, workers = _python(backend), int(place[1:]) if place[0] == "w" else 1
    launcher = [str(LAUNCH), str(workers), str(restarts), python] if workers > 1 else []
    strategy = f"dp{workers}" if workers > 1 else place
    quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [python, *launcher, str(SCRIPT), backend, strategy, str(out), str(saves),
         json.dumps(options)],
        env={**os.environ, **quiet, "PYTHONPATH": str(SOURCE)},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    lines = out.read_text().splitlines() if out.exists() else []
    return found.returncode, [json.loads(one) for one in lines], found.stdout + found.stderr


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[float]]]:
    """Of each backend, on one device."""
    folder = tmp_path_factory.mktemp("undisturbed")
    found = {}
    for backend in CHAINS:
        if os.environ.get(f"PACELINE_KERAS_{backend.upper()}"):
            status, found[backend], said = run(backend, "dp1", folder / backend, folder / "s")
            assert (status, len(found[backend])) == (0, STEPS), said
            (folder / "s").rename(folder / f"s-{backend}")
    return found


def taken_up_at(said: str) -> int:
    """The step after which a run went on, as it said; 0 from the beginning."""
    found = re.findall(r"goes on after step (\d+) ", said)
    return int(found[-1]) if found else 0


def difference(found: list[list[float]], wanted: list[list[float]]) -> float:
    """Largest difference of a loss or a metric of the same steps."""
    return max(
        abs(a - b) for x, y in zip(found, wanted, strict=True) for a, b in zip(x, y, strict=True)
    )


@BACKENDS
def test_killed_runs_go_on_on_other_devices(tmp_path: Path, backend: str, undisturbed) -> None:
    """SIGKILL loses what no save has; SIGTERM loses nothing."""
    _python(backend)
    wanted, saves, done = undisturbed[backend], tmp_path / "saves", 0
    ends = [signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, None]
    for number, (place, end) in enumerate(zip(CHAINS[backend], ends, strict=True)):
        more = {} if end is None else {"ends_at": 7, "signal": int(end)}
        status, found, said = run(backend, place, tmp_path / f"{number}", saves, **more)
        begin = taken_up_at(said)
        assert (status == 0) == (end is None), said
        assert difference(found, wanted[begin : begin + len(found)]) <= 1e-5
        assert begin == done or (begin < done and ends[number - 1] == signal.SIGKILL)
        done = begin + len(found)
    assert done == STEPS
    status, found, said = run(backend, "dp1", tmp_path / "again", saves)
    assert (status, found) == (0, []), said


@BACKENDS
def test_what_layers_draw_goes_on_on_the_same_devices(tmp_path: Path, backend: str) -> None:
    _, wanted, _ = run(backend, "dp2", tmp_path / "a", tmp_path / "alone", drops=True)
    run(backend, "dp2", tmp_path / "b", tmp_path / "saves", drops=True, ends_at=8, signal=15)
    status, found, said = run(backend, "dp2", tmp_path / "c", tmp_path / "saves", drops=True)
    assert status == 0, said
    assert difference(found, wanted[8:]) <= 1e-5


def test_a_worker_is_killed_and_all_start_again(tmp_path: Path, undisturbed) -> None:
    _python("tensorflow")
    wanted = undisturbed["tensorflow"]
    status, found, said = run(
        "tensorflow", "w2", tmp_path / "out", tmp_path / "saves", restarts=1, ends_at=8, rank=1
    )
    assert status == 0, said
    assert "all start again" in said
    begin = taken_up_at(said)
    first = len(found) - (STEPS - begin)
    assert begin <= first < STEPS
    assert difference(found[:first], wanted[:first]) <= 1e-5
    assert difference(found[first:], wanted[begin:]) <= 1e-5


@BACKENDS
def test_a_damaged_save_is_named_and_the_one_before_taken(tmp_path: Path, backend: str) -> None:
    saves = tmp_path / "saves"
    run(backend, "dp1", tmp_path / "a", saves, ends_at=8, signal=15)
    newest = max(saves.glob("step-*"))
    file = newest / "state.safetensors"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    status, _, said = run(backend, "dp1", tmp_path / "b", saves)
    assert status == 0
    assert f"{newest} is refused: state.safetensors is damaged" in said
    assert taken_up_at(said) < 8


@BACKENDS
def test_a_finished_run_gives_its_weights(tmp_path: Path, backend: str) -> None:
    _, _, first = run(backend, "dp1", tmp_path / "a", tmp_path / "saves", sum=True)
    _, steps, second = run(backend, "dp2", tmp_path / "b", tmp_path / "saves", sum=True)
    assert not steps
    (one,), (two,) = (re.findall(r"^SUM (.*)$", said, re.M) for said in (first, second))
    assert one == two


@BACKENDS
def test_a_run_that_a_callback_ended_is_over(tmp_path: Path, backend: str) -> None:
    _, first, _ = run(backend, "dp1", tmp_path / "a", tmp_path / "saves", stops_after=1)
    status, second, said = run(backend, "dp1", tmp_path / "b", tmp_path / "saves")
    assert (len(first), status, second) == (12, 0, [])
    assert "a callback ended the run after epoch 1" in said


@BACKENDS
def test_what_would_train_wrongly_is_refused(tmp_path: Path, backend: str) -> None:
    for place, more, words in (
        ("dp2", {"batch": 15}, "does not divide among 2 devices"),
        ("fsdp2", {}, "keeps the whole model on each device"),
        ("dp1", {"batch": 101}, "make no batch of 101"),
    ):
        status, _, said = run(backend, place, tmp_path / "out", tmp_path / "saves", **more)
        assert status == 1
        assert words in said
    run(backend, "dp1", tmp_path / "out", tmp_path / "s", ends_at=5, signal=15)
    status, _, said = run(backend, "dp1", tmp_path / "b", tmp_path / "s", classes=5)
    assert status == 1
    assert "has shape" in said


@pytest.mark.parametrize(
    ("backend", "how"),
    [("jax", {"devices": 2}), ("tensorflow", {"devices": 2}), ("tensorflow", {"processes": 2})],
)
def test_train_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, how: dict[str, int]
) -> None:
    """The job, its ranks and every step stand in the run folder."""
    (tmp_path / "net.py").write_text(
        "import keras\n\ndef make():\n"
        "    model = keras.Sequential([keras.Input((6, 6, 3)), keras.layers.Flatten(),\n"
        "        keras.layers.Dense(10)])\n"
        "    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)\n"
        "    model.compile(keras.optimizers.SGD(0.01), loss)\n"
        "    return model\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    ended = paceline.train(
        "net:make", framework=backend, data="generated", samples=40, batch=4, epochs=2,
        saves=tmp_path / "saves", python=_python(backend), runs=tmp_path / "runs", **how,
    )  # fmt: skip
    assert ended.status == 0
    (folder,) = (tmp_path / "runs").iterdir()
    events = read_run(folder)
    assert not events.failures()
    assert {len(rank.steps) for rank in events.training} == {10}
    assert len(events.training) == how.get("processes", 1)
    job, _ = read_capture(folder)
    assert job is not None
    assert (job.batch, job.world_size, job.optimizer) == (4, 2, "sgd")
