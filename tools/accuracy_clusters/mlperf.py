"""MLPerf training: how throughput scales over nodes.

The logs name neither precision nor parallelism; ``scoreboard/data/benchmark_facts.csv`` says what
the submissions of a benchmark run in, with sources. A benchmark without a line there is not
predicted.
"""

from __future__ import annotations

import pandas as pd


def scaling_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Every multi-node row beside the largest one-node row of the same submitter's system.

    Efficiency is throughput per GPU against that row, measured and predicted.
    """
    rows = rows[rows.predicted.notna()]
    submitter = rows.notes.str.extract(r"org=([^;]*)")[0]
    release = rows.notes.str.extract(r"MLPerf Training (v[\d.]+)")[0]
    rows = rows.assign(key=submitter + "|" + release + "|" + rows.model + "|" + rows.gpu)
    rows = rows.assign(
        measured_per_gpu=rows.throughput / rows.n_gpus,
        predicted_per_gpu=rows.predicted / rows.n_gpus,
    )
    one = rows[rows.n_nodes == 1].sort_values("n_gpus").groupby("key").last()
    many = rows[rows.n_nodes > 1].merge(one, left_on="key", right_index=True, suffixes=("", "_one"))
    return many.assign(
        measured=many.measured_per_gpu / many.measured_per_gpu_one,
        predicted=many.predicted_per_gpu / many.predicted_per_gpu_one,
    )
