"""The scoreboard as Markdown and CSV, and the log of looks."""

from __future__ import annotations

import csv
import dataclasses
import subprocess
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from accuracy.figures import Figure


def markdown_table(figures: Sequence[Figure]) -> str:
    """Figures as a table; the statistic that is compared stands in bold."""
    head = (
        "| test | what | rows | coverage | median % | mean % | 90 % interval | p90 | roofline "
        "| anchor | target | |\n"
    )
    rule = "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n"
    return head + rule + "".join(_line(f) for f in figures)


def _line(f: Figure) -> str:
    median, mean = f"{f.median:.1f}", f"{f.mean:.1f}"
    if f.scored == "median":
        median = f"**{median}**"
    else:
        mean = f"**{mean}**"
    met = {"yes": "met", "no": "missed", "": ""}[f.met]
    end = ", ".join(word for word in (met, f.verdict) if word)
    return (
        f"| {f.test} | {f.what} | {f.num_rows:,} | {100 * f.coverage:.0f} % | {median} | {mean} | "
        f"{f.low:.1f}–{f.high:.1f} | {f.p90:.1f} | {_number(f.roofline)} | {_number(f.anchor)} | "
        f"{_number(f.target)} | {end} |\n"
    )


def _number(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.1f}"


def frame_table(frame: pd.DataFrame) -> str:
    """A data frame as a Markdown table."""
    lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|---" * len(frame.columns) + "|"]
    rows = frame.itertuples(index=False)
    lines += ["| " + " | ".join(_cell(v) for v in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float | np.floating) else str(value)


def write_csv(path: Path, figures: Sequence[Figure]) -> None:
    """All figures, one line each."""
    names = [f.name for f in dataclasses.fields(Figure)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*names, "verdict", "met"])
        for f in figures:
            values = [getattr(f, name) for name in names]
            writer.writerow([*(_rounded(v) for v in values), f.verdict, f.met])


def read_csv(path: Path) -> list[Figure]:
    """What `write_csv` wrote; nothing where there is no file yet."""
    if not path.exists():
        return []
    kinds = {f.name: f.type for f in dataclasses.fields(Figure)}
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Figure(**{name: _value(line[name], str(kind)) for name, kind in kinds.items()})
            for line in csv.DictReader(file)
        ]


def _value(text: str, kind: str) -> Any:
    if kind == "str":
        return text
    return int(text) if kind == "int" else float(text or "nan")


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return "" if np.isnan(value) else round(value, 3)
    return value


def append_log(path: Path, figures: Sequence[Figure], today: date) -> None:
    """One line per figure of this run: every look at the held-out data is on record."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(["date", "commit", "test", "what", "rows", "median", "mean"])
        for f in figures:
            line = [today, commit, f.test, f.what, f.num_rows]
            writer.writerow([*line, round(f.median, 2), round(f.mean, 2)])
