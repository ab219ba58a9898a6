"""Run the list of calls under a source tree, or compare the answers of two runs.

``python -m calls run --src PATH --out FOLDER [--only PATTERN] [--every N]``
``python -m calls compare FOLDER FOLDER [--map renamed.csv]``
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from calls.answers import read_answers
from calls.compare import differences, read_renamed, summary
from calls.listed import read_calls

ROOT = Path(__file__).parents[2]
#: The linear algebra library reads it when it is loaded; threads would take time and save none.
_THREADS = "OPENBLAS_NUM_THREADS"


def main(argv: list[str] | None = None) -> int:
    """Do what the words say; 1 where two runs differ or a call raised what no user should see."""
    asked = _parser().parse_args(argv)
    if asked.verb == "run":
        os.environ.setdefault(_THREADS, "1")
        from calls.run import run_calls

        calls = read_calls(only=asked.only, every=asked.every)
        return run_calls(calls, source=asked.src.resolve(), folder=asked.out.resolve())
    before, after = read_answers(asked.before), read_answers(asked.after)
    found = differences(before, after, read_renamed(asked.map), rel_tol=asked.rel_tol)
    print(summary(found, num_compared=len(before.keys() & after.keys()), most=asked.most))
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m calls", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="run the calls, and write their answers")
    run.add_argument("--src", type=Path, default=ROOT / "src", help="source tree with `paceline`")
    run.add_argument("--out", type=Path, required=True, help="folder of the answers")
    run.add_argument("--only", default="", help="calls in which this regular expression is found")
    run.add_argument("--every", type=int, default=1, help="each n-th of those")
    compare = verbs.add_parser("compare", help="compare the values of two runs")
    compare.add_argument("before", type=Path)
    compare.add_argument("after", type=Path)
    compare.add_argument("--map", type=Path, help="CSV of renamed keys and words: before,after")
    compare.add_argument("--rel-tol", type=float, default=1e-6, help="relative difference allowed")
    compare.add_argument("--most", type=int, default=5, help="values shown per call")
    return parser


if __name__ == "__main__":
    sys.exit(main())
