"""``paceline feed FOLDER``: measured here, next to its prediction, with what is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.loop import samples

from paceline.app.main import main


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = samples.folder(tmp_path_factory.mktemp("images"), 90)
    torn = root / "class1" / "0004.jpg"
    torn.write_bytes(torn.read_bytes()[:200])
    return root


def test_a_folder_is_measured_by_stage_and_its_damage_listed(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "damaged.txt"
    words = ["feed", str(images), "--size", "32", "--seconds", "0.2", "--check", "--rate", "5"]
    assert main([*words, "--damaged", str(listed), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_samples"] == 90
    assert found["num_classes"] == 3
    assert [stage["name"] for stage in found["stages"]] == ["read", "decode", "resize"]
    assert found["samples_per_s"] > 0
    assert found["predicted_samples_per_s"]["mid"] > 0
    assert found["num_threads_needed"] == 1
    assert found["num_damaged"] == 1
    name, reason = listed.read_text().strip().split("\t")
    assert name == str(images / "class1" / "0004.jpg")
    assert reason


def test_the_screen_says_what_is_there_what_it_gives_and_what_would_help(
    images: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = {"name": "decode", "core_s": 1e-3, "wall_s": 1e-3}
    answer = {
        "kind": "image", "num_samples": 90, "num_classes": 3, "num_cores": 8, "threads_per_core": 1,
        "num_threads": 8,
        "facts": {"formats": {"JPEG": 90}, "disk_bytes": 110e3, "width": 500, "height": 375},
        "stages": [stage], "measured_per_s": 4000.0, "core_s": 1.6e-3, "num_checked": 50,
        "remedies": [{"change": "shrunk", "core_s": 5e-4, "before_core_s": 1e-3},
                     {"change": "scaled", "core_s": 1e-3, "before_core_s": 1e-3}],
        "damaged": [["a.jpg", "cut off"]], "num_damaged": 1,
    }  # fmt: skip
    monkeypatch.setattr("paceline.app.api.feeding.ask", lambda *_: answer)
    device = ["--model", "resnet50", "--device", "h100"]
    assert main(["feed", str(images), "--rate", "1500", "--devices", "2", *device]) == 0
    out = capsys.readouterr().out
    for words in (
        "90 JPEG in 3 classes, 500×375", "4,000 samples/s with 8 threads (predicted ",
        "feeds 3,000 samples/s with 6 threads (75% of what it can)", "+100%",
        "shrink the files once", "1 damaged of 50 that were read, the first a.jpg: cut off", "H100",
    ):  # fmt: skip
        assert words in out
    assert "is_scaled" not in out
