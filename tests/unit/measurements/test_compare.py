from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import RegressionError
from paceline.measurements.compare import compare, other_machines, require_no_regression
from paceline.measurements.ledger import LedgerRow, summarize_ledger
from paceline.measurements.records import Record
from paceline.measurements.statistics import median_ratio, relative_spread

TIMES = st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=40)


def record(samples, **changes):
    base = Record(
        kind="step",
        outcome="ok" if len(samples) else "failed",
        recorded_at="2026-11-20T12:00:00+00:00",
        source="test",
        workload="resnet18",
        device_name="d",
        cell="resnet18/b8",
        samples_s=tuple(samples),
    )
    return replace(base, **changes)


def noisy(center, seed, count=40):
    return np.random.default_rng(seed).lognormal(np.log(center), 0.02, count).tolist()


@given(TIMES)
def test_a_ratio_lies_in_its_interval_and_the_interval_in_what_samples_allow(samples):
    interval = median_ratio(samples, samples)
    widest = 1.000001 * max(samples) / min(samples)
    assert 1 / widest <= interval.low <= interval.mid <= interval.high <= widest


@given(TIMES, st.floats(0.1, 10.0))
def test_ratio_scales_with_its_numerator(samples, factor):
    scaled = median_ratio([factor * s for s in samples], samples)
    assert scaled.mid == pytest.approx(factor)


def test_the_interval_covers_the_true_ratio_as_often_as_it_says():
    hits = 0
    for seed in range(200):
        interval = median_ratio(noisy(1.0, seed), noisy(1.0, 200 + seed), confidence=0.9)
        hits += interval.low <= 1.0 <= interval.high
    assert 0.82 <= hits / 200 <= 0.97


def test_no_confidence_leaves_the_middle_and_full_confidence_all_medians():
    samples = noisy(1.0, 1)
    middle = median_ratio(samples, [1.0], confidence=0.0)
    assert middle.low == middle.high == pytest.approx(middle.mid, rel=0.01)
    widest = median_ratio([1.0, 3.0], [1.0], confidence=1.0)
    assert (widest.low, widest.mid, widest.high) == (1.0, 2.0, 3.0)


def test_spread_of_equal_samples_is_zero():
    assert relative_spread([2.0, 2.0, 2.0]) == 0.0


@pytest.mark.parametrize(
    ("after", "verdict"), [(1.0, "same"), (1.2, "slower"), (0.8, "faster"), (1.05, "unsure")]
)
def test_verdicts(after, verdict):
    (row,) = compare([record(noisy(1.0, 1))], [record(noisy(after, 2))])
    assert row.verdict == verdict


def test_a_cell_that_no_longer_runs_broke_and_one_that_runs_again_is_mended():
    (broke,) = compare([record([1.0, 1.0])], [record([])])
    (mended,) = compare([record([])], [record([1.0, 1.0])])
    assert (broke.verdict, mended.verdict) == ("broke", "mended")


def test_cells_of_one_side_only_are_listed():
    rows = compare([record([1.0])], [record([1.0], cell="other")])
    assert [row.verdict for row in rows] == ["only-before", "only-after"]


def test_of_several_runs_the_newest_counts():
    old = record(noisy(9.0, 3), recorded_at="2026-11-19T00:00:00+00:00")
    (row,) = compare([old, record(noisy(1.0, 1))], [record(noisy(1.0, 2))])
    assert row.verdict == "same"


def test_only_regressions_fail_and_the_worst_is_named():
    fine = compare([record(noisy(1.0, 1))], [record(noisy(0.5, 2))])
    require_no_regression(fine)
    bad = compare([record(noisy(1.0, 1))], [record(noisy(1.5, 2))])
    with pytest.raises(RegressionError, match=r"resnet18/b8: 1\.5") as raised:
        require_no_regression(bad)
    assert raised.value.exit_code == 5
    worse = compare([record(noisy(1.0, 1), cell="a")], [record(noisy(2.0, 2), cell="a")])
    with pytest.raises(RegressionError, match=r"2 cells regressed, worst a: 2\.0"):
        require_no_regression([*bad, *worse])
    broken = compare([record([1.0], cell="b")], [record([], cell="b")])
    with pytest.raises(RegressionError, match="3 cells regressed, worst b: it fails now"):
        require_no_regression([*bad, *worse, *broken])


def test_a_spread_is_that_of_the_quartiles_in_units_of_the_median():
    times = [1.0, 2.0, 4.0, 5.0, 9.0]
    assert relative_spread(times) == pytest.approx((5.0 - 2.0) / 4.0)
    assert relative_spread([10 * time for time in times]) == pytest.approx(relative_spread(times))


def test_exchanging_the_sides_mirrors_the_verdict():
    a, b = [record(noisy(1.0, 1))], [record(noisy(1.4, 2))]
    assert {compare(a, b)[0].verdict, compare(b, a)[0].verdict} == {"slower", "faster"}


def test_ledger_summary_counts_only_pairs():
    rows = [
        LedgerRow(record=record([1.0]), predicted_s=1.1, predicted_low_s=0.9, predicted_high_s=1.3),
        LedgerRow(record=record([1.0]), predicted_s=0.7, predicted_low_s=0.6, predicted_high_s=0.8),
        LedgerRow(record=record([])),
    ]
    summary = summarize_ledger(rows)
    assert summary is not None
    assert summary.num_rows == 2
    assert summary.median_error_frac == pytest.approx(0.2)
    assert summary.coverage_frac == 0.5
    assert summarize_ledger([rows[2]]) is None


@pytest.mark.parametrize(("low_s", "high_s"), [(0.2, 0.4), (None, 0.4), (0.2, None), (0.3, 0.4)])
def test_a_measurement_on_the_bound_is_inside_and_a_missing_bound_holds_none(low_s, high_s):
    for measured_s in (0.1999, 0.2, 0.3, 0.4, 0.4001):
        row = LedgerRow(
            record=record([measured_s]), predicted_s=0.3, predicted_low_s=low_s,
            predicted_high_s=high_s,
        )  # fmt: skip
        summary = summarize_ledger([row])
        is_inside = None not in (low_s, high_s) and low_s <= measured_s <= high_s
        assert summary is not None
        assert summary.coverage_frac == is_inside


def test_the_median_and_the_worst_error_are_of_both_signs():
    rows = [LedgerRow(record=record([1.0]), predicted_s=found) for found in (0.4, 1.1, 1.3)]
    summary = summarize_ledger(rows)
    assert summary is not None
    assert summary.median_error_frac == pytest.approx(0.3)
    assert summary.worst_error_frac == pytest.approx(0.6)


def test_two_machines_are_named_and_one_is_not() -> None:
    one, two = record([0.1] * 9, host_cpu="A"), record([0.1] * 9, host_cpu="B")
    assert other_machines(compare([one], [one])) == ""
    assert "with A before" in other_machines(compare([one], [two]))
