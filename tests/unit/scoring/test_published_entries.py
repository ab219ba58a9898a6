"""Every published network that the tables of scoring name is known by that name."""

from __future__ import annotations

import csv
import re
from importlib.resources import files

import pytest

from paceline.model.names.registry import names_of

_TABLES = [
    item
    for room in ("paceline.scoring", "paceline.model")
    for item in files(room).joinpath("data").iterdir()
    if item.name.endswith("names.csv")
    or (room == "paceline.scoring" and item.name.endswith(".csv"))
]


def models_of(scheme: str) -> set[str]:
    """Names of published networks; other tests compare the table with what is built."""
    entries = (entry.split(":") for entry in names_of("published").entries)
    return {name for one, name in entries if one == scheme}


def entries() -> set[str]:
    found: set[str] = set()
    for table in _TABLES:
        text = table.read_text(encoding="utf-8")
        for row in csv.DictReader(text.splitlines()):
            entry = row.get("entry") or ""
            if entry.startswith("published"):
                found.add(entry)
    return found


def test_there_are_such_entries() -> None:
    assert len(entries()) > 10


@pytest.mark.parametrize("entry", sorted(entries()))
def test_there_is_a_network_of_that_name(entry: str) -> None:
    scheme, _, name = entry.partition(":")
    pattern = re.sub(r"\\\d", ".+", name)
    assert any(re.fullmatch(pattern, known) for known in models_of(scheme))
