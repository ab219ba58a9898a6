"""The worst cases of T1 to T5 by name: models, and classes of shapes on each system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from accuracy.report import frame_table

_SHOWN = 10
#: Classes with a smaller share of a fold's rows are not shown.
_LEAST_SHARE = 0.01
_ROWS = (0, 16, 128, 1024, np.inf)
_CACHES = (0, 1 / 64, 1 / 8, 1, np.inf)
_ITEMS = (0, 1, 8, np.inf)


@dataclass(frozen=True, slots=True)
class Worst:
    """What was found so far, by test.

    Attributes:
        frames: Cases with the columns test, system, case, rows, mean_error_percent, median_log.
    """

    frames: list[pd.DataFrame] = field(default_factory=list)

    def add(
        self, test: str, rows: pd.DataFrame, case: Sequence[str], log_error: np.ndarray
    ) -> None:
        """Summarise log errors of rows by system and case.

        Args:
            test: Which test.
            rows: Rows with ``source_name``.
            case: Name of each row's class.
            log_error: Log of predicted over measured.
        """
        one = pd.DataFrame({
            "system": rows.source_name.to_numpy(), "case": list(case),
            "log_error": np.asarray(log_error, float),
        })  # fmt: skip
        one["error"] = 100 * np.abs(np.expm1(one.log_error))
        groups = one.groupby(["system", "case"], sort=False)
        found = groups.agg(
            rows=("error", "size"), mean_error_percent=("error", "mean"),
            median_log=("log_error", "median"),
        ).reset_index()  # fmt: skip
        kept = found[found.rows >= _LEAST_SHARE * len(one)]
        self.frames.append(kept.assign(test=test))

    def section(self, before: str = "") -> str:
        """The largest mean errors of each test as Markdown.

        Args:
            before: The section of an earlier run, whose tests stand where this run has none.
        """
        every = pd.concat(self.frames, ignore_index=True)
        worst = every.sort_values("mean_error_percent", ascending=False).groupby("test")
        columns = ["test", "system", "case", "rows", "mean_error_percent", "median_log"]
        shown = worst.head(_SHOWN).sort_values(
            ["test", "mean_error_percent"], ascending=[True, False]
        )
        head, lines = _table_lines(frame_table(shown[columns]))
        renewed = tuple(f"| {test} |" for test in set(every.test))
        stands = [line for line in _table_lines(before)[1] if not line.startswith(renewed)]
        # Sorting is stable: within a test the worst stays first.
        table = head + sorted(lines + stands, key=lambda line: line.split("|")[1])
        return (
            "## Worst operators and transformers by name\n\nClasses of at least 1 % of a fold's "
            "rows; *median_log* is the log of predicted over measured time, negative where the "
            "prediction is too fast.\n\n" + "\n".join(table) + "\n"
        )


def _table_lines(text: str) -> tuple[list[str], list[str]]:
    """Head and rows of the table in a text."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return lines[:2], lines[2:]


def product_cases(rows: pd.DataFrame) -> list[str]:
    """Class of products: rows, and bytes over the last-level cache."""
    m = _ranges(rows.m, _ROWS, "m")
    cache = _ranges(rows.moved_bytes / rows.l2_bytes, _CACHES, "bytes/cache")
    return [f"{a}, {b}" for a, b in zip(m, cache, strict=True)]


def attention_cases(rows: pd.DataFrame) -> list[str]:
    """Class of attention: kind, bytes over the cache, heads of keys over the multiprocessors."""
    cache = _ranges(rows.moved_bytes / rows.l2_bytes, _CACHES, "bytes/cache")
    items = _ranges(rows.batch * rows.kv_heads / rows.num_sms, _ITEMS, "key heads/SM")
    return [f"{a}, {b}, {c}" for a, b, c in zip(rows.op, cache, items, strict=True)]


def _ranges(values: pd.Series, edges: Sequence[float], name: str) -> list[str]:
    numbers = np.digitize(values.to_numpy(float), edges[1:-1], right=True)
    return [f"{name} {edges[i]:g} to {edges[i + 1]:g}" for i in numbers]
