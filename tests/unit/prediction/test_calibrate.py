"""Calibration: limits of shrinkage, provenance, undo, and hostile files."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidInputError
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.calibration.from_measurements import (
    calibrate,
    read_updates,
    residual,
    undo,
    write_updates,
)
from paceline.prediction.calibration.step_features import StepFeatures
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.step.one_pass import predict_pass
from paceline.prediction.uncertainty.posterior_correction import pass_traits

from .passes import device, lowered, matmul

BASE = builtin_calibration()


def slower(times, *workloads, name="D"):
    return [
        residual(device_name=name, step=StepFeatures(workload=w), measured_s=times, predicted_s=1.0)
        for w in workloads
    ]


def shift(calibration, name="D", workload="another"):
    """What is expected of a step that was not measured itself."""
    return calibration.lessons[name].log_shift([StepFeatures(workload=workload)])[0]


def test_one_measurement_moves_less_than_it_shows_and_many_move_all_the_way():
    one = shift(calibrate(BASE, slower(1.5, "a"), label="t"))
    many = shift(calibrate(BASE, slower(1.5, *map(str, range(500))), label="t"))
    assert 0 < one < math.log(1.5)
    assert many == pytest.approx(math.log(1.5), rel=0.01)


def test_repeating_one_workload_is_not_new_evidence():
    once = shift(calibrate(BASE, slower(1.5, "a"), label="t"))
    often = shift(calibrate(BASE, slower(1.5, *["a"] * 50), label="t"))
    assert often == pytest.approx(once)


@given(st.floats(0.2, 5.0))
def test_a_shift_has_the_sign_of_what_was_measured(times):
    moved = shift(calibrate(BASE, slower(times, "a", "b"), label="t"))
    assert moved * math.log(times) >= 0
    assert abs(moved) <= abs(math.log(times)) + 1e-12


def test_predictions_of_that_device_follow_and_of_no_other():
    work, table = (
        lowered(matmul(4096, 4096, 4096)),
        DeviceTable.from_devices([device("D"), device("E")]),
    )
    at = Points(batch=np.array([8.0]), seq=np.array([1.0]))
    before = predict_pass(work, table, at, calibration=BASE)
    moved = calibrate(BASE, slower(1.4, *map(str, range(9))), label="t")
    after = predict_pass(work, table, at, calibration=moved)
    (step,) = pass_traits(work, DeviceTable.from_devices([device("D")]), at, BASE)
    times = math.exp(moved.lessons["D"].log_shift([step])[0])
    assert 1 < times < 1.4
    for name in ("mid_s", "device_s", "host_s", "backward_s", "compute_bound_s"):
        assert getattr(after, name)[0, 0] == pytest.approx(getattr(before, name)[0, 0] * times)
    assert after.roofline_s[0, 0] == before.roofline_s[0, 0]
    assert after.mid_s[1, 0] == before.mid_s[1, 0]


def test_intervals_narrow_with_what_was_measured_and_those_of_other_devices_do_not():
    work = lowered(matmul(4096, 4096, 4096))
    table = DeviceTable.from_devices([device("D"), device("E")])
    at = Points(batch=np.array([8.0, 64.0]), seq=np.array([1.0, 1.0]))
    steps = pass_traits(work, DeviceTable.from_devices([device("D")]), at, BASE)
    known = residual(device_name="D", step=steps[0], measured_s=1.2, predicted_s=1.0)
    before = predict_pass(work, table, at, calibration=BASE).log_sigma
    after = predict_pass(work, table, at, calibration=calibrate(BASE, [known], label="t")).log_sigma
    assert after[0, 0] < after[0, 1] < before[0, 1]
    np.testing.assert_array_equal(after[1], before[1])


def test_undo_restores_what_was_before():
    first = calibrate(BASE, slower(1.2, "a"), label="first")
    second = calibrate(first, slower(0.7, "b"), label="second")
    assert [u.label for u in second.updates] == ["first", "second"]
    assert shift(undo(second)) == shift(first)
    assert undo(undo(second)).lessons == {}
    with pytest.raises(InvalidInputError):
        undo(BASE)


def test_an_undone_update_leaves_coefficients_to_the_bit():
    """Whichever of three is dropped, what is left is as if it had never been."""
    given = {"first": (1.2, "a"), "second": (0.7, "b"), "third": (1.37, "c")}
    every = BASE
    for label, (factor, workload) in given.items():
        every = calibrate(every, slower(factor, workload), label=label)
    for gone in given:
        without = BASE
        for label, (factor, workload) in given.items():
            if label != gone:
                without = calibrate(without, slower(factor, workload), label=label)
        assert shift(undo(every, gone)) == shift(without)
        assert undo(every, gone).updates == without.updates
    with pytest.raises(InvalidInputError, match="fourth"):
        undo(every, "fourth")


def test_a_write_that_is_cut_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "calibration.json"
    first = calibrate(BASE, slower(1.2, "a"), label="first")
    write_updates(first, path)
    before = path.read_bytes()

    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.replace", cut)
    with pytest.raises(KeyboardInterrupt):
        write_updates(calibrate(first, slower(0.7, "b"), label="second"), path)
    assert path.read_bytes() == before


def test_measurements_that_are_learned_again_after_a_kill_count_once():
    first, second = slower(1.3, "a", "b"), slower(0.8, "a")
    once = calibrate(calibrate(BASE, first, label="1"), second, label="2")
    assert calibrate(once, first, label="again").updates == once.updates
    assert shift(calibrate(once, first, label="again")) == shift(once)


def test_updates_survive_their_file(tmp_path):
    made = calibrate(BASE, slower(1.2, "a", "b"), label="today")
    write_updates(made, tmp_path / "sub" / "calibration.json")
    read = read_updates(BASE, tmp_path / "sub" / "calibration.json")
    assert read.updates == made.updates
    assert shift(read) == shift(made)


@pytest.mark.parametrize("measured", [0.0, -1.0, 100.0, float("nan")])
def test_an_impossible_measurement_is_refused(measured):
    with pytest.raises(InvalidInputError):
        residual(
            device_name="D", step=StepFeatures(workload="a"), measured_s=measured, predicted_s=1.0
        )


@pytest.mark.parametrize("times", [10.0, 0.1])
def test_ten_times_apart_is_learned_from_and_more_is_a_mistake(times):
    (learned,) = slower(times, "a")
    assert learned.log_ratio == pytest.approx(math.log(times))
    with pytest.raises(InvalidInputError, match="more than ten times apart"):
        slower(times**1.01, "a")


def test_nothing_to_calibrate_with_is_an_error():
    with pytest.raises(InvalidInputError):
        calibrate(BASE, [], label="t")


ODD = {"device_name": "D", "workload": "a", "log_ratio": float("inf")}
STEP = {"workload": "a", "setting": "", "kernels": [[7, 3.0]]}


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"format_version": 9, "updates": []}', "[" * 10_000,
     json.dumps({"format_version": 1, "updates": [{"label": "x", "residuals": [ODD]}]}),
     json.dumps({"format_version": 2, "updates": [{"label": "x", "residuals": [
         {"device_name": "D", "step": STEP, "log_ratio": 0.1}]}]}),
     '{"format_version": 1, "updates": [{"residuals": 3}]}'],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path, content):
    path = tmp_path / "calibration.json"
    path.write_text(content)
    with pytest.raises(InvalidInputError):
        read_updates(BASE, path)
