"""``paceline calibrate``: learn, list, undo from the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import paceline
from paceline.app.main import main

ROW = {
    "model": "resnet50", "task": "train", "framework": "PyTorch 2.4.0", "precision": "amp",
    "gpu": "A100-SXM4-80GB", "n_gpus": "1", "batch_per_gpu": "64", "step_time_ms": "80",
}  # fmt: skip


def write(path: Path, **changes: str) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerow(ROW | changes)
    return path


@pytest.fixture
def learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files after one table, and after a second one on top of it."""
    monkeypatch.chdir(tmp_path)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    one = write(tmp_path / "one.csv")
    two = write(tmp_path / "two.csv", model="vgg16", step_time_ms="300")
    assert main(["calibrate", str(one), "--out", str(first)]) == 0
    assert main(["calibrate", str(two), "--out", str(second), "--calibration", str(first)]) == 0
    return [first, second]


def test_undoing_the_last_update_gives_the_file_before_it(learned: list[Path]) -> None:
    first, second = learned
    before = first.read_bytes()
    assert main(["calibrate", "--undo", "last", "--calibration", str(second)]) == 0
    assert second.read_bytes() == before


def test_updates_are_listed_and_undone_by_name(
    learned: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, second = learned
    capsys.readouterr()
    assert main(["calibrate", "--list", "--calibration", str(second), "--json"]) == 0
    labels = [update["label"] for update in json.loads(capsys.readouterr().out)["rows"]]
    assert [label.split()[-1] for label in labels] == ["one.csv", "two.csv"]
    assert main(["calibrate", "--undo", labels[0], "--calibration", str(second)]) == 0
    left = json.loads(second.read_text())["updates"]
    assert [update["label"] for update in left] == labels[1:]


def test_python_lists_and_undoes_the_same(learned: list[Path]) -> None:
    first, second = learned
    labels = [update.label for update in paceline.calibrate_list(second)]
    assert [label.split()[-1] for label in labels] == ["one.csv", "two.csv"]
    assert [update.label for update in paceline.calibrate_undo(second)] == labels[:1]
    assert second.read_bytes() == first.read_bytes()
    assert paceline.calibrate_undo(second, labels[0]) == paceline.calibrate_list(second) == ()
    with pytest.raises(paceline.InvalidInputError, match="no calibration to undo"):
        paceline.calibrate_undo(second)


@pytest.mark.parametrize(
    "words",
    [["calibrate"], ["calibrate", "--list", "--undo", "last"],
     ["calibrate", "--undo", "nothing of that name"], ["calibrate", "--list", "--out", "none"]],
)  # fmt: skip
def test_what_cannot_be_done_is_said(
    words: list[str], learned: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*words, "--calibration", str(learned[1])] if "--undo" in words else words
    assert main(given) == 2
    assert "hint:" in capsys.readouterr().err
