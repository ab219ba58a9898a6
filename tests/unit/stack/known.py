"""Combinations that documentation and issue threads say work or fail."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from paceline.stack.queries import Constraints

KNOWN = Path(__file__).parent / "data" / "known_combinations.csv"


def known_rows(works: str) -> list[Mapping[str, str]]:
    with KNOWN.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["works"] == works]


def constraints_of(row: Mapping[str, str]) -> Constraints:
    return Constraints(**{f.name: row[f.name] or None for f in fields(Constraints)})


def row_id(row: Mapping[str, str]) -> str:
    return " ".join(row[f.name] for f in fields(Constraints) if row[f.name])
