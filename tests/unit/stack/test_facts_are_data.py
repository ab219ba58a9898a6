"""Facts live in data files: no source file of these rooms holds a version number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import paceline.deployment
import paceline.stack
from paceline.stack.tables import load_tables

ROOMS = [Path(room.__file__).parent for room in (paceline.stack, paceline.deployment)]
SOURCES = sorted(path for room in ROOMS for path in room.rglob("*.py"))
VERSION = re.compile(r"(?<![\w.\[])\d+\.\d+|\bcuda[ _-]?\d|\bcu\d{3}|\bsm_\d|(?i:\bR\d{3}\b)")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_source_file_holds_a_version_number(path: Path) -> None:
    found = [line for line in path.read_text().splitlines() if VERSION.search(line)]
    assert found == []


def test_every_fact_has_a_source() -> None:
    tables = load_tables()
    rows = (*tables.builds, *tables.kernels, *tables.precisions, *tables.images)
    assert all(row.source for row in rows)
    assert all(row.target.source for row in (*tables.gpus, *tables.name_targets))


def test_builds_are_unique() -> None:
    keys = [(b.framework, b.release, b.tag, b.platform_version) for b in load_tables().builds]
    assert len(keys) == len(set(keys))
