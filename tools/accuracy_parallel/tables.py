"""Tables of errors as Markdown."""

from __future__ import annotations

import pandas as pd


def with_error(rows: pd.DataFrame, truth: str) -> pd.DataFrame:
    ratio = rows.predicted / rows[truth]
    return rows.assign(ratio=ratio, error=(ratio - 1).abs())


def by_system(rows: pd.DataFrame) -> str:
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
    lines = ["| " + " | ".join(["", *map(str, table.columns)]) + " |"]
    lines.append("|---" * (len(table.columns) + 1) + "|")
    for name, row in table.iterrows():
        lines.append("| " + " | ".join([str(name), *(cell(c, v) for c, v in row.items())]) + " |")
    return "\n".join(lines) + "\n"


def cell(column: str, value) -> str:
    if isinstance(value, str):
        return value
    if pd.isna(value):
        return "–"
    if column in ("rows", "groups"):
        return f"{value:.0f}"
    return f"{value:.3g}" if column.endswith(" s") or column.endswith("GiB") else f"{value:.1%}"
