"""Tables of errors as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One figure beside its target.

    Attributes:
        test: What was scored.
        value: Its error, or a share that should be large.
        target: What it should be at most, or at least.
        is_share: Whether it should be large.
    """

    test: str
    value: float
    target: float
    is_share: bool = False

    @property
    def holds(self) -> bool:
        """Whether the figure meets its target."""
        return self.value >= self.target if self.is_share else self.value <= self.target


def summary(scores: list[Score]) -> str:
    """Figures beside targets."""
    lines = ["| test | figure | target | holds |", "|---|---|---|---|"]
    for score in scores:
        sign = "≥" if score.is_share else "≤"
        cells = (score.test, f"{score.value:.1%}", f"{sign} {score.target:.0%}")
        lines.append("| " + " | ".join((*cells, "yes" if score.holds else "**no**")) + " |")
    return "\n".join(lines) + "\n"


def with_error(rows: pd.DataFrame, truth: str) -> pd.DataFrame:
    """Rows with predicted over measured, and its distance from one."""
    ratio = rows.predicted / rows[truth]
    return rows.assign(ratio=ratio, error=(ratio - 1).abs())


def by_system(rows: pd.DataFrame) -> str:
    """Mean errors of each system, and the mean over systems."""
    large = rows[rows.bytes >= 16e6]
    table = pd.DataFrame({
        "rows": rows.groupby("system").size(),
        "mean error": rows.groupby("system").error.mean(),
        "above 16 MB": large.groupby("system").error.mean(),
        "worst": rows.groupby("system").error.max(),
    })  # fmt: skip
    means = table[["mean error", "above 16 MB"]].mean()
    table.loc["**mean of systems**"] = [len(rows), *means, table.worst.max()]
    return markdown(table)


def markdown(table: pd.DataFrame) -> str:
    """A table with its index as the first column."""
    lines = ["| " + " | ".join(["", *map(str, table.columns)]) + " |"]
    lines.append("|---" * (len(table.columns) + 1) + "|")
    for name, row in table.iterrows():
        lines.append("| " + " | ".join([str(name), *(cell(c, v) for c, v in row.items())]) + " |")
    return "\n".join(lines) + "\n"


def cell(column: str, value: Any) -> str:
    """A figure in the form of its column: counts, seconds and GiB, else per cent."""
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return "–"
    if column in ("rows", "groups"):
        return f"{value:.0f}"
    return f"{value:.3g}" if column.endswith(" s") or column.endswith("GiB") else f"{value:.1%}"
