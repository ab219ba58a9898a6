"""Records survive their file, and a damaged line is a clear error."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InvalidInputError
from paceline.measurements.records import Record, record_from_line, record_to_line

FINITE = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
RECORDS = st.builds(
    Record,
    kind=st.sampled_from(["step", "operator", "collective"]),
    outcome=st.sampled_from(["ok", "out-of-memory", "failed"]),
    recorded_at=st.just("2026-11-20T00:00:00Z"),
    source=st.text(min_size=1),
    workload=st.text(min_size=1),
    device_name=st.text(min_size=1),
    batch_per_device=st.none() | FINITE,
    channels_last=st.none() | st.booleans(),
    samples_s=st.lists(FINITE).map(tuple),
    reason=st.text(),
)
MINIMAL = Record(
    kind="step",
    outcome="ok",
    recorded_at="2026-11-20T00:00:00Z",
    source="test",
    workload="resnet50",
    device_name="A100 SXM4 80GB",
)


@given(RECORDS)
def test_a_record_reads_back_equal(record):
    assert record_from_line(record_to_line(record)) == record


@given(RECORDS)
def test_a_record_is_one_line(record):
    assert "\n" not in record_to_line(record)


def test_unknown_facts_are_not_written():
    assert "clock_hz" not in json.loads(record_to_line(MINIMAL))


def test_all_samples_are_kept_and_the_median_is_of_them():
    record = dataclasses.replace(MINIMAL, samples_s=(3.0, 1.0, 2.0))
    assert record_from_line(record_to_line(record)).samples_s == (3.0, 1.0, 2.0)
    assert record.median_s == 2.0
    assert MINIMAL.median_s is None


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 99},
        {"kind": "guess"},
        {"outcome": 3},
        {"num_devices": "two"},
        {"num_devices": True},
        {"samples_s": [1.0, "x"]},
        {"samples_s": 1.0},
        {"surprise": 1},
        {"clock_hz": "fast"},
    ],
)
def test_a_wrong_value_is_refused(change):
    values = json.loads(record_to_line(MINIMAL)) | change
    with pytest.raises(InvalidInputError):
        record_from_line(json.dumps(values))


def test_a_missing_field_is_named():
    values = json.loads(record_to_line(MINIMAL))
    del values["device_name"]
    with pytest.raises(InvalidInputError, match="device_name"):
        record_from_line(json.dumps(values))


@given(st.text())
def test_no_text_crashes_the_reader(line):
    try:
        record_from_line(line)
    except InvalidInputError:
        return
    raise AssertionError("a random text was read as a record")


@pytest.mark.parametrize("line", ["[" * 100_000, '{"samples_s": [NaN]}', "null", "3"])
def test_hostile_lines_are_refused(line):
    with pytest.raises(InvalidInputError):
        record_from_line(line)
