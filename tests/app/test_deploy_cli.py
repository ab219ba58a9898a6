"""Launch files are written whole, and nothing of the user's is lost to them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import Outcome

import paceline
from paceline.app.main import main


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plan.yaml"
    found = paceline.plan("mnist-cnn", deadline="24h", cloud="lambda", as_of="2026-11-20")
    paceline.write_plan(found, path)
    return path


def deploy(plan: Path, folder: Path, *more: str) -> int:
    asked = ["deploy", str(plan), "--to", "slurm", "--folder", str(folder)]
    return main([*asked, "--command", "python train.py", "--set", "partition=gpu", *more])


def test_a_failure_half_way_leaves_the_file_of_before(
    plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert deploy(plan, tmp_path) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(self: Path, text: str, **_: object) -> int:
        with self.open("w") as file:
            file.write(text[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert deploy(plan, tmp_path, "--name", "another", "--force") == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("content", [b"mine", b"\xff\xfe no text"])
def test_a_file_of_the_users_is_replaced_only_when_told(
    plan: Path, tmp_path: Path, content: bytes
) -> None:
    assert deploy(plan, tmp_path) == 0
    (written,) = tmp_path.iterdir()
    written.write_bytes(content)
    assert deploy(plan, tmp_path) == 2
    assert written.read_bytes() == content
    assert deploy(plan, tmp_path, "--force") == 0
    assert written.read_bytes() != content


def test_the_same_files_may_be_written_again(plan: Path, tmp_path: Path) -> None:
    assert (deploy(plan, tmp_path), deploy(plan, tmp_path)) == (0, 0)
    assert len(os.listdir(tmp_path)) == 1


def test_a_folder_that_cannot_be_made_is_an_error_of_the_user(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert deploy(plan, tmp_path / "file" / "below") == 2


def test_what_was_planned_to_be_served_is_served(
    tmp_path: Path, run: Callable[..., Outcome]
) -> None:
    plan = str(tmp_path / "plan.yaml")
    served = ("plan", "resnet50", "--task", "infer", "--latency", "50ms", "--as-of", "2026-11-20")
    assert run(*served, "--cloud", "lambda", "-o", plan).status == 0
    facts = ("--set", "backend=onnxruntime", "--image", "nvcr.io/nvidia/tritonserver:25.10-py3")
    made = run("deploy", plan, "--to", "triton", *facts, "--dry-run")
    assert made.status == 0, made.err
    refused = run("deploy", plan, "--to", "kubernetes")
    refused.assert_helpful()
    assert "kubernetes cannot serve" in refused.err
    assert "--to triton" in refused.err
    assert "--purpose measure" in refused.err
    assert "--purpose train" not in refused.err


def test_a_service_by_an_engine_is_led_to_what_starts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.yaml"
    found = paceline.plan("gpt2", task="infer", rps=2, device="a10", as_of="2026-11-20")
    paceline.write_plan(found, path)
    assert main(["deploy", str(path), "--to", "slurm", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "slurm cannot serve" in said
    assert "`--to docker`, `--to kubernetes`" in said
    assert "torchserve" not in said
    assert main(["deploy", str(path), "--to", "docker", "--set", "weights=gpt2", "--dry-run"]) == 0
    assert "requests in flight on each replica" in capsys.readouterr().out
