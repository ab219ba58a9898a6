"""The plug-in of the example, installed as any package is: its metadata, and its folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with what an installer writes beside a package."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "site"
    info = folder / "campus_paceline-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = (
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups))
    (folder / "campus_paceline").symlink_to(EXAMPLE / "campus_paceline")
    return folder


def call(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = (str(installed), os.environ.get("PYTHONPATH", ""))
    return subprocess.run(
        [sys.executable, "-m", "paceline", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True, text=True, cwd=installed,
    )  # fmt: skip


def test_facts_of_a_plugin_are_offered_where_they_are_named(installed: Path) -> None:
    told = call(
        installed, "plan", "resnet50", "--facts", "campus", "--cloud", "campus",
        "--as-of", "2026-11-20", "--json",
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    choices = json.loads(told.stdout)["choices"]
    assert {one["place"]["offer"] for one in choices} == {"campus/a100-4"}
    made = call(
        installed, "deploy", "plan.yaml", "--to", "nohup", "--command", "python train.py",
        "--set", "log=a log",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert "> 'a log' 2>&1 &" in (installed / "deploy-nohup" / "start.sh").read_text()


def test_an_engine_of_a_plugin_serves(installed: Path) -> None:
    told = call(
        installed, "predict", "gpt2", "--task", "infer", "--device", "a100", "--framework",
        "Campus-LLM", "--json",
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert "CampusLLM" in told.stdout


def test_a_front_end_of_a_plugin_reads_models(installed: Path) -> None:
    told = call(installed, "predict", "layers:784x512x10", "--device", "a100", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["num_parameters"] == 784 * 512 + 512 * 10


def test_a_plugin_without_what_it_promises_is_named(installed: Path) -> None:
    points = installed / "campus_paceline-0.1.0.dist-info" / "entry_points.txt"
    points.write_text("[paceline.engines]\ncampus = nobody.here\n")
    told = call(installed, "predict", "gpt2", "--device", "a100", "--framework", "campusllm")
    assert told.returncode == 2
    assert "the plug-in `campus` has no engines.toml" in told.stderr
    points.write_text("[paceline.launch_targets]\nnohup = campus_paceline.nohup:NOBODY\n")
    told = call(installed, "deploy", "--list")
    assert told.returncode == 2
    assert "the plug-in `nohup` cannot be loaded" in told.stderr
