import csv
import dataclasses
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from pyarrow import parquet

from paceline.errors import InvalidInputError
from paceline.measurements.export import export_records
from paceline.measurements.records import Record, record_from_line

ROOT = Path(__file__).parents[3]
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
    export_records(RECORDS, tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column("samples_s").to_pylist() == [[0.25, 0.5, 1.0]]


def test_parquet_takes_what_records_leave_open(tmp_path):
    """Fields that the first record has not may be those of the second."""
    other = dataclasses.replace(
        RECORDS[0], driver_version="580.1", samples_s=(), temperature_c=61.5
    )
    export_records([RECORDS[0], other], tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column("driver_version").to_pylist() == [RECORDS[0].driver_version, "580.1"]
    assert table.column("samples_s").to_pylist() == [[0.25, 0.5, 1.0], []]


@pytest.mark.parametrize(("ending", "module"), [("parquet", "pyarrow")])
def test_a_package_that_lacks_is_an_extra_of_ours(tmp_path, monkeypatch, ending, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidInputError) as raised:
        export_records(RECORDS, tmp_path / f"out.{ending}")
    extra = re.search(r"paceline\[(\w+)\]", raised.value.hint)
    assert extra is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["optional-dependencies"][extra[1]]
    assert any(one.startswith(module) for one in needed)


def test_unknown_format_and_unwritable_path_are_messages(tmp_path):
    with pytest.raises(InvalidInputError, match="no format"):
        export_records(RECORDS, tmp_path / "out.xls")
    with pytest.raises(InvalidInputError, match="cannot write"):
        export_records(RECORDS, tmp_path / "none" / "out.csv")
