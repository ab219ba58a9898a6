"""llm-foundry's MPT models under FSDP, as their code runs them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from accuracy_clusters.scored import read, with_answers

#: Rows that fitted the one constant of `predict/data/sustained_clock.csv` (tools/fit/sustained.py).
FITTED = {"MPT-760m", "MPT-1b", "MPT-7b", "MPT-13b"}
#: What the cluster of the H100 rows is taken to have where only InfiniBand or RoCE is stated.
ASSUMED_NETWORK = "8x IB/RoCE 400Gb/s"
_UNSTATED = "IB/RoCE (unstated)"


def with_predictions(path: Path, cache: Path | None) -> pd.DataFrame:
    """The rows with ``predicted`` tokens per second.

    FSDP's mixed precision computes on BF16 parameters, and MPT's norm is
    ``low_precision_layernorm`` (``MPTConfig`` of mosaicml/llm-foundry), so between the FP32 shards
    and the loss everything is BF16: the time of a step is that of pure BF16, not of autocast.
    Memory is not asked.

    Rows whose network is not stated have ``is_assumed``: they are predicted with one adapter of
    400 Gb/s per H100, as DGX and HGX systems have, and stand apart.
    """
    table = read(path)
    is_narrow = table.precision.str.contains("bf16")
    is_assumed = table.interconnect.str.contains(_UNSTATED, regex=False)
    network = table.interconnect.str.replace(_UNSTATED, ASSUMED_NETWORK, regex=False)
    rows = with_answers(
        table.assign(
            precision=table.precision.mask(is_narrow, "bf16-true"),
            interconnect=network,
            is_assumed=is_assumed,
        ),
        cache,
    )
    is_fitted = rows.gpu.str.contains("H100") & (rows.seq_len == 2048) & (rows.n_gpus == 8)
    is_fitted &= rows.model.isin(FITTED) & rows.precision.eq("bf16-true")
    return rows.assign(is_fitted=is_fitted)
