"""MLPerf training: throughput on one node, and how it scales over nodes.

The logs name neither precision nor parallelism; ``mlperf_facts.csv`` says what the submissions of a
benchmark run in, with sources. A benchmark without a row there is not predicted.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from accuracy_clusters import adapters
from accuracy_clusters.scored import with_answers

FACTS = Path(__file__).with_name("mlperf_facts.csv")
NETWORKS = Path(__file__).with_name("mlperf_networks.csv")
_STATED = ("framework", "precision", "compiler_flags", "seq_len", "parallelism")
NOT_BUILT = {
    "dlrm": "embedding tables spread over the GPUs",
    "dlrm_dcnv2": "embedding tables spread over the GPUs",
    "gnn": "graph sampling on the host",
    "rgat": "graph sampling on the host",
    "minigo": "self-play on the host",
    "gpt3": "tensor and pipeline degrees are not in the logs",
    "llama31_405b": "tensor, context and pipeline degrees are not in the logs",
}


def stated(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with what submissions of their benchmark run in."""
    with FACTS.open(encoding="utf-8") as lines:
        facts = list(csv.DictReader(lines))
    table = table.astype(dict.fromkeys(_STATED, object))
    undecided = np.ones(len(table), dtype=bool)
    for fact in facts:
        fits = table.gpu.map(lambda gpu, p=fact["gpu_pattern"]: bool(re.fullmatch(p, str(gpu))))
        chosen = undecided & (table.model == fact["model"]).to_numpy() & fits.to_numpy()
        for name in _STATED:
            table.loc[chosen, name] = fact[name] or np.nan
        undecided &= ~chosen
    return _with_networks(table).assign(is_stated=~undecided)


def _with_networks(table: pd.DataFrame) -> pd.DataFrame:
    """Texts that the logs cut off, completed."""
    with NETWORKS.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            text = table.interconnect.fillna("")
            is_cut = text.map(lambda t, p=row["pattern"]: bool(re.fullmatch(p, t)))
            table = table.assign(interconnect=text.mask(is_cut, row["interconnect"]))
    return table


def with_predictions(table: pd.DataFrame, cache: Path | None) -> pd.DataFrame:
    """The rows with ``predicted`` in their own unit; NaN where ``reason`` says why not."""
    rows = stated(table)
    is_split, is_cut = rows.model == adapters.MODEL, rows.global_batch < rows.n_gpus
    is_known = rows.is_stated & ~is_cut
    known = with_answers(rows[is_known], cache)
    split, rest = (
        adapters.with_predictions(rows[is_split], cache),
        rows[~is_known & ~is_split],
    )
    rest = rest.assign(predicted=np.nan, reason=[_why(row) for row in rest.itertuples()])
    return pd.concat([known, split, rest], ignore_index=True)


def _why(row: Any) -> str:
    if row.is_stated:
        return f"{row.model}: several devices share an item, and the logs do not say how many"
    return f"{row.model}: {NOT_BUILT.get(row.model, 'no facts about its precision')}"


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
