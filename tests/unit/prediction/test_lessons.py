"""Observations: limits, symmetry, and two roads to what the other measurements tell of one."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.prediction.calibration import gaussian_process as lessons
from paceline.prediction.calibration.fitted import builtin_calibration
from paceline.prediction.calibration.from_measurements import (
    calibrate,
    read_updates,
    residual,
    write_updates,
)
from paceline.prediction.calibration.gaussian_process import PARTS, Spreads, learn, weigh
from paceline.prediction.calibration.step_features import StepFeatures, similarity
from paceline.prediction.devices import DeviceTable
from paceline.prediction.prediction import Points
from paceline.prediction.uncertainty.posterior_correction import pass_traits

from .passes import device, lowered, matmul, stream

SPREADS = Spreads.of(builtin_calibration().constants["calibrate"])
NEW = StepFeatures(workload="new", setting="new", kernels=((99, 1.0),))


def step(workload="w", setting="s", **shares):
    return StepFeatures(
        workload=workload,
        setting=setting,
        kernels=tuple((int(name[1:]), share) for name, share in shares.items()),
    )


@st.composite
def steps(draw):
    number = st.integers(0, 3)
    shares = draw(st.lists(st.tuples(st.integers(0, 6), st.floats(0.01, 1.0)), max_size=5))
    return StepFeatures(
        workload=str(draw(number)), setting=str(draw(number)), kernels=tuple(dict(shares).items())
    )


measured = st.lists(st.tuples(steps(), st.floats(-1.0, 1.0)), min_size=1, max_size=12)


def test_parts_are_all_that_a_spread_has():
    assert [field.name for field in dataclasses.fields(Spreads)] == list(PARTS)
    assert math.isclose(SPREADS.total, sum(getattr(SPREADS, part) for part in PARTS))


@given(st.lists(steps(), min_size=1, max_size=6))
def test_likeness_is_symmetric_within_one_and_whole_with_itself(found):
    alike = similarity(found, found)
    np.testing.assert_allclose(alike, alike.T, atol=1e-12)
    assert ((alike >= 0) & (alike <= 1 + 1e-12)).all()
    np.testing.assert_allclose(np.diag(alike), [float(bool(one.kernels)) for one in found])


def test_likeness_counts_shares_of_time_and_not_their_sum():
    """Root of each product: 0.6 and 0.4 against 0.6 alone."""
    one, other = step(k1=0.3, k2=0.2), step(k1=0.9, k3=0.6)
    assert similarity([one], [other])[0, 0] == pytest.approx(0.6)


@given(measured)
def test_what_is_left_is_a_share_and_less_with_every_measurement(rows):
    left = [weigh(rows[:count], SPREADS).left_frac([NEW])[0] for count in range(1, len(rows) + 1)]
    assert all(SPREADS.step / SPREADS.total <= one < 1 for one in left)
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(left))


@given(measured)
def test_left_out_errors_are_those_of_learning_without_the_row(rows):
    rows = list({one: (one, ratio) for one, ratio in rows}.values())
    if len(rows) < 2:
        return
    errors = weigh(rows, SPREADS).left_out_log_error()
    for place, (one, ratio) in enumerate(rows):
        others = weigh(rows[:place] + rows[place + 1 :], SPREADS)
        assert errors[place] == pytest.approx(ratio - others.log_shift([one])[0], abs=1e-9)


@given(st.floats(-1.0, 1.0), st.integers(1, 30))
def test_one_device_and_one_setting_are_a_mean_that_is_shrunk(ratio, count):
    """Of n strangers that share these parts alone: v / (v + u / n), with u what each has alone."""
    rows = [(StepFeatures(workload=f"w{n}", setting="s"), ratio) for n in range(count)]
    shared = SPREADS.device + SPREADS.setting
    own = SPREADS.total - shared
    expected = ratio * shared / (shared + own / count)
    told = weigh(rows, SPREADS).log_shift([StepFeatures(workload="another", setting="s")])[0]
    assert told == pytest.approx(expected, abs=1e-12)


def test_kernels_in_common_carry_over_as_far_as_they_are_common():
    (near, far), whole = (step("a", k1=0.8, k2=0.2), step("b", k1=0.2, k3=0.8)), step("c", k1=1.0)
    told = learn([(whole, 0.3)], SPREADS).log_shift([near, far, step("d", k4=1.0)])
    assert told[0] > told[1] > told[2] > 0


def test_traits_of_a_point_are_its_own_whatever_else_is_asked():
    table = DeviceTable.from_devices([device("D")])
    work, base = lowered(matmul(512, 512, 512)), builtin_calibration()

    def traits(*batches):
        points = Points(batch=np.array(batches), seq=np.ones(len(batches)))
        return pass_traits(work, table, points, base)

    alone, among = traits(8.0), traits(1.0, 8.0, 64.0)
    assert alone[0] == among[1]
    assert among[0].kernels != among[1].kernels
    assert among[0].workload == among[1].workload
    assert sum(share for _, share in alone[0].kernels) == pytest.approx(1.0, abs=1e-3)


@given(measured)
def test_learning_is_weighing_by_the_reach_that_it_found(rows):
    found = learn(rows, SPREADS)
    same = weigh(rows, found.spreads)
    np.testing.assert_allclose(found.log_shift([NEW]), same.log_shift([NEW]))
    usual = same.left_frac([NEW])[0] * found.spreads.total / SPREADS.total
    assert found.left_frac([NEW])[0] == pytest.approx(min(usual, 1.0))


def test_how_far_parts_reach_is_taken_from_what_was_measured():
    """Equal kernels that are off alike have small parts of their own; that are not, large ones."""
    runs = [step(f"w{n}", k1=1.0) for n in range(8)] + [step(f"v{n}", k2=1.0) for n in range(8)]
    alike = [(one, 0.3 if n < 8 else -0.3) for n, one in enumerate(runs)]
    apart = [(one, 0.3 if n % 2 else -0.3) for n, one in enumerate(runs)]
    assert learn(alike, SPREADS).spreads.step < SPREADS.step < learn(apart, SPREADS).spreads.step
    assert learn(alike, SPREADS).spreads.kernels > learn(apart, SPREADS).spreads.kernels
    assert learn(apart, SPREADS).left_frac([NEW])[0] > learn(alike, SPREADS).left_frac([runs[0]])[0]


def test_what_measurements_know_a_step_by_survives_its_file(tmp_path):
    """Also a step of many kernels, of which most take next to nothing."""
    work = lowered(matmul(65536, 8192, 8192), *(stream(2**n) for n in range(12)))
    points = Points(batch=np.array([64.0]), seq=np.array([1.0]))
    base = builtin_calibration()
    (found,) = pass_traits(work, DeviceTable.from_devices([device("D")]), points, base)
    seen = residual(device_name="D", step=found, measured_s=1.1, predicted_s=1.0)
    kept = calibrate(base, [seen], label="t")
    write_updates(kept, tmp_path / "c.json")
    assert read_updates(base, tmp_path / "c.json").updates == kept.updates


def test_of_very_many_steps_the_newest_count(monkeypatch):
    monkeypatch.setattr(lessons, "MOST_STEPS", 3)
    rows = [(StepFeatures(workload=f"w{n}"), 0.1 * n) for n in range(5)]
    few, all_of_them = learn(rows[2:], SPREADS), learn(rows, SPREADS)
    assert all_of_them.steps == few.steps
    assert all_of_them.log_shift([NEW])[0] == few.log_shift([NEW])[0]
