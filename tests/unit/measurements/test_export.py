import csv
import json

import pytest

from paceline.errors import InvalidInputError
from paceline.measurements.export import export_records
from paceline.measurements.records import Record, record_from_line

RECORDS = [
    Record(
        kind="step",
        outcome="ok",
        recorded_at="2026-11-20",
        source="test",
        workload="=HYPERLINK(1)",
        device_name="d",
        samples_s=(0.25, 0.5, 1.0),
        batch_per_device=8,
    )
]


def test_csv_has_units_in_its_header_and_runs_no_formula(tmp_path):
    path = tmp_path / "out.csv"
    export_records(RECORDS, path)
    (row,) = csv.DictReader(path.read_text().splitlines())
    assert row["median_s"] == "0.5"
    assert row["samples_s"] == "0.25 0.5 1.0"
    assert not row["workload"].startswith("=")


def test_json_and_jsonl_keep_every_sample(tmp_path):
    export_records(RECORDS, tmp_path / "out.json")
    export_records(RECORDS, tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.json").read_text())[0]["samples_s"] == [0.25, 0.5, 1.0]
    assert record_from_line((tmp_path / "out.jsonl").read_text()) == RECORDS[0]


def test_parquet_round_trip(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export_records(RECORDS, tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column("samples_s").to_pylist() == [[0.25, 0.5, 1.0]]


def test_unknown_format_and_unwritable_path_are_messages(tmp_path):
    with pytest.raises(InvalidInputError, match="no format"):
        export_records(RECORDS, tmp_path / "out.xls")
    with pytest.raises(InvalidInputError, match="cannot write"):
        export_records(RECORDS, tmp_path / "none" / "out.csv")
