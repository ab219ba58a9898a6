"""Rows of published tables beside what `paceline score` says of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from paceline.catalog.load import load_catalog
from paceline.scoring.completion import completed
from paceline.scoring.rows import Row, parse_row
from paceline.scoring.score import predict_rows


def read(path: Path) -> pd.DataFrame:
    """Rows that may serve as truth: training, quality A, with a throughput."""
    table = pd.read_csv(path, low_memory=False)
    return table[(table.task == "train") & (table.quality == "A") & (table.throughput > 0)]


def with_answers(table: pd.DataFrame, cache: Path | None) -> pd.DataFrame:
    """The rows with ``predicted`` (in their own unit; NaN where there is none) and ``reason``."""
    answers = predict_rows(
        rows_of(table),
        catalog=load_catalog(),
        cache_folder=cache,
        on_progress=lambda line: print(line, file=sys.stderr),
    )
    return table.reset_index(drop=True).assign(
        predicted=[np.nan if a.throughput_mid is None else a.throughput_mid for a in answers],
        reason=[a.reason for a in answers],
        device=[a.device for a in answers],
        entry=[a.entry for a in answers],
    )


def rows_of(table: pd.DataFrame) -> Sequence[Row]:
    """Input columns of each row, as `paceline score` reads them from a file."""
    text = table.astype(object).where(table.notna(), "")
    return [parse_row(completed(row)) for row in text.to_dict(orient="records")]
