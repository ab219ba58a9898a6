"""The page of ops and rewrites: nothing of the code is missing there, and its tests exist."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from paceline.model.graph.costs import Configuration
from paceline.model.graph.graph import OpKind

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "explanation" / "ops-and-rewrites.md").read_text(encoding="utf-8")
OPS, REWRITES = PAGE.split("## Rewrites")


def rows(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_every_kind_of_op_is_listed():
    assert {name for row in rows(OPS) for name in names(row[1])} == {kind.name for kind in OpKind}


def test_every_setting_is_listed_with_its_values():
    listed = {}
    for row in rows(REWRITES):
        for name in names(row[1]):
            listed.setdefault(name, set()).update(names(row[2]))
    hints = get_type_hints(Configuration)
    assert listed.keys() == {field.name for field in fields(Configuration)}
    for name, hint in hints.items():
        if get_origin(hint) is Literal:
            assert listed[name] == set(get_args(hint))


@pytest.mark.parametrize("row", rows(OPS) + rows(REWRITES), ids=lambda row: row[0][:40])
def test_a_row_names_files_and_a_test_that_exist(row):
    file, _, test = names(row[-1])[0].partition("::")
    text = (ROOT / "tests" / "unit" / "model" / file).read_text(encoding="utf-8")
    assert f"def {test}(" in text
    for path in names(row[-2]):
        package = ROOT / "src" / "paceline"
        assert any(list(package.glob(f"{room}{path}")) for room in ("model/", "")), path
