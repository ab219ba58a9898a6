"""`paceline score` against published rows, as anybody runs it.

Usage: python tools/score_table.py [FOLDER] [--cache FOLDER] [--out benchmarks/score.md]
FOLDER holds the published measurements (default ../shared/truth/e2e). Of timm every twentieth model
by name is taken with all its GPU rows; of the other tables every quality-A row on one GPU, and of
those in SHARED the rows on several GPUs as a set of their own.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from fit.published import read_published
from scored_rows import scored

TABLES = {
    "timm": "timm.csv",
    "Lambda TensorFlow": "lambda_tensorflow_benchmark.csv",
    "Lambda PyTorch v1, v2": "lambda_deeplearning_benchmark.csv",
    "Lambda PyTorch v0": "lambda_deeplearning_benchmark_v0.csv",
    "DeepLearningExamples": "nvidia_deeplearningexamples.csv",
    "convnet-benchmarks": "convnet_benchmarks.csv",
    "MXNet": "mxnet_perf.csv",
    "LitGPT": "litgpt.csv",
    "ML.ENERGY": "mlenergy_leaderboard_v3.csv",
}
#: Tables whose rows on several GPUs are a set as well.
SHARED = {
    "Lambda TensorFlow, several": "lambda_tensorflow_benchmark.csv",
    "Lambda PyTorch v1, v2, several": "lambda_deeplearning_benchmark.csv",
    "Lambda PyTorch v0, several": "lambda_deeplearning_benchmark_v0.csv",
    "DeepLearningExamples, several": "nvidia_deeplearningexamples.csv",
    "detectron2, several": "detectron2.csv",
    "LitGPT, several": "litgpt.csv",
    "llm-foundry, several": "llm_foundry.csv",
    "Megatron-Bridge, several": "megatron_bridge.csv",
    "MLPerf training, several": "mlperf_training.csv",
    "ML.ENERGY, several": "mlenergy_leaderboard_v3.csv",
}
EVERY_NTH_TIMM_MODEL = 20
CAUSES = Path(__file__).with_name("score_causes.md")
ASKED_COVERAGE = 0.8
#: Columns of the answer that are compared.
TOLD = (
    "throughput_low", "throughput_mid", "throughput_high", "step_low_s", "step_mid_s",
    "step_high_s",
)  # fmt: skip


def chosen_rows(path: Path, *, is_timm: bool = False, is_shared: bool = False) -> pd.DataFrame:
    """Quality-A rows on one GPU, or on several; for timm those of the sampled models."""
    table = read_published(path.parent, path.stem)
    count = (table.n_gpus > 1) if is_shared else (table.n_gpus == 1)
    on_gpus = count & ~table.gpu.fillna("CPU").str.startswith("CPU")
    table = table[on_gpus & (table.quality == "A")]
    if not is_timm:
        return table
    sampled = sorted(table.model.unique())[::EVERY_NTH_TIMM_MODEL]
    return table[table.model.isin(sampled)]


def told_and_measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with a prediction beside a throughput, or beside a time where there is none."""
    by_rate = rows[(rows.throughput > 0) & rows.throughput_mid.notna()]
    by_time = rows[~(rows.throughput > 0) & (rows.step_time_ms > 0) & rows.step_mid_s.notna()]
    rates = by_rate[["throughput_low", "throughput_mid", "throughput_high", "throughput"]]
    times = by_time[["step_high_s", "step_mid_s", "step_low_s"]].rdiv(1.0)
    times["measured"] = 1e3 / by_time.step_time_ms
    names = ["low", "mid", "high", "measured"]
    both = [part.set_axis(names, axis="columns") for part in (rates, times)]
    keys = rows[["set", "task", "model"]]
    return pd.concat([part for part in both if len(part)] or [rates.set_axis(names, axis=1)]).join(
        keys
    )


def lines_of(name: str, rows: pd.DataFrame) -> list[str]:
    """One line per task: rows, coverage, errors, share inside the interval."""
    lines = []
    for task, part in rows.groupby("task"):
        known = told_and_measured(part)
        cells = [name, str(task), f"{len(part):,}", f"{part.step_mid_s.notna().mean():.0%}"]
        if len(known):
            error = np.abs(known.mid / known.measured - 1)
            inside = known.measured.between(known.low, known.high)
            width = np.exp(np.log(known.high / known.low).median() / 2)
            cells += [
                f"{len(known):,}", f"{error.median():.1%}", f"{error.mean():.1%}",
                f"{error.quantile(0.9):.0%}", f"{inside.mean():.0%}", f"×/÷ {width:.2f}",
            ]  # fmt: skip
        else:
            cells += ["0", "", "", "", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def coverage_lines(rows: pd.DataFrame) -> list[str]:
    """One line per set: how many of its rows have a prediction."""
    lines = []
    for name, part in rows.groupby("set", sort=False):
        share = part.step_mid_s.notna().mean()
        verdict = "holds" if share >= ASKED_COVERAGE else "falls short"
        count = int(part.step_mid_s.notna().sum())
        lines.append(f"| {name} | {len(part):,} | {count:,} | {share:.1%} | {verdict} |")
    return lines


def speed_line(rows: pd.DataFrame) -> str:
    """Wall time of each thousand rows, files and traced models read from a cache."""
    per_set = rows.groupby("set", sort=False).wall_s.agg(["first", "size"])
    times = 1000.0 * per_set["first"] / per_set["size"]
    return (
        f"One core answers 1,000 rows in {times.median():.1f} s (median of the sets; "
        f"{times.max():.0f} s for {times.idxmax()}), with every model traced before."
    )


def worst_lines(rows: pd.DataFrame, num_lines: int = 20) -> list[str]:
    """The models with the largest median error, by name."""
    known = told_and_measured(rows)
    log_error = np.log(known.mid / known.measured)
    by_model = log_error.groupby([known.set, known.task, known.model]).median()
    worst = by_model.reindex(by_model.abs().sort_values(ascending=False).index)[:num_lines]
    return [f"| {' | '.join(key)} | {np.exp(value):.2f} |" for key, value in worst.items()]


def missed_lines(rows: pd.DataFrame) -> list[str]:
    """Every model that is not predicted, with the reason."""
    missed = rows[rows.step_mid_s.isna()]
    counts = missed.groupby(["set", "model", "reason"]).size().sort_values(ascending=False)
    return [
        f"| {name} | {model} | {count} | {reason[:120]} |"
        for (name, model, reason), count in counts.items()
    ]


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="../shared/truth/e2e", type=Path)
    parser.add_argument("--cache", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    if not asked.folder.is_dir():
        sys.exit(f"no folder {asked.folder}: name the one that holds {', '.join(TABLES.values())}")
    every = []
    for name, file in (TABLES | SHARED).items():
        path = asked.folder / file
        table = chosen_rows(path, is_timm=name == "timm", is_shared=name in SHARED)
        began_s = time.monotonic()
        found = scored(table, (*TOLD, "entry", "reason"), asked.cache)
        every.append(found.assign(set=name, wall_s=time.monotonic() - began_s))
    text = page(pd.concat(every, ignore_index=True))
    if asked.out is None:
        print(text)
    else:
        asked.out.write_text(text + "\n", encoding="utf-8")


def page(rows: pd.DataFrame) -> str:
    """The whole page."""
    return "\n".join(
        [
            *_opening(),
            *_coverage_section(rows),
            *_errors_section(rows),
            *_worst_section(rows),
            CAUSES.read_text(encoding="utf-8"),
            *_missed_section(rows),
        ]
    )


def _opening() -> list[str]:
    """What the page is, and which rows it holds."""
    return [
        "# What `paceline score` says of published rows",
        "",
        f"{datetime.now(tz=UTC).date()}, `tools/score_table.py`.",
        "",
        "Rows of quality A on a single GPU, or on several where a set says so, predicted from the",
        "input columns only. Most single-GPU rows of",
        "timm, Lambda, convnet-benchmarks and MXNet took part in the fit of the built-in",
        "calibration, so this table shows what a user sees on hardware that was measured;",
        "devices and models held out stand in [accuracy.md](accuracy.md). timm: every",
        f"{EVERY_NTH_TIMM_MODEL}th model by name.",
        "",
    ]


def _coverage_section(rows: pd.DataFrame) -> list[str]:
    return [
        f"## Coverage (asked: {ASKED_COVERAGE:.0%} of each set)",
        "",
        "| set | rows | predicted | share | |",
        "|---|--:|--:|--:|---|",
        *coverage_lines(rows),
        "",
    ]


def _errors_section(rows: pd.DataFrame) -> list[str]:
    sets = rows.groupby("set", sort=False)
    return [
        "## Errors and intervals",
        "",
        "Throughput, or time where a row states no throughput. *Inside*: of the 80 % interval;",
        "*width*: half of it, the median. Frameworks that the fit has not seen are less sure",
        "by the spread of these same rows (log_sigma of `framework_names.csv`), at most so",
        "that the width stays below 2: their share inside is fitted, the others' is not.",
        "The mean of DeepLearningExamples holds 42 rows of GNMT on V100 whose column of",
        "throughput repeats a BLEU score (23.8).",
        "",
        speed_line(rows),
        "",
        "| set | task | rows | told | compared | median | mean | 90 % below | inside | width |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(line for name, part in sets for line in lines_of(str(name), part)),
        "",
    ]


def _worst_section(rows: pd.DataFrame) -> list[str]:
    return [
        "## Furthest off, by name (predicted over measured)",
        "",
        "| set | task | model | ratio |",
        "|---|---|---|--:|",
        *worst_lines(rows),
        "",
    ]


def _missed_section(rows: pd.DataFrame) -> list[str]:
    return [
        "## Not predicted",
        "",
        "| set | model | rows | reason |",
        "|---|---|--:|---|",
        *missed_lines(rows),
    ]


if __name__ == "__main__":
    main()
