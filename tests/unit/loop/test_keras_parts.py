"""What of Keras' ranks needs no Keras: the order of samples, workers, what a strategy may be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from paceline.loop import order  # noqa: E402
from paceline.loop.keras import data, launch  # noqa: E402
from paceline.loop.parallel.notation import keras_refusals, parse  # noqa: E402

#: A worker: writes that it lives; the second one of the first life ends badly, after the first one
#: has written, which else is ended before it does on a busy machine.
WORKER = """
import json, os, signal, sys, time
place = json.loads(os.environ["TF_CONFIG"])
rank = place["task"]["index"]
assert os.environ["RANK"] == str(rank) and len(place["cluster"]["worker"]) == 2
folder = sys.argv[1]
open("%s/%d-%d" % (folder, rank, os.getpid()), "w").close()
if sys.argv[2] == "waits":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    open("%s/ready-%d" % (folder, rank), "w").close()
    time.sleep(60)
elif rank == 1 and len([one for one in os.listdir(folder) if one[:2] == "1-"]) == 1:
    while not [one for one in os.listdir(folder) if one[:2] == "0-"]:
        time.sleep(0.05)
    sys.exit(3)
elif rank == 0 and len([one for one in os.listdir(folder) if one[:2] == "0-"]) == 1:
    time.sleep(60)
"""


def _command(folder: Path, restarts: int, how: str) -> list[str]:
    program = [sys.executable, "-c", WORKER, str(folder), how]
    return [sys.executable, launch.__file__, "2", str(restarts), *program]


def _lives(folder: Path, rank: int) -> int:
    return len(list(folder.glob(f"{rank}-*")))


@pytest.mark.parametrize("restarts", [0, 1])
def test_all_workers_start_again_when_one_is_lost(tmp_path: Path, restarts: int) -> None:
    ended = subprocess.run(_command(tmp_path, restarts, "fails"), check=False, timeout=50)
    assert ended.returncode == (0 if restarts else 3)
    assert [_lives(tmp_path, rank) for rank in (0, 1)] == [restarts + 1] * 2


def test_a_signal_reaches_every_worker_and_starts_nothing_again(tmp_path: Path) -> None:
    started = subprocess.Popen(_command(tmp_path, 3, "waits"))
    while len(list(tmp_path.glob("ready-*"))) < 2:
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    assert started.wait(50) == 7
    assert [_lives(tmp_path, rank) for rank in (0, 1)] == [1, 1]


def test_workers_share_out_the_devices() -> None:
    places = ["a:1", "b:2"]
    found = [launch.environment_of(k, places, {"CUDA_VISIBLE_DEVICES": "4,6"}) for k in (0, 1)]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in found] == ["4", "6"]
    task = json.loads(found[1]["TF_CONFIG"])
    assert task == {"cluster": {"worker": places}, "task": {"type": "worker", "index": 1}}


@pytest.mark.parametrize("count", [1, 2, 97, 4096])
def test_arrays_and_tensors_stand_in_one_order(count: int) -> None:
    found = order.permuted(np.arange(count), count, seed=5, epoch=3)
    assert found.tolist() == order.permuted(torch.arange(count), count, 5, 3).tolist()
    assert sorted(found.tolist()) == list(range(count))


@pytest.mark.parametrize("text", ["fsdp2", "tp2", "pp2", "dp2+zero1", "dp2/mb4", "dp2.fsdp2"])
def test_keras_runs_data_parallel_alone(text: str) -> None:
    assert keras_refusals(parse(text))
    assert not keras_refusals(parse("dp4"), "bf16")
    assert keras_refusals(parse("dp4"), "fp8")


def test_generated_images_are_the_same_each_time() -> None:
    one, two = (data.Generated(20, 4, 8) for _ in range(2))
    for index in (0, 7):
        assert np.array_equal(one[index][0], two[index][0])
        assert one[index][1] == index % 4


def test_arrays_of_a_file_are_checked(tmp_path: Path) -> None:
    good, odd, other = (tmp_path / f"{name}.npz" for name in ("good", "odd", "other"))
    np.savez(good, x=np.zeros((3, 2)), y=np.array([0, 4, 1]))
    np.savez(odd, x=np.zeros((3, 2)), y=np.zeros(2))
    np.savez(other, inputs=np.zeros(3))
    assert (len(data.Arrays(str(good))), data.Arrays(str(good)).num_classes) == (3, 5)
    for path, words in ((odd, "3 inputs and 2 labels"), (other, "cannot be read")):
        with pytest.raises(data.LoopError, match=words):
            data.Arrays(str(path))
    other.write_bytes(b"no archive")
    with pytest.raises(data.LoopError, match="cannot be read"):
        data.Arrays(str(other))
