"""The first ten minutes of a user in an empty folder.

Whole processes where starting one is the question; elsewhere the verb runs in this process.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.app.main import main

Typed = Callable[..., tuple[int, str, str]]

_DAY = ("--as-of", "2026-11-20")
#: Where the market is not the question.
_FEW = ("--cloud", "lambda", *_DAY)
_LAB = Path(__file__).parents[2] / "docs" / "how-to" / "examples" / "lab.toml"
_MODEL = """\
from torch import nn

def build():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 10),
    )
"""
#: Runs paceline in a Python in which torch cannot be imported.
_WITHOUT_TORCH = (
    "import sys; sys.modules['torch'] = None; "
    "from paceline.app.main import main; sys.exit(main(sys.argv[1:]))"
)
#: The same in one that knows no installed package.
_NOT_INSTALLED = (
    "import importlib.metadata as known, sys; known.version = known.distribution = None; "
    "from paceline.app.main import main; sys.exit(main(sys.argv[1:]))"
)


def paceline(folder: Path, *arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    start = [sys.executable, "-c", code] if code else [sys.executable, "-m", "paceline"]
    return subprocess.run(
        [*start, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "COLUMNS": "100"},
        check=False,
    )


def answered(folder: Path, *arguments: str) -> str:
    ended = paceline(folder, *arguments)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stdout


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Typed:
    """Runs a verb in this process: its status, its answer and its talk."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        return (status, *capsys.readouterr())

    return run


def test_minute_0_one_screen(tmp_path: Path) -> None:
    assert "paceline plan resnet50 --deadline 24h" in answered(tmp_path)


def test_minute_1_a_plan_and_its_file(tmp_path: Path) -> None:
    out = answered(tmp_path, "plan", "resnet50", "--deadline", "24h", *_DAY)
    assert out.startswith("Rent ")
    assert " USD, fits, in time with " in out.splitlines()[0]
    assert "\nResNet-50 · training · 1,281,167 images × 90 epochs" in out
    assert "reference job: ImageNet-1k" in out
    for word in ("why:", "sensitivity:", "excluded:", "next:"):
        assert f"\n{word}" in out
    assert max(map(len, out.splitlines())) <= 100
    written = (tmp_path / "plan.yaml").read_text(encoding="utf-8")
    assert written.startswith("# A plan of paceline")


@pytest.mark.parametrize(
    "question",
    [
        "plan gpt2 --tokens 10B --deadline 3d",
        "plan llama-3-8b --task infer --latency 50ms",
        "plan lstm --budget 5usd",
    ],
)
def test_the_questions_of_a_newcomer_are_answered(typed: Typed, question: str) -> None:
    status, out, _ = typed(*question.split(), *_DAY, "--json")
    assert status == 0
    answer = json.loads(out)
    assert answer["choices"]
    assert answer["assumptions"]
    assert all(choice["meets_goal"] for choice in answer["choices"][:1])


def test_minute_3_a_model_of_ones_own_in_another_python(tmp_path: Path) -> None:
    (tmp_path / "mymodule.py").write_text(_MODEL)
    arguments = ("plan", "mymodule:build", "--samples", "1M", "--epochs", "10", *_FEW)
    ended = paceline(tmp_path, *arguments, "--python", sys.executable, code=_WITHOUT_TORCH)
    assert ended.returncode == 0, ended.stderr
    assert "1,000,000 images × 10 epochs" in ended.stdout


def test_minute_3_a_model_that_fails_shows_its_own_traceback(tmp_path: Path, typed: Typed) -> None:
    (tmp_path / "mymodule.py").write_text("def build():\n    return open('weights.bin')\n")
    status, _, talk = typed("plan", "mymodule:build", "--samples", "1M")
    assert status == 2
    assert "mymodule.py" in talk
    assert "weights.bin" in talk
    assert talk.splitlines()[-1].startswith("hint: ")


def test_minute_5_batch_against_count_with_oom_cells(typed: Typed) -> None:
    status, out, _ = typed(
        "predict", "llama-3-8b", "--device", "h100,l40s,4090",
        "--batch", "1,8,32", "--devices", "1,2,4,8",
    )  # fmt: skip
    assert status == 0
    assert out.startswith("8×H100 SXM5 80GB train ")
    assert "(zero3, as" in out
    assert "OOM: batch 1 needs" in out
    assert "remedy: " in out


def test_a_checkout_that_is_not_installed_plans_and_launches(tmp_path: Path) -> None:
    """A Python that has paceline on its path, and no metadata of an installed package."""
    words = ("plan", "resnet50", "--deadline", "24h", *_FEW)
    assert paceline(tmp_path, *words, code=_NOT_INSTALLED).returncode == 0
    launched = ("deploy", "plan.yaml", "--to", "torchrun", "--purpose", "measure", "--dry-run")
    ended = paceline(tmp_path, *launched, code=_NOT_INSTALLED)
    assert ended.returncode == 0, ended.stderr


def test_minute_7_a_mistake(tmp_path: Path) -> None:
    ended = paceline(tmp_path, "predict", "resnet50", "--device", "RTX4900")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "\nerror: no device named `RTX4900`" in f"\n{ended.stderr}"
    assert "RTX 4090" in ended.stderr


def test_minute_8_where_time_and_memory_go(typed: Typed) -> None:
    _, out, _ = typed("trace", "resnet50", "--device", "a100")
    assert "25,557,032 parameters" in out
    assert "memory at the peak" in out
    assert "bandwidth" in out


def test_minute_10_a_purchase_request(typed: Typed) -> None:
    _, out, _ = typed("plan", "resnet50", "--deadline", "24h", "--format", "md", *_DAY)
    for heading in ("## Proposal", "## Assumptions", "## Sensitivity", "## Risks",
                    "## Prices and where they were read"):  # fmt: skip
        assert heading in out


def test_a_workload_file_is_planned_without_its_code(tmp_path: Path, typed: Typed) -> None:
    (tmp_path / "mymodule.py").write_text(_MODEL)
    assert typed("trace", "mymodule:build", "--save", "model.npz")[0] == 0
    (tmp_path / "mymodule.py").unlink()
    ended = paceline(
        tmp_path, "plan", "model.npz", "--samples", "1M", "--epochs", "10", *_FEW,
        code=_WITHOUT_TORCH,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def test_a_plan_becomes_launch_files(tmp_path: Path, typed: Typed) -> None:
    assert typed("plan", "resnet50", "--deadline", "24h", *_DAY)[0] == 0
    status, out, _ = typed(
        "deploy", "plan.yaml", "--to", "torchrun", "--command", "python train.py"
    )
    assert status == 0
    assert "start: sh deploy-torchrun/launch.sh" in out
    assert any((tmp_path / "deploy-torchrun").iterdir())


@pytest.mark.parametrize(
    "question",
    [
        "plan resnet50 --deadline 24h",
        "plan gpt2 --task infer --latency 50ms",
        f"plan resnet50 --cloud own --facts {_LAB}",
    ],
)
def test_the_next_command_runs_as_typed(tmp_path: Path, typed: Typed, question: str) -> None:
    _, out, _ = typed(*question.split(), *_DAY)
    (command,) = re.findall(r"^next: paceline (.+)$", out, re.MULTILINE)
    status, out, _ = typed(*shlex.split(command))
    assert status == 0
    assert "start: " in out
    assert list(tmp_path.glob("deploy-*/*"))


def test_a_plan_that_serves_trains_nothing(typed: Typed) -> None:
    assert typed("plan", "gpt2", "--task", "infer", *_FEW)[0] == 0
    status, _, talk = typed(
        "deploy", "plan.yaml", "--to", "torchrun", "--command", "python train.py"
    )
    assert status == 2
    assert "for inference" in talk


def test_a_file_of_the_users_is_never_overwritten(tmp_path: Path, typed: Typed) -> None:
    mine = tmp_path / "plan.yaml"
    mine.write_text("my: own\n")
    status, _, talk = typed("plan", "lstm", "--budget", "5usd", *_FEW)
    assert status == 0
    assert "not saved" in talk
    assert mine.read_text() == "my: own\n"


def test_ones_own_prices_compete(typed: Typed) -> None:
    _, out, _ = typed("plan", "resnet50", "--cloud", "campus", "--facts", str(_LAB), *_DAY)
    assert "Campus 4×Acme X1 80GB" in out


def test_the_examples_of_the_readme_are_accepted(typed: Typed) -> None:
    """Every verb that the README shows is there."""
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    blocks = readme.split("```sh\n")[1:]
    lines = [line for block in blocks for line in block.split("```")[0].splitlines()]
    verbs = {line.split()[1] for line in lines if line.startswith("paceline ")}
    assert {"plan", "predict", "trace", "devices", "offers"} <= verbs
    for verb in sorted(verbs):
        status, out, _ = typed(verb, "--help")
        assert status == 0
        assert out.startswith(f"Usage: paceline {verb}")
