"""Predicted mean power and energy beside published measurements, each GPU held out in turn.

Usage: PYTHONPATH=tools python -m accuracy_power [FOLDER] [--cache FOLDER] [--out FILE] [--fit]
FOLDER holds the published measurements (default ../shared/truth/e2e): the power traces of Zeus, in
which boards are set to draw less too, and the single-GPU rows of the ML.ENERGY leaderboard. The law
of `prediction.step.power` has three shares fitted, from all GPUs but the one that is scored;
``--fit`` writes those of all GPUs into the package.
"""

from __future__ import annotations

import pandas as pd
from pages import deliver, need, page_parser

from accuracy_power.law import fitted_law, write_law
from accuracy_power.page import page
from accuracy_power.rows import TABLES, published, with_use


def main() -> None:
    """Print or write the page, and with ``--fit`` the law."""
    parser = page_parser(__doc__, "../shared/truth/e2e")
    parser.add_argument("--fit", action="store_true", help="write the law into the package")
    asked = parser.parse_args()
    need(asked.folder / f"{TABLES[0]}.csv")
    parts = [published(asked.folder, table) for table in TABLES]
    rows = with_use(pd.concat(parts, ignore_index=True), asked.cache)
    if asked.fit:
        write_law(fitted_law(rows[rows.busy_frac.notna()]))
    deliver(page(rows), asked.out)


if __name__ == "__main__":
    main()
