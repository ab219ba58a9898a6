"""Examples in docstrings are tests."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import paceline

_PACKAGE = Path(paceline.__file__).parent
#: What stands beside the package and explains itself by examples.
_BESIDE = ("other_kernels",)
_MODULES = sorted(
    ".".join(("paceline", *path.relative_to(_PACKAGE).with_suffix("").parts))
    for path in _PACKAGE.rglob("*.py")
    if "workers" not in path.parts and path.name != "__main__.py" and ">>>" in path.read_text()
)


@pytest.mark.parametrize("name", [*_MODULES, *_BESIDE])
def test_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name.startswith("paceline.frontends."):
        # A worker finds the modules beside it, and those that rebuild, by their bare names.
        for folder in (name.split(".")[2], "rebuilt", "torch"):
            monkeypatch.syspath_prepend(str(_PACKAGE / "frontends" / folder))
    results = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert results.attempted
    assert results.failed == 0
