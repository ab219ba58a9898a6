"""What an older tree told of rows that no fit saw, beside what today's tells.

    PYTHONPATH=tools python -m accuracy_time.before ROWS TREE --cache FOLDER

ROWS is a folder that `accuracy_time.rows` wrote, TREE the root of a checkout, which answers the
rows of `SETS` by its own `tools/scored_rows.py`. Prints one line for each set.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scoreboard_compare import scored_by

#: Sets of which no fit saw a row.
SETS = (
    "huggingface peft", "pytorch ao", "LitGPT", "LitGPT, several", "FlagOpen FlagPerf",
    "detectron2, several", "Megatron-Bridge, several", "MLPerf training, several",
)  # fmt: skip
#: More change a median by less than what trees differ by.
MOST_ROWS = 100
HEADING = (
    "| set | rows | told, before | now | ratio, before | now | median, before | now | p90, before "
    "| now |",
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
)


def errors_before(rows: pd.DataFrame, told: pd.DataFrame) -> pd.Series:
    """Log of predicted over measured time by the older tree, NaN where it has no answer.

    By the rate where rows state one, as that needs no reading of their items; else by the step,
    whose measured time today's answer has.

    Args:
        rows: With today's ``mid_s`` and ``log_error``.
        told: The older tree's answers, in the order of the rows.
    """
    measured_s = rows.mid_s.astype(float) / np.exp(rows.log_error.astype(float))
    by_step = np.log(told.step_mid_s.astype(float) / measured_s)
    rate = pd.to_numeric(rows.throughput, errors="coerce")
    by_rate = np.log(rate / told.throughput_mid.astype(float))
    return by_rate.where(np.isfinite(by_rate), by_step)


def line(name: str, before: pd.Series, now: pd.Series) -> str:
    """One set; ratios and errors are of the rows that both trees answer, else of today's alone."""
    both = before.notna() & now.notna()
    cells = [str(len(now)), str(int(before.notna().sum())), str(int(now.notna().sum()))]
    parts = [before[both], now[both] if both.any() else now.dropna()]
    for shown in (_ratio, _median, _p90):
        cells += [shown(one) if len(one) else "–" for one in parts]
    return f"| {name} | {' | '.join(cells)} |"


def _ratio(errors: pd.Series) -> str:
    return f"{np.exp(errors.median()):.2f}"


def _median(errors: pd.Series) -> str:
    return f"{np.expm1(errors.abs().median()):.0%}"


def _p90(errors: pd.Series) -> str:
    return f"{np.expm1(errors.abs().quantile(0.9)):.0%}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("tree", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    asked = parser.parse_args()
    print("\n".join(HEADING))
    for name in SETS:
        rows = pd.read_pickle(asked.rows / f"{name}.pkl").query("task == 'train'").head(MOST_ROWS)
        before = errors_before(rows, scored_by(asked.tree, rows, asked.cache))
        print(line(name, before, rows.log_error.astype(float)), flush=True)


if __name__ == "__main__":
    main()
