"""Launch files run for real, or judged by their targets' own validators."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from validators import harness

from paceline.deployment.deploying import deploy

from . import plans
from .settings_of_targets import PLANS, settings_for

pytestmark = pytest.mark.validators

TRAIN = '''\
"""Two ranks agree on a sum over gloo, and all stop with a checkpoint when one is told to."""
import os, signal, sys, time
import torch, torch.distributed as dist

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
assert total.item() == sum(range(1, dist.get_world_size() + 1))
print("rank", dist.get_rank(), "of", dist.get_world_size(), "agrees", sys.argv[1:], flush=True)
path = os.path.join(os.environ["CHECKPOINT_DIR"], "state")
done, steps = int(open(path).read()) if os.path.exists(path) else 0, int(sys.argv[1])
while done < steps:
    time.sleep(0.1)
    done += 1
    stop = torch.tensor([float(bool(told))])
    dist.all_reduce(stop)
    if stop.item():
        break
if dist.get_rank() == 0:
    open(path, "w").write(str(done))
print("rank", dist.get_rank(), "ends at", done, flush=True)
dist.barrier()
dist.destroy_process_group()
sys.exit(0 if done >= steps else 75)
'''


@pytest.mark.parametrize("target", harness.CHECKERS)
def test_whole_files_are_accepted_and_broken_ones_refused(target: str) -> None:
    if harness.python_of(target) is None:
        pytest.skip("make the environments with `PYTHONPATH=tools python -m validators`")
    payload = harness.payload_of(target, deploy(PLANS[target](), target, settings_for(target)))
    mutants = list(harness.broken(target, payload))
    whole, *answers = harness.complaints(target, [payload, *(b for _, b in mutants)])
    assert whole == []
    assert len(mutants) == 10
    assert [n for (n, _), answer in zip(mutants, answers, strict=True) if not answer] == []


@pytest.mark.parametrize("target", ["kubernetes", "jobset", "trainjob"])
@pytest.mark.parametrize("variant", ["gke-gpu", "gke-tpu"])
def test_the_variants_of_a_managed_cluster_are_accepted(target: str, variant: str) -> None:
    if harness.python_of(target) is None:
        pytest.skip("make the environments with `PYTHONPATH=tools python -m validators`")
    plan = plans.tpu(16) if variant == "gke-tpu" else plans.two_nodes(is_spot=True)
    made = deploy(plan, target, settings_for(target, variant=variant))
    assert harness.complaints(target, [harness.payload_of(target, made)]) == [[]]


def test_a_cluster_of_two_kinds_of_machines_is_accepted() -> None:
    if harness.python_of("sagemaker") is None:
        pytest.skip("make the environments with `PYTHONPATH=tools python -m validators`")
    options = {
        "role": "arn:aws:iam::123456789012:role/training",
        "data-instance-type": "ml.c5.18xlarge",
        "data-instances": "2",
        "data-command": "python serve_data.py --workers 64",
    }
    made = deploy(PLANS["sagemaker"](), "sagemaker", settings_for("sagemaker", options=options))
    assert harness.complaints("sagemaker", [harness.payload_of("sagemaker", made)]) == [[]]


def test_torchrun_trains_across_two_network_name_spaces(tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the program ip")
    (tmp_path / "train.py").write_text(TRAIN)
    settings = plans.training(command=("train.py", "3", "two words"), data=str(tmp_path),
                              checkpoints=str(tmp_path))  # fmt: skip
    made = deploy(plans.cpu(num_nodes=2), "torchrun", settings)
    (tmp_path / "launch.sh").write_text(made.files[0].text)
    with _two_spaces() as address:
        nodes = [_in_space(rank, address, tmp_path) for rank in (1, 0)]
        outputs = [_output(node) for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    assert "rank 0 of 2 agrees ['3', 'two words']" in outputs[1] + outputs[0]
    assert (tmp_path / "state").read_text() == "3"


HANDLER = '''\
"""Says how many requests came together."""


class Handler:
    def initialize(self, context):
        pass

    def handle(self, requests, context):
        return [str(len(requests))] * len(requests)
'''


def test_a_real_torchserve_gathers_the_planned_batch(tmp_path: Path) -> None:
    if shutil.which("torchserve") is None or shutil.which("java") is None:
        pytest.skip("needs the packages torchserve and torch-model-archiver, and Java, on the path")
    made = deploy(plans.cpu(), "torchserve", settings_for("torchserve"))
    folder, properties = tmp_path, made.files[1].text
    (folder / "config.properties").write_text(properties)
    (folder / "handler.py").write_text(HANDLER)
    found = dict(line.split("=", 1) for line in properties.splitlines())
    (name,) = json.loads(found["models"])
    subprocess.run(["torch-model-archiver", "--model-name", name, "--version", "1.0", "--handler",
                    "handler.py", "--export-path", "."], cwd=folder, check=True)  # fmt: skip
    server = subprocess.Popen(
        ["torchserve", "--start", "--foreground", "--no-config-snapshots", "--model-store=.",
         "--ts-config=config.properties"], cwd=folder, start_new_session=True,
    )  # fmt: skip
    port = found["inference_address"].rpartition(":")[2]
    try:
        _wait_for(lambda: _posted(f"http://127.0.0.1:{port}/predictions/{name}") == "1")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=30)


def _posted(address: str) -> str:
    """What a server answers; nothing while it does not."""
    try:
        with urllib.request.urlopen(address, data=b"x", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Slurm of two nodes on the loopback."""
    if not harness.has_slurm():
        pytest.skip("needs root and the packages slurm-wlm and munge")
    folder = tmp_path_factory.mktemp("slurm")
    with harness.slurm(folder):
        yield folder


def test_a_real_slurm_runs_the_job_and_a_told_one_resumes(cluster: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "job.sbatch").write_text(_sbatch(tmp_path, num_steps=60))
    job = _slurm(cluster, tmp_path, "sbatch", "--parsable", "job.sbatch").strip()
    output = tmp_path / f"resnet50-train-{job}.out"
    _wait_for(lambda: output.exists() and output.read_text().count("agrees") == 2)
    _slurm(cluster, tmp_path, "scancel", "--signal=TERM", "--batch", job)
    _wait_for(lambda: output.read_text().count("ends at") == 2)
    saved = int((tmp_path / "state").read_text())
    assert 0 < saved < 60
    _wait_for(lambda: "PENDING" in _slurm(cluster, tmp_path, "scontrol", "show", "job", job))
    # Slurm revokes the credential of a job that starts in the second in which it was told to end.
    _slurm(cluster, tmp_path, "scontrol", "update", f"JobId={job}", "StartTime=now+5")
    _wait_for(lambda: (tmp_path / "state").read_text() == "60", seconds=90)
    _wait_for(lambda: "COMPLETED" in _slurm(cluster, tmp_path, "scontrol", "show", "job", job))


def test_slurm_itself_refuses_ten_broken_files(cluster: Path, tmp_path: Path) -> None:
    whole = _sbatch(tmp_path, num_steps=1)
    broken = list(harness.broken_texts("slurm", whole))
    assert len(broken) == 10
    (tmp_path / "job.sbatch").write_text(whole)
    assert _accepts(cluster, tmp_path)
    for name, text in broken:
        (tmp_path / "job.sbatch").write_text(text)
        assert not _accepts(cluster, tmp_path), name


def _sbatch(folder: Path, *, num_steps: int) -> str:
    settings = plans.training(
        command=("train.py", str(num_steps)), data=str(folder), checkpoints=str(folder),
        options={"venv": sys.prefix, "partition": "test"},
    )  # fmt: skip
    return deploy(plans.cpu(num_nodes=2), "slurm", settings).files[0].text


def _accepts(cluster: Path, folder: Path) -> bool:
    try:
        _slurm(cluster, folder, "sbatch", "--test-only", "job.sbatch")
    except subprocess.CalledProcessError:
        return False
    return True


def _slurm(cluster: Path, folder: Path, *words: str) -> str:
    environment = os.environ | {"SLURM_CONF": str(cluster / "slurm.conf")}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def _wait_for(condition, *, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.3)


class _two_spaces:  # noqa: N801
    """Two network name spaces joined by one cable; gives the address of the first."""

    names = ("paceline0", "paceline1")

    def __enter__(self) -> str:
        _ip("link", "add", "pl0", "type", "veth", "peer", "name", "pl1")
        for rank, name in enumerate(self.names):
            _ip("netns", "add", name)
            _ip("link", "set", f"pl{rank}", "netns", name)
            _ip("-n", name, "addr", "add", f"10.99.0.{rank + 1}/24", "dev", f"pl{rank}")
            _ip("-n", name, "link", "set", f"pl{rank}", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        return "10.99.0.1"

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _output(node: subprocess.Popen[str]) -> str:
    try:
        return node.communicate(timeout=60)[0]
    finally:
        node.kill()


def _in_space(rank: int, address: str, folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {
        "HEAD_ADDRESS": address,
        "NODE_RANK": str(rank),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "GLOO_SOCKET_IFNAME": f"pl{rank}",
    }
    words = ["ip", "netns", "exec", f"paceline{rank}", "sh", "launch.sh"]
    return subprocess.Popen(
        words, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
