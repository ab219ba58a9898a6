"""`calibrate --run`: a watched run as a measurement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.app.main import main
from paceline.app.truth.run_lessons import record_of_run
from paceline.errors import InvalidInputError
from paceline.model.graph.store import save_workload
from paceline.model.reading.load import load_workload
from paceline.watch.folder import Run, new_run, write_end, write_run

_FACTS = {
    "model": "resnet18", "num_parameters": 11_689_512, "batch": 32, "seq": None,
    "compiler": "eager", "microbatches": 1, "world_size": 1, "wrappers": [], "loader": None,
    "optimizer": [{"name": "SGD", "family": "SGD", "momentum": True, "states": 1}],
    "precision": {"weights": "float32", "autocast": "bfloat16", "tf32": False},
}  # fmt: skip


def _run(folder: Path, *, step_ms: int = 50, steps: int = 100, **facts: object) -> Run:
    """A recorded run of ResNet-18 on an A100."""
    run = new_run(["python", "train.py"], folder=folder)
    write_run(run)
    write_end(run)
    found = {"facts": {**_FACTS, **facts}, "report": {"passes": []}, "error": None}
    (run.folder / "capture.json").write_text(json.dumps(found))
    device = {
        "event": "device", "kind": "cuda", "name": "NVIDIA A100-SXM4-80GB", "torch": "2.9.0",
        "memory_bytes": 85_000_000_000,
    }  # fmt: skip
    wait_ms = 5
    lines = [
        ["step", 0, n * (step_ms + wait_ms) * 10**6, wait_ms * 10**6, 1, 1, 1, 1, 1, [0.5]]
        for n in range(steps)
    ]
    text = "".join(json.dumps(one) + "\n" for one in (device, *lines))
    (run.folder / "rank-0-1.jsonl").write_text(text)
    save_workload(load_workload("resnet18"), run.folder / "model.npz")
    return run


def test_a_record_has_the_steps_without_their_waiting(tmp_path: Path):
    record = record_of_run(_run(tmp_path))
    assert record.median_s == pytest.approx(0.050)
    assert len(record.samples_s) == 97
    assert (record.precision, record.optimizer, record.batch_per_device) == (
        "bf16",
        "sgd-momentum",
        32,
    )


@pytest.mark.parametrize("changed", [{"microbatches": 4}, {"world_size": 2}, {"steps": 10}])
def test_what_a_record_cannot_say_is_refused(tmp_path: Path, changed: dict[str, int]):
    with pytest.raises(InvalidInputError):
        record_of_run(_run(tmp_path, **changed))


@pytest.mark.parametrize(("seen", "kept"), [(False, False), (True, None), (None, None)])
def test_the_layout_of_images_is_kept(tmp_path: Path, seen: bool | None, kept: bool | None):
    assert record_of_run(_run(tmp_path, channels_last=seen)).channels_last is kept


def test_a_run_on_a_gpu_corrects_the_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PACELINE_RUNS", str(tmp_path / "runs"))
    run, out = _run(tmp_path / "runs"), tmp_path / "calibration.json"
    ask = ["predict", str(run.folder / "model.npz"), "--device", "A100 SXM4 80GB", "--batch", "32"]
    ask += ["--precision", "bf16", "--json"]

    def step_s(*more: str) -> float:
        assert main([*ask, *more]) == 0
        return float(json.loads(capsys.readouterr().out)["cells"][0]["step_s"]["mid"])

    before = step_s()
    measured = run.folder / "rank-0-1.jsonl"
    assert measured.exists()
    near = round(before * 1.5 * 1e3)
    other = _run(tmp_path / "runs", step_ms=near)
    assert main(["calibrate", "--run", other.id, "--out", str(out)]) == 0
    capsys.readouterr()
    after = step_s("--calibration", str(out))
    assert abs(after - near / 1e3) < abs(before - near / 1e3)
