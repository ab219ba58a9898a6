"""Names that model libraries give their models, for `paceline score` to know without a framework.

Usage: python tools/score_library_names.py
Writes src/paceline/trace/data/library_names.csv from the timm and torchvision installed here:
one line per name, older names of timm included.
"""

from __future__ import annotations

import csv
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "src/paceline/trace/data/library_names.csv"
WORKERS = ROOT / "src/paceline/trace/workers"


def library_names() -> Iterator[tuple[str, str]]:
    """Library and name of every model, in the order in which a spelling is looked up."""
    sys.path.insert(0, str(WORKERS))
    importlib.import_module("torch_models").import_torchvision()
    timm = importlib.import_module("timm")
    registry = importlib.import_module("timm.models._registry")
    torchvision = importlib.import_module("torchvision")
    yield from (("timm", name) for name in timm.list_models())
    yield from (("torchvision", name) for name in torchvision.models.list_models())
    yield from (("timm", name) for name in sorted(registry._deprecated_models))


def main() -> None:
    """Write the table."""
    with OUT.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("library", "name"))
        table.writerows(dict.fromkeys(library_names()))


if __name__ == "__main__":
    main()
