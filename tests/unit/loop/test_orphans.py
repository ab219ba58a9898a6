"""Data workers of a trainer that is killed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.sampled import sampled

from warm_workers import WORKERS

TRAINER = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
import paceline.loop as loop

class Pids(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor(os.getpid())

if __name__ == "__main__":
    model = torch.nn.Linear(1, 1)
    loader = DataLoader(Pids(), batch_size=2, num_workers=1, multiprocessing_context=sys.argv[1])
    for batch in loop.resume(loader, folder=sys.argv[2], model=model):
        print(int(batch[0]), flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("context", sampled(["fork", "forkserver"], "fork"))
def test_no_worker_outlives_its_trainer(context: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "talk").open("w+") as talk:
        trainer = WORKERS.start_script(script, context, tmp_path / "saves", talk=talk, env=env)
    with trainer.stdin, trainer.stdout as said:
        worker = int(said.readline())
    assert runs(worker)
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.wait()
    end = time.monotonic() + 60
    while runs(worker):
        assert time.monotonic() < end
        time.sleep(0.1)


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
