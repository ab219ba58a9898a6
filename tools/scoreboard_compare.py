"""The rows of the scoreboard under two trees of the code: errors by set, and what moved.

Usage: python tools/scoreboard_compare.py BEFORE AFTER [--rows every] [--truth FOLDER]
       [--cache FOLDER]
BEFORE and AFTER are roots of two checkouts. Each scores the same rows by its own
``tools/scored_rows.py``, in a process of its own, with traced models from one cache. The sample of
every day is ``SAMPLE_ROWS`` rows, equally many of each set of ``score_table``, drawn with a seed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from score_table import SHARED, TABLES, TOLD, chosen_rows, told_and_measured

SEED = 23
SAMPLE_ROWS = 300
#: A figure of the scoreboard may get worse by so many points.
WORSE_FRAC = 0.005
COMPARED = (*TOLD, "memory_low_bytes", "memory_mid_bytes", "memory_high_bytes", "entry", "reason")
_MEMORY = "memory_mid_bytes"
#: Answers are written with six digits: what differs by less did not move.
_WRITTEN_FRAC = 1e-5
_SCORE = (
    "import sys; from pathlib import Path; import pandas as pd; from scored_rows import scored; "
    "rows = pd.read_csv(sys.argv[1], low_memory=False); columns = sys.argv[4].split(','); "
    "scored(rows, columns, Path(sys.argv[3]))[columns].to_csv(sys.argv[2], index=False)"
)


def rows_of_sets(truth: Path) -> pd.DataFrame:
    """Every row of the sets of the scoreboard, with the name of its set.

    Args:
        truth: Folder of the published tables.
    """
    parts = [
        chosen_rows(truth / file, is_timm=name == "timm", is_shared=name in SHARED).assign(set=name)
        for name, file in (TABLES | SHARED).items()
    ]
    return pd.concat(parts, ignore_index=True)


def sample(rows: pd.DataFrame, num_rows: int = SAMPLE_ROWS, seed: int = SEED) -> pd.DataFrame:
    """Rows drawn with a seed, equally many of each set, all of a set that has fewer."""
    drawn = np.random.default_rng(seed)
    left, chosen = num_rows, []
    sets = sorted((part for _, part in rows.groupby("set", sort=False)), key=len)
    for number, part in enumerate(sets):
        count = min(len(part), left // (len(sets) - number))
        chosen.append(part.iloc[np.sort(drawn.choice(len(part), count, replace=False))])
        left -= count
    return pd.concat(chosen).sort_index()


def scored_by(tree: Path, rows: pd.DataFrame, cache: Path) -> pd.DataFrame:
    """The answers of one tree to rows, in their order.

    Args:
        tree: Root of a checkout.
        rows: As `paceline score` reads them.
        cache: Folder of traced models.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "rows.csv", Path(folder) / "answers.csv"
        rows.to_csv(given, index=False)
        code = os.pathsep.join(str(tree.resolve() / part) for part in ("src", "tools"))
        subprocess.run(
            [sys.executable, "-c", _SCORE, str(given), str(out), str(cache), ",".join(COMPARED)],
            env=os.environ | {"PYTHONPATH": code}, check=True,
        )  # fmt: skip
        return pd.read_csv(out, low_memory=False).set_index(rows.index)


def compared(rows: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """One line per set and task: errors before and after, and what moved.

    Args:
        rows: With ``set`` and what was measured.
        before: Answers of one tree.
        after: Of the other.
    """
    log_change = np.log(after.step_mid_s / before.step_mid_s)
    memory_change = np.log(after[_MEMORY] / before[_MEMORY])
    is_told = pd.DataFrame({"before": before.step_mid_s.notna(), "after": after.step_mid_s.notna()})
    errors = {
        when: np.abs(np.log((known := told_and_measured(rows.join(told))).mid / known.measured))
        for when, told in (("before", before), ("after", after))
    }
    lines = []
    for (name, task), part in rows.groupby(["set", "task"], sort=False):
        lines.append(
            {
                "set": name, "task": task, "rows": len(part),
                "told before": is_told.before[part.index].sum(),
                "told after": is_told.after[part.index].sum(),
                "median before": _median_frac(errors["before"], part.index),
                "median after": _median_frac(errors["after"], part.index),
                "moved": (log_change[part.index].abs() > _WRITTEN_FRAC).sum(),
                "largest": np.expm1(log_change[part.index].abs().max()),
                "memory moved": (memory_change[part.index].abs() > _WRITTEN_FRAC).sum(),
                "memory largest": np.expm1(memory_change[part.index].abs().max()),
            }
        )  # fmt: skip
    return pd.DataFrame(lines)


def _median_frac(log_errors: pd.Series, index: Iterable[int]) -> float:
    return float(np.expm1(log_errors.reindex(index).median()))


def moved_rows(rows: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """Rows whose step or memory differs, or that one tree alone answers; the furthest first."""
    steps = np.log(after.step_mid_s / before.step_mid_s).abs()
    memory = np.log(after[_MEMORY] / before[_MEMORY]).abs()
    is_one = before.reason.astype(object).fillna("") != after.reason.astype(object).fillna("")
    change = pd.concat([steps, memory], axis=1).max(axis=1).mask(is_one, np.inf)
    table = rows[["set", "task", "model", "framework", "gpu", "n_gpus", "parallelism"]].assign(
        step=after.step_mid_s / before.step_mid_s, memory=after[_MEMORY] / before[_MEMORY],
        before=before.reason, after=after.reason, change=change,
    )  # fmt: skip
    return table[change > _WRITTEN_FRAC].sort_values("change", ascending=False)


def main() -> int:
    """Print both tables; 1 where a median error got worse by more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rows", choices=("sample", "every"), default="sample")
    parser.add_argument("--sets", default="", help="only sets whose name has this in it")
    parser.add_argument("--truth", default=Path("../shared/truth/e2e"), type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--moved", type=int, default=40, help="rows listed that moved")
    asked = parser.parse_args()
    rows = rows_of_sets(asked.truth)
    rows = rows if asked.rows == "every" else sample(rows)
    rows = rows[rows.set.str.contains(asked.sets, regex=False)]
    before, after = (scored_by(tree, rows, asked.cache) for tree in (asked.before, asked.after))
    with pd.option_context("display.width", 220, "display.max_columns", 20, "display.max_rows", 99):
        table = compared(rows, before, after)
        print(table.to_string(index=False, float_format=lambda value: f"{value:.4%}"))
        print(moved_rows(rows, before, after).head(asked.moved).to_string(max_colwidth=60))
    return int((table["median after"] > table["median before"] + WORSE_FRAC).any())


if __name__ == "__main__":
    sys.exit(main())
