"""Small real scripts on an NVIDIA GPU: what is captured of them, and what diagnosis sees there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.watch.watched import WORKERS, observed, script

import paceline
from paceline.watch.captured import CapturedJob, read_capture
from paceline.watch.diagnosis.diagnosing import diagnosis_of, try_in_script
from paceline.watch.folder import new_run

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")


def captured(folder: Path, *words: str) -> CapturedJob:
    ended, _ = observed(folder, *script("on_a_gpu.py", *words, "--steps", "40"))
    assert ended.status == 0, ended.err.decode()
    job, _ = read_capture(folder)
    assert job is not None
    return job


@pytest.mark.parametrize(
    ("words", "precision", "note"),
    [
        (("--precision", "fp32"), "fp32", "float32"),
        (("--precision", "fp16"), "fp16", "autocast float16 over float32"),
        (("--precision", "bf16"), "bf16", "autocast bfloat16 over float32"),
        (("--precision", "half"), "fp16", "weights in float16"),
        (("--precision", "pure-bf16"), "bf16", "weights in bfloat16"),
        (("--precision", "fp16", "--channels-last"), "fp16", "autocast float16 over float32"),
    ],
)
def test_precision_is_read_of_a_script_on_a_gpu(tmp_path, words, precision, note):
    job = captured(tmp_path, "conv", "--size", "32", "--batch", "8", *words)
    assert (job.precision, job.precision_note) == (precision, note)
    assert (job.batch, job.optimizer, job.compiler) == (8, "adamw", "eager")
    assert job.microbatches == 1  # A scaler leaves first steps out: none is a microbatch.
    assert job.why_untraced == ""


def test_a_compiled_script_is_read(tmp_path: Path):
    job = captured(tmp_path, "mlp", "--batch", "16", "--precision", "bf16", "--compiled")
    assert (job.compiler, job.precision, job.batch) == ("compiled", "bf16", 16)
    assert job.why_untraced == ""


def tried(folder: Path, *words: str, limit_s: float = 5.0) -> Any:
    run = new_run(script("on_a_gpu.py", *words), folder=folder)
    return diagnosis_of(run, *try_in_script(run, limit_s=limit_s))


def test_a_host_that_is_too_slow_for_its_gpu_is_named(tmp_path: Path):
    said = tried(tmp_path, "mlp", "--batch", "8")
    assert said.gpu is not None
    assert said.gpu.idle_s > 0.5 * said.gpu.step_s
    assert said.gpu.num_launches > 50
    assert "host-bound" in [one.kind for one in said.causes]


def test_a_gpu_that_computes_all_the_time_is_left_alone(tmp_path: Path):
    said = tried(tmp_path, "conv", "--batch", "256", "--on-the-device")
    gpu = said.gpu
    assert gpu is not None
    parts_s = gpu.compute_s + gpu.communication_s + gpu.copies_s + gpu.idle_s
    assert parts_s == pytest.approx(gpu.step_s)
    assert gpu.compute_s > 0.8 * gpu.step_s
    assert gpu.pageable_s == 0.0
    assert not {"host-bound", "item"} & {one.kind for one in said.causes}


def test_copies_from_pageable_memory_are_seen(tmp_path: Path):
    said = tried(tmp_path, "conv", "--batch", "64")
    assert said.gpu is not None
    assert said.gpu.pageable_s > 0.0
    assert said.gpu.copies_s > 0.0


#: Two ranks exchange by NCCL also where both have the same GPU, if each is told another host.
_EXCHANGES = """
import os, torch
rank = int(os.environ["LOCAL_RANK"])
if torch.cuda.device_count() < 2:
    os.environ.update(NCCL_HOSTID=f"host{rank}", NCCL_MULTI_RANK_GPU_ENABLE="1")
torch.cuda.set_device(rank % torch.cuda.device_count())
torch.distributed.init_process_group("nccl")
layers = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(8)])
model = torch.nn.parallel.DistributedDataParallel(layers.cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for x in torch.utils.data.DataLoader(torch.randn(1 << 20, 1), batch_size=8):
    loss = model(x.cuda().expand(-1, 4096)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_an_exchange_that_nothing_hides_is_seen(tmp_path: Path):
    (tmp_path / "train.py").write_text(_EXCHANGES)
    ranks = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    run = new_run([sys.executable, "-m", *ranks, str(tmp_path / "train.py")], folder=tmp_path)
    said = diagnosis_of(run, *try_in_script(run, limit_s=10.0))
    # Half a gigabyte of gradients for eight samples: hardly anything runs beside it.
    assert said.gpu is not None
    assert said.gpu.communication_s > 0.3 * said.gpu.step_s
    assert "all-reduce" in [one.kind for one in said.causes]


def cli(
    folder: Path, *words: str, timeout_s: float = 120.0, runs: Path | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paceline", *words]
    environment = {**os.environ, "PACELINE_TRACE_WORKERS": str(WORKERS)}
    if runs is not None:
        environment["PACELINE_RUNS"] = str(runs)
    source = str(Path(paceline.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join([source, environment.get("PYTHONPATH", "")])
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=folder,
        timeout=timeout_s,
    )  # fmt: skip


_FILLS = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(16)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for x in torch.utils.data.DataLoader(torch.randn(1 << 21, 1), batch_size=1 << 20):
    loss = model(x.cuda().expand(-1, 4096)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_out_of_memory_is_told_by_owners_with_the_batch_that_fits(tmp_path: Path):
    (tmp_path / "train.py").write_text(_FILLS)
    found = cli(tmp_path, "run", "--runs", "runs", "--", sys.executable, "train.py")
    assert found.returncode == 1
    assert "OutOfMemoryError" in found.stderr
    said = found.stderr.partition("ran out of memory in forward of step 1")[2]
    assert "predicted: weights 1.07 GB, optimizer 2.15 GB" in said
    assert re.search(r"batch \d+ fits", said)


def test_doctor_looks_at_the_gpu(tmp_path: Path):
    found = cli(tmp_path, "doctor", "--json")
    answer = json.loads(found.stdout)
    assert found.returncode in (0, 1)
    assert answer


def test_a_run_here_is_a_measurement(tmp_path: Path):
    words = script("on_a_gpu.py", "conv", "--size", "64", "--steps", "300", "--on-the-device")
    assert cli(tmp_path, "run", "--runs", "runs", "--", *words).returncode == 0
    learned = ("calibrate", "--run", next((tmp_path / "runs").iterdir()).name, "--out", "own.json")
    found = cli(tmp_path, *learned, runs=tmp_path / "runs")
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "own.json").exists()


_IDLES = """
import time, torch
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for x in torch.utils.data.DataLoader(torch.randn(640, 64), batch_size=8):
    model(x.cuda()).square().mean().backward()
    optimizer.step()
time.sleep(100)
"""


def test_a_job_whose_gpu_does_nothing_is_ended(tmp_path: Path):
    words = ("run", "--stop-idle", "10s", "--runs", "runs", "--", sys.executable, "-c", _IDLES)
    found = cli(tmp_path, *words)
    assert found.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert "no GPU ran anything" in found.stderr
