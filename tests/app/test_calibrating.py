"""`calibrate_rows`: a planted factor comes back, a little at first; nonsense is refused."""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from paceline.app.truth.calibrating import calibrate_rows
from paceline.catalog.load import load_catalog
from paceline.errors import InvalidInputError
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.calibration.from_measurements import read_updates, write_updates
from paceline.scoring.rows import read_rows
from paceline.scoring.score import predict_rows

BASE = {
    "model": "resnet50", "task": "train", "framework": "PyTorch 2.4.0", "precision": "amp",
    "compiler_flags": "nhwc; eager", "gpu": "A100-SXM4-80GB", "n_gpus": "1",
    "batch_per_gpu": "64", "unit": "img/s", "throughput": "", "step_time_ms": "",
    "seq_len": "", "parallelism": "",
}  # fmt: skip
MODELS = ["resnet50", "resnet18", "vgg16", "alexnet", "googlenet"]


def write(tmp_path, rows):
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(BASE))
        writer.writeheader()
        writer.writerows([BASE | row for row in rows])
    return path


def own_rows(path):
    """Predictions of rows that the user measured, before anything is learned from them."""
    return predict_rows(read_rows(path), catalog=load_catalog(), calibration=builtin_calibration())


def planted(tmp_path, factor, models, column="step_time_ms"):
    """Rows whose measurement is the prediction times a factor."""
    return write(tmp_path, rows_planted(factor, tuple(models), column))


@cache
def rows_planted(factor, models, column):
    with TemporaryDirectory() as folder:
        answers = own_rows(write(Path(folder), [{"model": model} for model in models]))
    assert all(answer.step_mid_s for answer in answers)
    rows = []
    for model, answer in zip(models, answers, strict=True):
        value = {
            "step_time_ms": 1e3 * factor * answer.step_mid_s,
            "throughput": answer.throughput_mid / factor,
        }[column]
        rows.append({"model": model, column: f"{value:.9g}"})
    return rows


def learned(path, **options):
    return learned_of(path.read_text(), **options)


@cache
def learned_of(text, **options):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        path.write_text(text)
        return calibrate_rows(path, catalog=load_catalog(), label="test", **options)


def test_a_measured_time_may_stand_in_the_column_of_throughput(tmp_path):
    by_time = planted(tmp_path, 1.3, MODELS)
    factor = learned(by_time)[1].devices[0].time_factor
    rows = list(csv.DictReader(by_time.read_text().splitlines()))
    moved = [
        row | {"throughput": row["step_time_ms"], "unit": "ms", "step_time_ms": ""} for row in rows
    ]
    again = learned(write(tmp_path, moved))[1].devices[0].time_factor
    assert math.isclose(again, factor, rel_tol=1e-6)


@pytest.mark.parametrize("column", ["step_time_ms", "throughput"])
def test_a_planted_factor_is_approached_from_no_correction(tmp_path, column):
    factors = [
        learned(planted(tmp_path, 1.3, MODELS[:count], column))[1].devices[0].time_factor
        for count in (1, 3, 5)
    ]
    assert 1 < factors[0] < factors[1] < factors[2] < 1.3
    assert factors[2] > 1.2


def test_predictions_move_by_the_factor_and_the_file_keeps_it(tmp_path):
    path = planted(tmp_path, 1.3, MODELS)
    calibration, summary = learned(path)
    (device,) = summary.devices
    assert device.error_after_frac < device.error_before_frac
    write_updates(calibration, tmp_path / "c.json")
    kept = read_updates(builtin_calibration(), tmp_path / "c.json")
    before = own_rows(path)
    after = predict_rows(read_rows(path), catalog=load_catalog(), calibration=kept)
    moved = [b.step_mid_s / a.step_mid_s for a, b in zip(before, after, strict=True)]
    assert all(1 < factor < 1.3 for factor in moved)
    assert math.isclose(np.median(moved), device.time_factor, rel_tol=1e-6)


def test_a_step_that_was_measured_is_known_better_than_any_other(tmp_path):
    """Nearly all of what it is off is learned from one row, and a little of it by other models.

    A model at another batch, and one of the same kernels, are between itself and strangers.
    """
    calibration, _ = learned(planted(tmp_path, 1.3, MODELS[:1]))
    path = write(tmp_path, [{"model": m} for m in MODELS] + [{"batch_per_gpu": "128"}])
    before = own_rows(path)
    after = predict_rows(read_rows(path), catalog=load_catalog(), calibration=calibration)
    moved = [b.step_mid_s / a.step_mid_s for a, b in zip(before, after, strict=True)]
    itself, of_its_kernels, *strangers, at_another_batch = moved
    assert 1.2 < itself < 1.3
    for near in (of_its_kernels, at_another_batch):
        assert all(1 < stranger < near < itself for stranger in strangers)
    widths = [one.step_high_s / one.step_mid_s for one in after]
    assert widths[0] < min(widths[1:])


def test_ranks_that_share_a_model_are_learned_from(tmp_path):
    """Layers more, or replicas more, run the same kernels: they are known by one measured run."""
    shared = {"model": "gpt2", "n_gpus": "2", "parallelism": "tp2", "batch_per_gpu": "8",
              "seq_len": "1024", "unit": "tok/s"}  # fmt: skip
    path = write(tmp_path, [shared])
    (answer,) = own_rows(path)
    assert answer.step_mid_s, answer.reason
    time_ms = {"step_time_ms": f"{1e3 * 1.3 * answer.step_mid_s:.9g}"}
    calibration, _ = learned(write(tmp_path, [shared | time_ms]))
    wide = shared | {"n_gpus": "4", "parallelism": "tp2 dp2"}
    path = write(tmp_path, [shared, wide, {"model": "resnet50"}])
    before = own_rows(path)
    after = predict_rows(read_rows(path), catalog=load_catalog(), calibration=calibration)
    itself, replicas, stranger = (
        b.step_mid_s / a.step_mid_s for a, b in zip(before, after, strict=True)
    )
    assert 1.15 < itself < 1.3
    assert replicas > 0.8 * itself
    assert 1 < stranger < replicas


def test_other_devices_stay_as_they_are_to_the_bit(tmp_path):
    calibration, _ = learned(planted(tmp_path, 1.3, MODELS))
    other = write(tmp_path, [{"gpu": "V100-SXM2-32GB"}])
    one = own_rows(other)
    two = predict_rows(read_rows(other), catalog=load_catalog(), calibration=calibration)
    assert one[0].step_mid_s == two[0].step_mid_s


def test_a_second_table_adds_to_the_first(tmp_path):
    first, _ = learned(planted(tmp_path, 1.3, MODELS[:2]))
    both, _ = learned(planted(tmp_path, 1.3, MODELS[2:]), start=first)
    at_once, _ = learned(planted(tmp_path, 1.3, MODELS))
    assert len(both.updates) == 2
    steps = at_once.lessons["A100 SXM4 80GB"].steps
    shifts = [c.lessons["A100 SXM4 80GB"].log_shift(steps) for c in (both, at_once)]
    np.testing.assert_allclose(*shifts, rtol=1e-6)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({}, "states a time"),
        ({"step_time_ms": "fast"}, "no measured time"),
        ({"step_time_ms": "-3"}, "no measured time"),
        ({"step_time_ms": "nan"}, "no measured time"),
        ({"step_time_ms": "1e9"}, "ten times"),
        ({"model": "nobody knows this", "step_time_ms": "3"}, "states a time"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(tmp_path, row, words):
    with pytest.raises(InvalidInputError, match=words):
        learned(write(tmp_path, [row]))
