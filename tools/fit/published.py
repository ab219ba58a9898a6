"""Published end-to-end tables, put right where their compilation differs from the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

#: Cells that the compiled tables state otherwise than their source: rows from first to last, but
#: for those of one model.
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
        block = rows.loc[one.first : one.last]
        chosen = block[block.model != one.unless_model]
        if len(block) != one.last - one.first + 1 or (chosen[one.column] != one.compiled).any():
            raise ValueError(f"{table}: rows from {one.first} on no longer say {one.compiled}")
        rows.loc[chosen.index, one.column] = one.published
    return rows
