"""Records as CSV, JSON or Parquet, with the names and units of `Record`."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.errors import InvalidInputError
from paceline.measurements.records import Record, record_to_line
from paceline.writing import whole_file


def export_records(records: Sequence[Record], path: Path) -> None:
    """Write ``records`` in the format that the ending of ``path`` names.

    Raises:
        InvalidInputError: Another ending, a path that cannot be written, or Parquet without
            pyarrow.
    """
    writers: dict[str, Callable[[Sequence[Record], Path], None]] = {
        ".csv": _write_csv,
        ".json": _write_json,
        ".jsonl": _write_jsonl,
        ".parquet": _write_parquet,
    }
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise InvalidInputError(
            f"`{path}` has no format that is known", hint=f"end it with {', '.join(writers)}"
        )
    with whole_file(path) as draft:
        writer(records, draft)


def _row(record: Record) -> dict[str, object]:
    values = {f.name: getattr(record, f.name) for f in dataclasses.fields(Record)}
    return {**values, "median_s": record.median_s}


def _write_csv(records: Sequence[Record], path: Path) -> None:
    names = [*(f.name for f in dataclasses.fields(Record)), "median_s"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for record in records:
            writer.writerow({k: _cell(v) for k, v in _row(record).items()})


def _cell(value: object) -> object:
    """Lists are joined by spaces; what a spreadsheet would run as a formula is quoted."""
    if isinstance(value, tuple):
        return " ".join(repr(item) for item in value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return f"'{value}"
    return "" if value is None else value


def _write_json(records: Sequence[Record], path: Path) -> None:
    path.write_text(json.dumps([_row(record) for record in records], indent=1) + "\n")


def _write_jsonl(records: Sequence[Record], path: Path) -> None:
    path.write_text("".join(record_to_line(record) + "\n" for record in records))


def _write_parquet(records: Sequence[Record], path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InvalidInputError(
            "Parquet needs pyarrow", hint="`pip install 'paceline[parquet]'`, or export to .csv"
        ) from None
    rows = [
        {k: list(v) if isinstance(v, tuple) else v for k, v in _row(r).items()} for r in records
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
