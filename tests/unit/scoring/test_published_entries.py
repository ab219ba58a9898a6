"""Every entry that the tables of scoring name is a model of a module beside the trace worker."""

from __future__ import annotations

import ast
import csv
import re
from importlib.resources import files

import pytest

_WORKERS = files("paceline.trace").joinpath("workers")
_TABLES = sorted(
    item.name
    for item in files("paceline.scoring").joinpath("data").iterdir()
    if item.name.endswith(".csv")
)


def models_of(scheme: str) -> set[str]:
    """Keys of ``_MODELS`` in the module of a scheme, read without torch."""
    name = "published_models" if scheme == "published" else scheme
    tree = ast.parse(_WORKERS.joinpath(f"{name}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_MODELS":
            assert isinstance(node.value, ast.Dict)
            return {key.value for key in node.value.keys if isinstance(key, ast.Constant)}
    raise AssertionError(f"{name} has no models")


def entries() -> set[str]:
    found: set[str] = set()
    for table in _TABLES:
        text = files("paceline.scoring").joinpath("data", table).read_text(encoding="utf-8")
        for row in csv.DictReader(text.splitlines()):
            entry = row.get("entry") or ""
            if entry.startswith("published"):
                found.add(entry)
    return found


def test_there_are_such_entries() -> None:
    assert len(entries()) > 10


@pytest.mark.parametrize("entry", sorted(entries()))
def test_the_worker_has_a_model_of_that_name(entry: str) -> None:
    scheme, _, name = entry.partition(":")
    pattern = re.sub(r"\\\d", ".+", name)
    assert any(re.fullmatch(pattern, known) for known in models_of(scheme))
