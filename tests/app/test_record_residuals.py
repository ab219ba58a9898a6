"""Steps that `measure` timed on a GPU teach what rows of a table would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import paceline
from paceline.app.truth.record_residuals import residuals_of_records
from paceline.catalog.load import load_catalog
from paceline.errors import InvalidInputError
from paceline.measurements.records import Record
from paceline.measurements.store import Store

CATALOG = load_catalog()
RECORD = Record(
    kind="step", outcome="ok", recorded_at="2026-11-21", source="test", workload="resnet50",
    device_name="A100 SXM4 80GB", task="train", framework="torch", framework_version="2.13.0",
    precision="bf16", compiler="eager", optimizer="sgd", batch_per_device=64.0, mode="step",
    samples_s=(0.2,),
)  # fmt: skip


def predicted_s(batch: int = 64, **options: object) -> float:
    grid = paceline.predict(
        "resnet50", device="a100 sxm4 80gb", task="train", batch=(batch,), precision="bf16",
        optimizer="sgd-momentum", **options,
    )  # fmt: skip
    return float(grid.cells[0].step_s.mid)


def test_a_record_is_held_against_what_predict_says() -> None:
    (found,) = residuals_of_records([replace(RECORD, samples_s=(1.5 * predicted_s(),))], CATALOG)
    assert found.device_name == RECORD.device_name
    assert found.log_ratio == pytest.approx(0.405465, abs=1e-3)


@pytest.mark.parametrize(
    "changes",
    [{"mode": "forward-backward"}, {"framework": "tensorflow"}, {"num_devices": 2},
     {"device_name": "Intel Xeon"}, {"workload": "nosuchmodel"}, {"samples_s": ()},
     {"outcome": "failed", "samples_s": ()}, {"is_shared": True}, {"throttle_reasons": "power"},
     {"kind": "collective"}, {"batch_per_device": None}, {"precision": "fp9"}],
)  # fmt: skip
def test_what_no_prediction_stands_for_is_left_out(changes: dict[str, object]) -> None:
    assert residuals_of_records([replace(RECORD, **changes)], CATALOG) == []


def test_a_folder_of_measurements_moves_predictions(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    for batch in (32, 64):
        taken_s = 1.4 * predicted_s(batch)
        store.append(replace(RECORD, batch_per_device=float(batch), samples_s=(taken_s,) * 3))
    store.append(replace(RECORD, device_name="Intel Xeon"))
    store.close()
    summary = paceline.calibrate(tmp_path / "runs", tmp_path / "c.json")
    assert (summary.num_rows, summary.num_used) == (3, 2)
    moved = predicted_s(calibration=tmp_path / "c.json") / predicted_s()
    assert 1.25 < moved < 1.4
    (update,) = paceline.calibrate_list(tmp_path / "c.json")
    assert update.label.endswith("runs")


def test_a_folder_that_teaches_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="can be predicted"):
        paceline.calibrate(tmp_path, tmp_path / "c.json")
