"""The first accuracy table: `paceline score` against published single-GPU rows, as anybody runs it.

Usage: python tools/score_table.py [FOLDER] [--cache FOLDER] > benchmarks/score.md
FOLDER holds the published measurements (default ../shared/truth/e2e). Of timm every twentieth model
by name is taken with all its GPU rows; of the other tables every quality-A row on one GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

from paceline.app.scoring import score_rows
from paceline.catalog import load_catalog

TABLES = {
    "timm": "timm.csv",
    "Lambda TensorFlow": "lambda_tensorflow_benchmark.csv",
    "Lambda PyTorch v1, v2": "lambda_deeplearning_benchmark.csv",
    "Lambda PyTorch v0": "lambda_deeplearning_benchmark_v0.csv",
}
EVERY_NTH_TIMM_MODEL = 20


def chosen_rows(path: Path, *, is_timm: bool) -> pd.DataFrame:
    """Quality-A rows on one GPU with a throughput; for timm those of the sampled models."""
    table = pd.read_csv(path, low_memory=False)
    on_one_gpu = (table.n_gpus == 1) & ~table.gpu.fillna("CPU").str.startswith("CPU")
    table = table[on_one_gpu & (table.quality == "A") & (table.throughput > 0)]
    if not is_timm:
        return table
    sampled = sorted(table.model.unique())[::EVERY_NTH_TIMM_MODEL]
    return table[table.model.isin(sampled)]


def scored(table: pd.DataFrame, cache: Path | None) -> pd.DataFrame:
    """The rows beside what `paceline score` says of them."""
    with tempfile.TemporaryDirectory() as folder:
        rows, out = Path(folder) / "rows.csv", Path(folder) / "out.csv"
        table.to_csv(rows, index=False)
        score_rows(
            rows, out, catalog=load_catalog(), cache_folder=cache,
            on_progress=lambda line: print(line, file=sys.stderr),
        )  # fmt: skip
        answers = pd.read_csv(out)
    columns = ["throughput_low", "throughput_mid", "throughput_high", "entry", "reason"]
    return table.reset_index(drop=True).join(answers[columns])


def lines_of(name: str, rows: pd.DataFrame) -> list[str]:
    """One line per task: rows, coverage, errors, share inside the interval."""
    lines = []
    for task, part in rows.groupby("task"):
        known = part[part.throughput_mid.notna()]
        error = np.abs(known.throughput_mid / known.throughput - 1)
        inside = known.throughput.between(known.throughput_low, known.throughput_high)
        lines.append(
            f"| {name} | {task} | {len(part):,} | {len(known) / len(part):.0%} | "
            f"{error.median():.1%} | {error.mean():.1%} | {error.quantile(0.9):.0%} | "
            f"{inside.mean():.0%} |"
        )
    return lines


def worst_lines(rows: pd.DataFrame, num_lines: int = 10) -> list[str]:
    """The models with the largest median error, by name."""
    known = rows[rows.throughput_mid.notna()]
    log_error = np.log(known.throughput_mid / known.throughput)
    by_model = log_error.groupby([known.set, known.task, known.model]).median()
    worst = by_model.reindex(by_model.abs().sort_values(ascending=False).index)[:num_lines]
    return [f"| {' | '.join(key)} | {np.exp(value):.2f} |" for key, value in worst.items()]


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="../shared/truth/e2e", type=Path)
    parser.add_argument("--cache", type=Path, default=None)
    asked = parser.parse_args()
    if not asked.folder.is_dir():
        sys.exit(f"no folder {asked.folder}: name the one that holds {', '.join(TABLES.values())}")
    every = []
    for name, file in TABLES.items():
        table = chosen_rows(asked.folder / file, is_timm=name == "timm")
        every.append(scored(table, asked.cache).assign(set=name))
    rows = pd.concat(every, ignore_index=True)
    today = datetime.now(tz=UTC).date()
    print(f"# What `paceline score` says of published rows\n\n{today}, `tools/score_table.py`.\n")
    print("Single-GPU rows of quality A; throughput predicted from the input columns only. Most of")
    print("these rows took part in the fit of the built-in calibration, so this table shows what a")
    print("user sees on hardware that was measured; devices and models held out stand in")
    print(f"[accuracy.md](accuracy.md). timm: every {EVERY_NTH_TIMM_MODEL}th model by name.\n")
    print("| set | task | rows | predicted | median | mean | 90 % below | inside 80 % interval |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for name, part in rows.groupby("set", sort=False):
        print("\n".join(lines_of(name, part)))
    print("\n## Furthest off, by name (predicted over measured)\n")
    print("| set | task | model | ratio |\n|---|---|---|--:|")
    print("\n".join(worst_lines(rows)))
    reasons = rows[rows.throughput_mid.isna()].reason.value_counts()[:10]
    print("\n## Not predicted\n\n| rows | reason |\n|--:|---|")
    print("\n".join(f"| {count} | {str(reason)[:110]} |" for reason, count in reasons.items()))


if __name__ == "__main__":
    main()
