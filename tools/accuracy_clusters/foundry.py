"""llm-foundry's MPT models under FSDP, as their code runs them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from accuracy_clusters.scored import read, with_answers

#: Rows that fitted the one constant of `sustained_clock.csv` (tools/fit/sustained.py).
FITTED = {"MPT-760m", "MPT-1b", "MPT-7b", "MPT-13b"}
_UNSTATED = "IB/RoCE (unstated)"


def with_predictions(path: Path, cache: Path | None) -> pd.DataFrame:
    """The rows with ``predicted`` tokens per second.

    Memory is not asked. Rows whose network is not stated have ``is_assumed``: the tool takes that
    of the vendor's own system, and they stand apart.
    """
    table = read(path)
    is_assumed = table.interconnect.str.contains(_UNSTATED, regex=False)
    rows = with_answers(table.assign(is_assumed=is_assumed), cache)
    is_fitted = rows.gpu.str.contains("H100") & (rows.seq_len == 2048) & (rows.n_gpus == 8)
    is_fitted &= rows.model.isin(FITTED) & rows.precision.isin(["bf16", "amp_bf16"])
    return rows.assign(is_fitted=is_fitted)
