"""One GPU against eight of the same kind, with the same model, batch per GPU and software."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from accuracy_clusters.scored import read, with_answers

TABLES = {
    "Lambda TensorFlow": "lambda_tensorflow_benchmark.csv",
    "Lambda PyTorch v1, v2": "lambda_deeplearning_benchmark.csv",
    "Lambda PyTorch v0": "lambda_deeplearning_benchmark_v0.csv",
    "DeepLearningExamples": "nvidia_deeplearningexamples.csv",
}
_SAME = (
    "model", "framework", "precision", "compiler_flags", "gpu", "gpu_mem_gb", "batch_per_gpu",
    "seq_len", "img_size", "grad_accum", "input_data",
)  # fmt: skip


def efficiencies(folder: Path, cache: Path | None) -> pd.DataFrame:
    """Pairs with ``measured`` and ``predicted`` share of eight times the speed of one.

    Several rows of one configuration are taken at their median. A pair that is not predicted has
    its ``reason``.
    """
    return pd.concat(
        [_pairs(name, folder / file, cache) for name, file in TABLES.items()], ignore_index=True
    )


def _pairs(name: str, path: Path, cache: Path | None) -> pd.DataFrame:
    table = read(path)
    rows = with_answers(table[table.n_gpus.isin([1, 8])], cache)
    keys = [f"same_{column}" for column in _SAME]
    rows[keys] = rows[list(_SAME)].astype(object).fillna("").astype(str).to_numpy()
    one, eight = (_medians(rows[rows.n_gpus == count], keys) for count in (1, 8))
    pairs = eight.merge(one, left_index=True, right_index=True, suffixes=("", "_one")).reset_index()
    return pairs.assign(
        table=name,
        measured=pairs.throughput / pairs.throughput_one / 8,
        predicted=pairs.predicted / pairs.predicted_one / 8,
        reason=pairs.reason.where(pairs.reason != "", pairs.reason_one),
    ).rename(columns={f"same_{column}": column for column in _SAME})


def _medians(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    return rows.groupby(keys).agg(
        {"throughput": "median", "predicted": "median", "reason": "first"}
    )
