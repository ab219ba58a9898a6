"""What is traced of timm and transformers, as a page.

Usage: PYTHONPATH=tools python -m trace_coverage.page TIMM.csv SURVEY.csv [SURVEY.csv ...]
TIMM.csv is the output of `timm_counts.py`, SURVEY.csv that of `survey_transformers.py`.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import Counter
from pathlib import Path

PARAMETERS_FRAC, GMAC_FRAC = 0.005, 0.02
#: timm prints millions of parameters and billions of multiply-adds with two digits.
ROUNDING = 0.0051

Row = dict[str, str]


def read(*paths: str) -> list[Row]:
    """Rows of one or more CSV files."""
    return [
        row
        for path in paths
        for row in csv.DictReader(Path(path).read_text(encoding="utf-8").splitlines())
    ]


def timm_lines(rows: list[Row]) -> list[str]:
    """The part about timm."""
    off = [abs(float(r["traced_gmac"]) / float(r["gmacs"]) - 1) for r in rows]
    near = sum(
        abs(float(r["traced_params_m"]) - float(r["params_m"]))
        <= max(PARAMETERS_FRAC * float(r["params_m"]), ROUNDING)
        for r in rows
    )
    ways = Counter(r["counted"] for r in rows)
    left = [r for r in rows if r["counted"] == "unexplained"]
    return [
        "## timm: published parameters and multiply-adds\n",
        f"{len(rows)} models of {len({r['family'] for r in rows})} families. Parameters within "
        f"0.5 % or the printed digits: {near}. Multiply-adds: median error "
        f"{statistics.median(off):.2%}, within 2 %: "
        f"{sum(o <= GMAC_FRAC for o in off) / len(off):.0%}.\n",
        "| what the published figure counts | models |\n|---|--:|",
        *(f"| {way} | {count} |" for way, count in ways.most_common()),
        "\n| left over | published M, G | traced M, G |\n|---|---|---|",
        *(
            f"| {r['model']} | {r['params_m']}, {r['gmacs']} | "
            f"{r['traced_params_m']}, {r['traced_gmac']} |"
            for r in left
        ),
        "\nWhy these are left over stands in `tests/unit/model/test_timm.py`.",
    ]


def survey_lines(rows: list[Row]) -> list[str]:
    """The part about transformers."""
    built = [r for r in rows if r["builds"] == "ok"]
    both = [r for r in built if r["train"] == r["infer"] == "ok"]
    return [
        "\n## transformers: causal and masked language models at their own default sizes\n",
        f"{len(rows)} classes surveyed; the default config of {len(built)} builds; of these a "
        f"training step and an inference (prefill and decode of a decoder) trace in {len(both)}: "
        f"{len(both) / len(built):.1%}. Models that can look at images are traced on text.\n",
        f"{sum(_is_bound(r) for r in both)} of them are known at one length only (64 in this "
        "survey, else the one asked for): their ops follow the length, in loops over time, chunks "
        "or windows.\n",
        "| class | what failed | reason |\n|---|---|---|",
        *(_failure_line(r) for r in sorted(rows, key=lambda r: r["model_class"]) if r not in both),
    ]


def _is_bound(row: Row) -> bool:
    """Whether a graph of the class is known at one length only."""
    return any(row[f"{task}_lengths"] not in ("all", "") for task in ("train", "infer"))


def _failure_line(row: Row) -> str:
    if row["builds"] != "ok":
        return f"| {row['model_class']} | build | {_cell(row['builds'])} |"
    failed = [task for task in ("train", "infer") if row[task] != "ok"]
    return f"| {row['model_class']} | {', '.join(failed)} | {_cell(row[failed[0]])} |"


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")[:110]


def main(timm: str, *surveys: str) -> None:
    """Print the page."""
    print("# What is traced of two model libraries\n")
    print("By `make trace-coverage` (`tools/trace_coverage`), on meta tensors.\n")
    print("\n".join([*timm_lines(read(timm)), *survey_lines(read(*surveys))]))


if __name__ == "__main__":
    main(*sys.argv[1:])
