"""Rows of published tables beside what `paceline score` answers, through its files."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from paceline.catalog.load import load_catalog
from paceline.scoring.score import score_rows


def scored(rows: pd.DataFrame, columns: Sequence[str], cache: Path | None) -> pd.DataFrame:
    """The rows with some columns of the answer.

    Args:
        rows: As `paceline score` reads them.
        columns: Of the answer.
        cache: Folder of traced models; its own if None.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, out = Path(folder) / "rows.csv", Path(folder) / "out.csv"
        rows.to_csv(given, index=False)
        score_rows(
            given, out, catalog=load_catalog(), cache_folder=cache,
            on_progress=lambda line: print(line, file=sys.stderr),
        )  # fmt: skip
        answers = pd.read_csv(out)
    return rows.reset_index(drop=True).join(answers[[*columns]])
