"""Score serving predictions on published runs; write a page with the worst cases.

PYTHONPATH=tools python -m accuracy_serving ../shared/truth --out benchmarks/accuracy_serving.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from accuracy_serving.predicted import predicted
from accuracy_serving.report import page
from accuracy_serving.rows import read_runs


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("truth", type=Path)
    parser.add_argument("--cache", type=Path, help="folder of traced models")
    parser.add_argument("--rows", type=Path, help="file for every run with its prediction (CSV)")
    parser.add_argument("--out", type=Path, help="file to write; printed without it")
    asked = parser.parse_args()
    path = asked.truth / "ops" / "aic_silicon_serving.csv.xz"
    if not path.is_file():
        sys.exit(f"no file {path}: name the folder of published measurements")
    runs = predicted(read_runs(path), asked.cache, lambda line: print(line, file=sys.stderr))
    if asked.rows:
        runs.to_csv(asked.rows, index=False)
    text = page(runs) + "\n"
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
