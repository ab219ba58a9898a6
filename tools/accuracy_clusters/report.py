"""The page: figures by group with coverage and bias, worst cases by name, what is not built."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

NUM_WORST = 8


def ratio_table(rows: pd.DataFrame, by: Sequence[str]) -> str:
    """Error of ``predicted`` against ``throughput`` per group."""
    lines = [_header(by, ("rows", "predicted", "median error", "90 % below", "bias"), "--:")]
    for key, part in rows.groupby(list(by), dropna=False):
        known = part[part.predicted.notna()]
        ratio = known.predicted / known.throughput
        error = (ratio - 1.0).abs()
        figures = (
            ["–"] * 3
            if known.empty
            else [_percent(error.median()), _percent(error.quantile(0.9)), f"{ratio.median():.2f}"]
        )
        lines.append(_line(*_named(key), len(part), _percent(len(known) / len(part)), *figures))
    return "\n".join(lines) + "\n"


def points_table(pairs: pd.DataFrame, by: Sequence[str]) -> str:
    """Difference of two efficiencies in points per group, and both of them."""
    columns = ("pairs", "predicted", "median difference", "bias", "measured", "tool")
    lines = [_header(by, columns, "--:")]
    for key, part in pairs.groupby(list(by), dropna=False):
        known = part[part.predicted.notna()]
        off = known.predicted - known.measured
        figures = (
            ["–"] * 4
            if known.empty
            else [
                _points(off.abs().median()),
                f"{100 * off.median():+.1f} points",
                _percent(known.measured.median()),
                _percent(known.predicted.median()),
            ]
        )
        lines.append(_line(*_named(key), len(part), _percent(len(known) / len(part)), *figures))
    return "\n".join(lines) + "\n"


def worst_ratios(rows: pd.DataFrame, columns: Sequence[str]) -> str:
    """Rows furthest off, one per distinct name."""
    known = rows[rows.predicted.notna()]
    ratio = known.predicted / known.throughput
    order = np.log(ratio).abs().sort_values(ascending=False).index
    worst = known.loc[order].drop_duplicates(list(columns))[:NUM_WORST]
    lines = [_header(columns, ("measured", "predicted", "ratio"), "--:")]
    lines += [
        _line(*(row[c] for c in columns), f"{row.throughput:.4g}", f"{row.predicted:.4g}",
              f"{row.predicted / row.throughput:.2f}")
        for _, row in worst.iterrows()
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def worst_points(pairs: pd.DataFrame, columns: Sequence[str]) -> str:
    """Pairs furthest off, one per distinct name."""
    known = pairs[pairs.predicted.notna()]
    order = (known.predicted - known.measured).abs().sort_values(ascending=False).index
    worst = known.loc[order].drop_duplicates(list(columns))[:NUM_WORST]
    lines = [_header(columns, ("measured", "tool"), "--:")]
    lines += [
        _line(*(row[c] for c in columns), _percent(row.measured), _percent(row.predicted))
        for _, row in worst.iterrows()
    ]
    return "\n".join(lines) + "\n"


def not_built(rows: pd.DataFrame) -> str:
    """Reasons of the rows without a prediction, most frequent first."""
    reasons = rows[rows.predicted.isna()].reason.value_counts()
    if reasons.empty:
        return "Every row is predicted.\n"
    lines = ["| not built | rows |\n|---|--:|"]
    lines += [_line(_short(reason), count) for reason, count in reasons.items()]
    return "\n".join(lines) + "\n"


def median_error(rows: pd.DataFrame) -> float:
    """Median absolute error of the rows that are predicted."""
    known = rows[rows.predicted.notna()]
    return float((known.predicted / known.throughput - 1.0).abs().median())


def median_points(pairs: pd.DataFrame) -> float:
    """Median absolute difference of efficiencies, in points."""
    known = pairs[pairs.predicted.notna()]
    return 100.0 * float((known.predicted - known.measured).abs().median())


def coverage(rows: pd.DataFrame) -> float:
    """Share of rows that are predicted."""
    return float(rows.predicted.notna().mean())


def _header(by: Sequence[str], columns: Sequence[str], rule: str) -> str:
    return _line(*by, *columns) + "\n|" + "---|" * len(by) + f"{rule}|" * len(columns)


def _named(key: object) -> tuple[object, ...]:
    return key if isinstance(key, tuple) else (key,)


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _short(reason: str) -> str:
    return reason if len(reason) < 100 else reason[:97] + "…"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.1f} %"


def _points(value: float) -> str:
    return f"{100 * value:.1f}"
