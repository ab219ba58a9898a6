"""Published end-to-end tables, put right where their compilation differs from the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

#: Cells that the compiled tables state otherwise than their source: rows from first to last.
CORRECTIONS = Path(__file__).parent / "corrected_rows.csv"


def read_published(folder: Path, table: str, **options: Any) -> pd.DataFrame:
    """One end-to-end table.

    Args:
        folder: Folder of the tables.
        table: Its name, without ending.
        options: Of `pandas.read_csv`.

    Raises:
        ValueError: A cell to put right holds something else: the table was compiled anew.
    """
    rows = pd.read_csv(folder / f"{table}.csv", low_memory=False, **options)
    wrong = pd.read_csv(CORRECTIONS, dtype={"compiled": str, "published": str})
    for one in wrong[wrong.table == table].itertuples():
        cells = rows.loc[one.first : one.last, one.column]
        if len(cells) != one.last - one.first + 1 or not (cells == one.compiled).all():
            raise ValueError(
                f"{table}: rows {one.first} to {one.last} no longer say {one.compiled}"
            )
        rows.loc[one.first : one.last, one.column] = one.published
    return rows
