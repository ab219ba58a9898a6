"""Commands that train, as their own programs expect them: the shell of the files really runs.

Programs on the path are stand-ins that note their words and what a rank would read.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.deployment.deploying import deploy
from paceline.deployment.program import read_program, split_command
from paceline.errors import InvalidInputError, MissingFactError

from . import plans
from .settings_of_targets import PLANS, settings_for

PROGRAMS = ("torchrun", "accelerate", "deepspeed", "uv", "python", "python3", "scontrol", "scancel")
NOTE = """#!/bin/sh
if [ "$1" = -c ]; then echo 10.0.0.1; exit 0; fi
if [ "${0##*/}" = scontrol ]; then echo node-0; exit 0; fi
for word in "$@"; do
  case $word in --hostfile=*) cat "${word#--hostfile=}" > hosts;; esac
done
echo "FOO=${FOO-}" > seen
printf '%s\\n' "${0##*/}" "$@" >> seen
"""
SRUN = """#!/bin/sh
while [ "$1" != sh ]; do shift; done
exec "$@"
"""


def ran(text: str, *, target: str = "torchrun", plan=None, folder: Path) -> list[str]:
    """What the first program was given, with FOO as a rank sees it."""
    settings = settings_for(target, command=split_command(text))
    made = deploy(plan or plans.plan(), target, settings)
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name in (*PROGRAMS, "srun"):
        (bin_folder / name).write_text(SRUN if name == "srun" else NOTE)
        (bin_folder / name).chmod(0o755)
    (folder / "train.py").touch()
    (folder / "script").write_text(made.files[0].text)
    variables = {
        "PATH": f"{bin_folder}:{os.environ['PATH']}", "DATA_DIR": "d", "CHECKPOINT_DIR": "c",
        "HEAD_ADDRESS": "10.0.0.1", "NODE_RANK": "1", "SLURM_JOB_NODELIST": "n",
        "SLURM_JOB_ID": "1", "SLURM_NODEID": "1",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "script"], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return (folder / "seen").read_text().splitlines()


@pytest.mark.parametrize("target", ["torchrun", "slurm"])
@pytest.mark.parametrize(
    ("command", "foo", "program", "behind"),
    [
        ("python train.py 1", "", "torchrun", ["train.py", "1"]),
        ("python3 train.py 1", "", "torchrun", ["train.py", "1"]),
        ("python -u train.py 1", "", "torchrun", ["train.py", "1"]),
        ("python -m mine.train 1", "", "torchrun", ["-m", "mine.train", "1"]),
        ("python -O train.py", "", "torchrun", ["--no-python", "python", "-O", "train.py"]),
        ("FOO=1 python train.py", "1", "torchrun", ["train.py"]),
        ("env FOO=1 python train.py", "1", "torchrun", ["train.py"]),
        ("bash -c 'python train.py'", "", "torchrun",
         ["--no-python", "bash", "-c", "python train.py"]),
        ("torchrun --nproc_per_node 2 --log-dir x train.py 1", "", "torchrun",
         ["--log-dir", "x", "train.py", "1"]),
        ("python -m torch.distributed.run train.py", "", "torchrun", ["train.py"]),
        ("accelerate launch train.py 1", "", "accelerate", ["train.py", "1"]),
        ("accelerate launch --num_processes 3 --zero_stage 2 train.py", "", "accelerate",
         ["--zero_stage", "2", "train.py"]),
        ("deepspeed --num_gpus 2 train.py --deepspeed ds.json", "", "deepspeed",
         ["train.py", "--deepspeed", "ds.json"]),
        ("FOO=1 uv run --with numpy train.py", "1", "uv", ["train.py"]),
        ("uv run python -u train.py 1", "", "uv", ["train.py", "1"]),
        ("uv run accelerate launch train.py", "", "uv", ["train.py"]),
    ],
)  # fmt: skip
def test_a_command_comes_out_as_its_program_expects(
    command: str, foo: str, program: str, behind: list[str], target: str, tmp_path: Path
) -> None:
    for plan in (plans.plan(), plans.two_nodes()):
        variable, first, *words = ran(command, target=target, plan=plan, folder=tmp_path)
        assert variable == f"FOO={foo}"
        assert first == program
        assert words[-len(behind) :] == behind
        assert words[-len(behind) - 1] not in ("--nproc_per_node", "--num_processes", "-u")
        assert "-u" not in words


def test_ranks_and_meeting_are_the_plan_s(tmp_path: Path) -> None:
    def words(command: str) -> list[str]:
        return ran(command, plan=plans.two_nodes(), folder=tmp_path)

    assert {"--nnodes=2", "--nproc-per-node=8"} <= set(words("torchrun --nnodes 9 train.py"))
    accelerate = words("accelerate launch --num_machines=9 train.py")
    assert {"--num_machines=2", "--num_processes=16", "--multi_gpu"} <= set(accelerate)
    assert {"--machine_rank=1", "--main_process_ip=10.0.0.1"} <= set(accelerate)
    assert {"--mixed_precision=bf16", "--dynamo_backend=inductor"} <= set(accelerate)
    assert "--num_machines=9" not in accelerate
    deepspeed = words("deepspeed train.py")
    assert {"--no_ssh", "--node_rank=1", "--master_addr=10.0.0.1"} <= set(deepspeed)
    hosts = (tmp_path / "hosts").read_text().split("\n")
    assert hosts == ["machine-0 slots=8", "machine-1 slots=8", ""]
    assert words("uv run --with numpy train.py")[2:5] == ["run", "--with", "numpy"]
    assert words("uv run train.py")[3] == "torchrun"


def test_what_the_user_says_of_precision_stays(tmp_path: Path) -> None:
    said = ran("accelerate launch --mixed_precision no train.py", folder=tmp_path)
    assert said.count("--mixed_precision") == 1
    assert "--mixed_precision=bf16" not in said


def test_options_that_the_plan_decides_are_named_as_assumed() -> None:
    settings = plans.training(command=split_command("torchrun --nproc_per_node 2 train.py"))
    made = deploy(plans.plan(), "torchrun", settings)
    assert any("in place of --nproc_per_node 2" in one for one in made.assumptions)


@pytest.mark.parametrize(
    "command", ["python", "python -u", "FOO=1", "torchrun --nnodes 2", "uv run", "python -m",
                "accelerate launch"],
)  # fmt: skip
def test_a_command_without_a_script_is_refused(command: str) -> None:
    with pytest.raises(MissingFactError, match="names no script"):
        read_program(split_command(command))


@pytest.mark.parametrize("command", ["python a.py && echo done", "cd x; python a.py", "a | b"])
def test_words_of_a_shell_are_refused(command: str) -> None:
    with pytest.raises(InvalidInputError, match="for a shell") as caught:
        split_command(command)
    assert "bash -c" in caught.value.hint


@pytest.mark.parametrize("command", ["mpirun -n 8 python a.py", "srun python a.py"])
def test_what_starts_ranks_by_itself_is_refused(command: str) -> None:
    with pytest.raises(InvalidInputError, match="by itself"):
        read_program(split_command(command))


@pytest.mark.parametrize("target", ["rayjob", "azureml", "trainjob"])
def test_a_target_that_starts_ranks_takes_no_launcher(target: str) -> None:
    settings = settings_for(target, command=("accelerate", "launch", "train.py"))
    with pytest.raises(InvalidInputError, match="does by itself"):
        deploy(PLANS[target](), target, settings)


def test_a_script_reads_the_batch_of_one_pass() -> None:
    accumulated = plans.choice(batch_per_device=1536, microbatches=4, global_batch=12288)
    text = deploy(plans.plan(accumulated), "torchrun", plans.training()).files[0].text
    assert "PACELINE_BATCH_PER_DEVICE=384\n" in text
    assert "PACELINE_MICROBATCHES=4\n" in text


def test_every_target_says_that_the_script_runs_the_strategy() -> None:
    for target in ("torchrun", "slurm", "kubernetes", "docker", "skypilot", "sagemaker"):
        made = deploy(PLANS[target](), target, settings_for(target))
        assert any("train.py itself runs dp" in one for one in made.assumptions), target


def test_a_job_that_is_not_where_its_code_is_stops_with_a_word(tmp_path: Path) -> None:
    text = deploy(plans.plan(), "torchrun", plans.training()).files[0].text
    (tmp_path / "launch.sh").write_text(text)
    done = subprocess.run(
        ["sh", "launch.sh"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "train.py is not in this folder" in done.stderr


def test_slurm_saves_within_its_time_and_does_not_queue_for_ever() -> None:
    made = deploy(plans.plan(), "slurm", plans.training(options={"wall-time": "30min"}))
    text = made.files[0].text
    (line,) = [line for line in text.splitlines() if "CHECKPOINT_INTERVAL_S" in line]
    assert int(line.rpartition("=")[2]) <= 30 * 60 - 120
    # Two hours of work in pieces of half an hour, and three lost machines.
    assert 'if [ "${SLURM_RESTART_COUNT:-0}" -ge 7 ]' in text


def test_slurm_asks_for_the_type_of_gpu_or_says_that_it_does_not_know_it() -> None:
    plain = deploy(plans.plan(), "slurm", plans.training())
    assert any("--set gpu-type" in need for need in plain.needs)
    typed = deploy(plans.plan(), "slurm", plans.training(options={"gpu-type": "a100"}))
    assert "--gpus-per-node=a100:8\n" in typed.files[0].text
    assert not any("gpu-type" in need for need in typed.needs)


def test_machines_of_aws_that_are_planned_with_efa_are_launched_with_it() -> None:
    pods = deploy(plans.two_nodes(), "kubernetes", settings_for("kubernetes")).files[0].text
    assert "vpc.amazonaws.com/efa: '4'" in pods
    assert "FI_PROVIDER" in pods
    assert "network_tier: best" in deploy(
        PLANS["skypilot"](), "skypilot", settings_for("skypilot")
    ).files[0].text  # fmt: skip
    alone = deploy(plans.plan(), "kubernetes", settings_for("kubernetes"))
    assert "aws.com/efa" not in alone.files[0].text


def test_time_in_which_pods_wait_for_room_is_not_the_job_s() -> None:
    for target in ("kubernetes", "jobset"):
        text = deploy(PLANS[target](), target, settings_for(target)).files[0].text
        assert "activeDeadlineSeconds" not in text
        assert "exec timeout --kill-after=120 " in text
        assert "FailJob" in text
    for target, words in (("trainjob", "command:"), ("rayjob", "entrypoint: timeout --kill-after")):
        text = deploy(PLANS[target](), target, settings_for(target)).files[0].text
        assert "activeDeadlineSeconds" not in text
        assert "--kill-after=120" in text
        assert words in text


def test_a_spot_machine_of_unknown_fate_is_launched_with_an_assumption() -> None:
    unknown = plans.place(is_spot=True, interruption_frac_per_month=None)
    made = deploy(plans.plan(plans.choice(place=unknown)), "torchrun", plans.training())
    assert any("taken back a month" in one for one in made.assumptions)


def test_python_here_is_the_one_that_runs_the_tests() -> None:
    path = split_command(f"{sys.executable} train.py")
    assert read_program(path).ranks_words[1:] == ("-m", "torch.distributed.run")
