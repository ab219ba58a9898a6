"""Launch files of plans run as written by torchrun and a real Slurm, with commands as typed.

The script of a rank says what it was given and needs no framework, so that eight of them are light.
``accelerate`` and ``uv`` are tried where they are on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from validators import harness

from paceline.deployment.deploying import deploy
from paceline.deployment.program import split_command
from paceline.planfile import PlanFile

from . import plans

pytestmark = pytest.mark.validators

SCRIPT = """\
import os, sys
names = "RANK WORLD_SIZE LOCAL_RANK FOO PACELINE_STRATEGY PACELINE_BATCH_PER_DEVICE".split()
alone = {"RANK": "0", "WORLD_SIZE": "1"}  # Accelerate tells a single process nothing.
words = [os.environ.get(name, alone.get(name, "")) for name in names] + sys.argv[1:]
with open(os.path.join(os.environ["CHECKPOINT_DIR"], "rank" + words[0]), "w") as file:
    file.write("|".join(words))
"""
COMMANDS = {
    "python train.py 1 'two words'": "",
    "python -u train.py 1 'two words'": "",
    "FOO=1 python train.py 1 'two words'": "1",
    "bash -c 'python train.py 1 \"two words\"'": "",
    "torchrun --nproc_per_node 3 train.py 1 'two words'": "",
    "accelerate launch train.py 1 'two words'": "",
    "FOO=1 uv run --no-project --active python train.py 1 'two words'": "1",
}


def one_device() -> PlanFile:
    return plans.plan(
        plans.choice(place=plans.place(devices_per_node=1), num_devices=1, strategy="dp1")
    )


def two_by_two() -> PlanFile:
    return plans.plan(
        plans.choice(
            place=plans.place(num_nodes=2, devices_per_node=2), num_devices=4, strategy="dp4"
        )
    )


#: A plan, its machines and the ranks of each.
PLANS = {
    "one GPU": (one_device, 1, 1),
    "a machine of eight": (plans.plan, 1, 8),
    "two machines": (two_by_two, 2, 2),
    "a CPU": (plans.cpu, 1, 1),
}
#: However busy the machine is.
_LIMIT_S = 900
every_plan = pytest.mark.parametrize("named", PLANS)
every_command = pytest.mark.parametrize("command", COMMANDS)


@every_plan
@every_command
def test_torchrun_starts_every_rank(command: str, named: str, tmp_path: Path) -> None:
    made, nodes, ranks = PLANS[named]
    _needs(command)
    (tmp_path / "launch.sh").write_text(_files(made(), "torchrun", command, tmp_path))
    started = [
        subprocess.Popen(
            ["sh", "launch.sh"], cwd=tmp_path, text=True, stderr=subprocess.PIPE,
            env=_variables() | {"HEAD_ADDRESS": "127.0.0.1", "NODE_RANK": str(rank)},
        )
        for rank in range(nodes)
    ]  # fmt: skip
    said = [one.communicate(timeout=_LIMIT_S)[1] for one in started]
    assert [one.returncode for one in started] == [0] * nodes, said
    _expect(tmp_path, made(), nodes * ranks, COMMANDS[command])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A Slurm of two nodes that say they have what the plans ask for."""
    if not harness.has_slurm():
        pytest.skip("needs root and the packages slurm-wlm and munge")
    folder = tmp_path_factory.mktemp("slurm")
    with harness.slurm(folder, SLURM_NODE="CPUs=128 RealMemory=2000000 Gres=gpu:8"):
        yield folder


@every_plan
@every_command
def test_slurm_starts_every_rank(command: str, named: str, cluster: Path, tmp_path: Path) -> None:
    made, nodes, ranks = PLANS[named]
    _needs(command)
    text = _files(made(), "slurm", command, tmp_path, venv=sys.prefix, partition="test")
    (tmp_path / "job.sbatch").write_text(text)
    job = _slurm(cluster, tmp_path, "sbatch", "--parsable", "job.sbatch").strip()
    end, state = time.monotonic() + _LIMIT_S, ""
    while "COMPLETED" not in state:
        assert time.monotonic() < end, state
        assert "FAILED" not in state, (tmp_path / f"resnet50-train-{job}.out").read_text()
        time.sleep(1)
        with suppress(subprocess.CalledProcessError):  # A busy controller does not answer.
            state = _slurm(cluster, tmp_path, "scontrol", "show", "job", job)
    _expect(tmp_path, made(), nodes * ranks, COMMANDS[command])


def _needs(command: str) -> None:
    for program in ("accelerate", "uv"):
        if f"{program} " in command and shutil.which(program) is None:
            pytest.skip(f"needs {program} on the path")


def _files(plan: PlanFile, target: str, command: str, folder: Path, **options: str) -> str:
    (folder / "train.py").write_text(SCRIPT)
    settings = plans.training(
        command=split_command(command), data=str(folder), checkpoints=str(folder), options=options
    )
    return deploy(plan, target, settings).files[0].text


def _expect(folder: Path, plan: PlanFile, num_ranks: int, foo: str) -> None:
    """Each rank was started once, and read what the plan says."""
    found = [path.read_text().split("|") for path in folder.glob("rank*")]
    assert sorted(int(words[0]) for words in found) == list(range(num_ranks))
    assert {words[1] for words in found} == {str(num_ranks)}
    chosen = plan.choices[0]
    for words in found:
        assert words[3:] == [foo, chosen.strategy, str(chosen.batch_per_device), "1", "two words"]


def _variables() -> dict[str, str]:
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _slurm(cluster: Path, folder: Path, *words: str) -> str:
    done = subprocess.run(
        words, cwd=folder, env=_variables() | {"SLURM_CONF": str(cluster / "slurm.conf")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout
